"""Connections that have not shaken hands yet: few at once, each for a short time and a few bytes only.

What a stranger can cost is fixed: memory by the number of connections times the bytes of each, and the log by one line
for a kind of mistake.
"""

import asyncio
import logging
from typing import Any

import aiohttp
from aiohttp import web

from p2p_tally.node.links import handshake
from p2p_tally.protocol.frames import HELLO_BYTES

# That may be open at once, from one address and in all, besides the neighbours' links. Where one more comes the oldest
# is cut: a stranger that holds a place cannot keep others out for long.
MOST_FROM_ONE_ADDRESS = 64
MOST = 256

# Bytes that are read before the handshake is done: the request of a WebSocket, and the longest hello.
REQUEST_BYTES = 16 * 1024
BUDGET = REQUEST_BYTES + HELLO_BYTES


class Stranger(asyncio.Protocol):
    """One new connection. It passes bytes on to aiohttp's handler, up to the budget, until its handshake is done."""

    def __init__(self, handler: web.RequestHandler, strangers: "Strangers") -> None:
        self._handler = handler
        self._strangers = strangers
        self._left: int | None = BUDGET  # None: it has shaken hands, and its messages have their own limits
        self.transport: asyncio.BaseTransport | None = None
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        name = transport.get_extra_info("peername")
        self.address = str(name[0]) if isinstance(name, tuple) else ""
        self._handler.connection_made(transport)
        self._strangers.add(self._handler, self)

    def data_received(self, data: bytes) -> None:
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:  # nothing of this is read, or answered
                self._strangers.cut(self._handler, "it sent too much before its handshake")
                return
        self._handler.data_received(data)

    def identified(self) -> None:
        self._left = None

    def abort(self) -> None:
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()

    def eof_received(self) -> bool | None:
        self._handler.eof_received()
        return None

    def connection_lost(self, exc: BaseException | None) -> None:
        self._strangers.forget(self._handler)
        self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()


class Strangers:
    """The connections of one node whose peer is not known yet."""

    def __init__(self) -> None:
        self._known: dict[web.RequestHandler, Stranger] = {}  # the oldest first

    def add(self, handler: web.RequestHandler, stranger: Stranger) -> None:
        """A new connection, which is cut unless it has shaken hands in time."""
        self._known[handler] = stranger
        asyncio.get_running_loop().call_later(handshake.HANDSHAKE_SECONDS, self.cut, handler, "no handshake in time")
        neighbours = [other for other, known in self._known.items() if known.address == stranger.address]
        if len(neighbours) > MOST_FROM_ONE_ADDRESS:
            self.cut(neighbours[0], "too many connections from its address")
        elif len(self._known) > MOST:
            self.cut(next(iter(self._known)), "too many connections")

    def identified(self, handler: web.RequestHandler) -> None:
        """The handshake is done: this connection belongs to a neighbour."""
        stranger = self._known.pop(handler, None)
        if stranger is not None:
            stranger.identified()

    def forget(self, handler: web.RequestHandler) -> None:
        """It has gone by itself."""
        self._known.pop(handler, None)

    def cut(self, handler: web.RequestHandler, why: str) -> None:
        """End a connection that is still a stranger's."""
        stranger = self._known.pop(handler, None)
        if stranger is not None:
            log.warning("a connection cut: %s", why, extra={"event": "stranger", "reason": why})
            stranger.abort()


class OneLine(logging.Filter):
    """aiohttp logs a traceback where a stranger sends what is no HTTP, or goes away in the middle. That is no fault of
    ours: one line says it. Our own faults keep their traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, aiohttp.http_exceptions.HttpProcessingError | ConnectionError | asyncio.CancelledError):
            as_strangers(record, f"a connection that is no WebSocket: {type(error).__name__}")
        return True


def as_strangers(record: logging.LogRecord, message: str) -> None:
    values: dict[str, Any] = {"msg": message, "args": (), "exc_info": None, "exc_text": None}
    values |= {"levelno": logging.WARNING, "levelname": "warning", "event": "stranger", "reason": "http"}
    record.__dict__.update(values)


log = logging.getLogger(__name__)
http_log = logging.getLogger("p2p_tally.node.links.http")
http_log.addFilter(OneLine())
