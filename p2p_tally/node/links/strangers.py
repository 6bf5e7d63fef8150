"""Connections before the end of their handshake: limited in number, and each limited in time."""

import asyncio

from aiohttp import web

from p2p_tally.node.links import handshake

# How many may be open at once, besides the links of the neighbours.
MOST = 64


class Strangers:
    """The connections of one node whose peer is not known yet."""

    def __init__(self) -> None:
        self._handlers: dict[web.RequestHandler, None] = {}  # the oldest first

    def add(self, handler: web.RequestHandler) -> None:
        """A new connection. It is ended if the handshake takes too long, or if there are too many newer ones."""
        self._handlers[handler] = None
        asyncio.get_running_loop().call_later(handshake.HANDSHAKE_SECONDS, self._expire, handler)
        if len(self._handlers) > MOST:
            self._expire(next(iter(self._handlers)))

    def identified(self, handler: web.RequestHandler) -> None:
        """The handshake is done: this connection belongs to a neighbour."""
        self._handlers.pop(handler, None)

    def _expire(self, handler: web.RequestHandler) -> None:
        """End a connection, unless its handshake is done."""
        if handler not in self._handlers:
            return
        del self._handlers[handler]
        if handler.transport is not None:
            handler.transport.abort()
