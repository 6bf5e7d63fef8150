"""Connections that have not shaken hands yet: few at once, and each for a short time only."""

import asyncio

from aiohttp import web

from p2p_tally.node.links import handshake

# That may be open at once, besides the neighbours' links.
MOST = 64


class Strangers:
    """The connections of one node that are nobody's yet."""

    def __init__(self) -> None:
        self._handlers: dict[web.RequestHandler, None] = {}  # the oldest first

    def add(self, handler: web.RequestHandler) -> None:
        """A new connection, which is cut unless it has shaken hands in time."""
        self._handlers[handler] = None
        asyncio.get_running_loop().call_later(handshake.HANDSHAKE_SECONDS, self._expire, handler)
        if len(self._handlers) > MOST:
            self._expire(next(iter(self._handlers)))

    def introduced(self, handler: web.RequestHandler) -> None:
        """It has shaken hands: it is a neighbour's now."""
        self._handlers.pop(handler, None)

    def _expire(self, handler: web.RequestHandler) -> None:
        """Cut a connection that is still a stranger's."""
        if handler not in self._handlers:
            return
        del self._handlers[handler]
        if handler.transport is not None:
            handler.transport.abort()
