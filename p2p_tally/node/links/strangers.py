"""Connections before the end of their handshake: limited in number, and each limited in time and in bytes.

So the memory that strangers can use is fixed: the number of connections times the bytes of each.
"""

import asyncio
import logging

from aiohttp import web

from p2p_tally.node.links import handshake
from p2p_tally.protocol.frames import HELLO_BYTES

log = logging.getLogger(__name__)

# How many such connections may be open at once, from one address and in all. One more ends the oldest, so that a
# stranger cannot keep others out for long.
MOST_FROM_ONE_ADDRESS = 64
MOST = 256

# Bytes that are read before the handshake is done: the request for a WebSocket, and the longest hello.
REQUEST_BYTES = 16 * 1024
BUDGET = REQUEST_BYTES + HELLO_BYTES


class Stranger(asyncio.Protocol):
    """One new connection. It passes bytes on to aiohttp's handler, up to the budget, until its handshake is done."""

    def __init__(self, handler: web.RequestHandler, strangers: "Strangers") -> None:
        self._handler = handler
        self._strangers = strangers
        self._left: int | None = BUDGET  # None: the handshake is done, and messages have their own limits
        self._transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        # Kept, to be cancelled: a timer holds on to its connection long after that has ended.
        self._timer = asyncio.get_running_loop().call_later(
            handshake.HANDSHAKE_SECONDS, self._strangers.cut, self._handler, "no handshake in time"
        )
        name = transport.get_extra_info("peername")
        self.address = str(name[0]) if isinstance(name, tuple) else ""
        self._handler.connection_made(transport)
        self._strangers.add(self._handler, self)

    def data_received(self, data: bytes) -> None:
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:  # this is neither read nor answered
                self._strangers.cut(self._handler, "it sent too much before its handshake")
                return
        self._handler.data_received(data)

    def identified(self) -> None:
        """The handshake is done: the limits of strangers end."""
        self._left = None
        self._stop_timer()

    def abort(self) -> None:
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def eof_received(self) -> bool | None:
        self._handler.eof_received()
        return None

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        self._strangers.forget(self._handler)
        self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()


class Strangers:
    """The connections of one node whose peer is not known yet."""

    def __init__(self) -> None:
        self._open: dict[web.RequestHandler, Stranger] = {}  # the oldest first

    def add(self, handler: web.RequestHandler, stranger: Stranger) -> None:
        """A new connection. If there are too many now, the oldest is ended."""
        self._open[handler] = stranger
        from_its_address = [other for other, known in self._open.items() if known.address == stranger.address]
        if len(from_its_address) > MOST_FROM_ONE_ADDRESS:
            self.cut(from_its_address[0], "too many connections from its address")
        elif len(self._open) > MOST:
            self.cut(next(iter(self._open)), "too many connections")

    def identified(self, handler: web.RequestHandler) -> None:
        """The handshake is done: this connection belongs to a neighbour."""
        stranger = self._open.pop(handler, None)
        if stranger is not None:
            stranger.identified()

    def forget(self, handler: web.RequestHandler) -> None:
        """The connection has ended."""
        self._open.pop(handler, None)

    def cut(self, handler: web.RequestHandler, why: str) -> None:
        """End a connection, unless its handshake is done."""
        stranger = self._open.pop(handler, None)
        if stranger is not None:
            log.warning("a connection cut: %s", why, extra={"event": "stranger", "reason": why})
            stranger.abort()
