"""Connections before the end of their handshake: limited in number, and each limited in time and in bytes.

So the memory that strangers can use is fixed: the number of connections times the bytes of each. Only a whole request
for a link is passed on to aiohttp; whatever else comes is answered here, which costs a small part of that.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from typing import cast

from aiohttp import web

from p2p_tally.node.links import handshake
from p2p_tally.node.links.frame_socket import FrameSocket
from p2p_tally.protocol.frames import HELLO_BYTES

log = logging.getLogger(__name__)

# How many such connections may be open at once, from one address and in all. One more ends the oldest, so that a
# stranger cannot keep others out for long.
MOST_FROM_ONE_ADDRESS = 64
MOST = 256

# Bytes that are read before the handshake is done: the request for a WebSocket, and the longest hello.
REQUEST_BYTES = 16 * 1024
BUDGET = REQUEST_BYTES + HELLO_BYTES

# The most bytes that are read at once before the handshake is done. asyncio would take up to 256 KiB from each.
READ_BYTES = 16 * 1024

PATH = "/p2p-tally"
_NOT_FOUND = (
    b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 15\r\n"
    b"Connection: close\r\n\r\np2p-tally node\n"
)


class Stranger(asyncio.BufferedProtocol):
    """One new connection. When its request is complete it gets a handler of aiohttp, which answers it. If it gets a
    WebSocket, that reads on up to the budget, and takes the connection over when its handshake is done. The limits hold
    from the moment that it is accepted: with TLS it hears of its transport only when TLS is up."""

    def __init__(
        self,
        make_handler: Callable[[], web.RequestHandler],
        strangers: "Strangers",
        first_lines: Sequence[bytes],
        connection: socket.socket,
    ) -> None:
        """`first_lines`: of the requests that are passed on."""
        self._make_handler = make_handler
        self._strangers = strangers
        self._first_lines = first_lines
        self._socket = connection
        self._handler: web.RequestHandler | None = None
        self._link: FrameSocket | None = None
        self._request = bytearray()  # what has come of the request, and behind it
        self._may_upgrade = False  # then aiohttp gets the request alone
        self._left = BUDGET
        self._transport: asyncio.Transport | None = None
        self.address = ""
        with contextlib.suppress(OSError):  # it has ended already
            name = connection.getpeername()
            self.address = str(name[0]) if isinstance(name, tuple) else ""
        # Kept, to be cancelled: a timer holds on to its connection long after that has ended.
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(
            handshake.HANDSHAKE_SECONDS, strangers.cut, self, "no handshake in time"
        )
        strangers.add(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of asyncio's
        if not self._strangers.knows(self):  # it was cut in the meantime
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._strangers.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._strangers.buffer[:nbytes])
        self._left -= nbytes
        if self._left < 0:  # this is neither read nor answered
            self._strangers.cut(self, "it sent too much before its handshake")
        elif self._link is not None:
            self._link.feed(data)
        elif self._handler is None:
            self._read_request(data)
        elif self._may_upgrade:
            self._request += data
        else:
            self._handler.data_received(data)

    def _read_request(self, data: bytes) -> None:
        before = len(self._request)
        self._request += data
        if not any(line.startswith(self._request[: len(line)]) for line in self._first_lines):
            self._answer_not_found()
        elif (end := self._request.find(b"\r\n\r\n", max(0, before - 3))) >= 0:  # it may have come in two parts
            self._may_upgrade = self._request.startswith(b"GET ")
            request = bytes(self._request[: end + 4] if self._may_upgrade else self._request)
            del self._request[: len(request)]
            self._handler = self._make_handler()
            self._strangers.handled_by(self._handler, self)
            assert self._transport is not None
            self._handler.connection_made(self._transport)
            self._handler.data_received(request)
        elif len(self._request) > REQUEST_BYTES:
            self._strangers.cut(self, "it sent too much before its handshake")

    def _answer_not_found(self) -> None:
        self._strangers.forget(self)
        if self._transport is not None:
            self._transport.write(_NOT_FOUND)
            self._transport.close()  # nothing more is read

    def upgraded(self, link: FrameSocket) -> None:
        """From now on what comes is for this WebSocket, within the limits of strangers."""
        self._link = link
        assert self._transport is not None
        link.connection_made(self._transport)
        early, self._request = self._request, bytearray()
        link.feed(early)

    def identified(self) -> None:
        """The handshake is done: the limits of strangers end, and messages have their own."""
        self._stop_timer()
        if self._link is not None:
            self._link.identified()
        if self._transport is not None and self._reads is not None:
            self._transport.set_protocol(self._reads)

    @property
    def _reads(self) -> FrameSocket | web.RequestHandler | None:
        return self._link or self._handler

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        else:
            with contextlib.suppress(OSError):  # it has ended already
                self._socket.shutdown(socket.SHUT_RDWR)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def eof_received(self) -> bool | None:
        if self._reads is not None:
            self._reads.eof_received()
        return None

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        self._strangers.forget(self)
        if self._handler is not None:
            self._strangers.unhandled(self._handler)
        if self._reads is not None:
            self._reads.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._reads is not None:
            self._reads.pause_writing()

    def resume_writing(self) -> None:
        if self._reads is not None:
            self._reads.resume_writing()


class Strangers:
    """The connections of one node whose peer is not known yet."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(READ_BYTES))  # one for all: what is read is copied out before the next read
        self._open: dict[Stranger, None] = {}  # the oldest first
        self._by_handler: dict[web.RequestHandler, Stranger] = {}

    def add(self, stranger: Stranger) -> None:
        """A new connection. If there are too many now, the oldest is ended."""
        self._open[stranger] = None
        from_its_address = [other for other in self._open if other.address == stranger.address]
        if len(from_its_address) > MOST_FROM_ONE_ADDRESS:
            self.cut(from_its_address[0], "too many connections from its address")
        elif len(self._open) > MOST:
            self.cut(next(iter(self._open)), "too many connections")

    def handled_by(self, handler: web.RequestHandler, stranger: Stranger) -> None:
        """Its request is complete, and this handler answers it."""
        self._by_handler[handler] = stranger

    def upgraded(self, handler: web.RequestHandler, link: FrameSocket) -> None:
        """Its request was answered with a WebSocket."""
        stranger = self._by_handler.get(handler)
        if stranger is None:
            raise ConnectionResetError("the connection has ended")
        stranger.upgraded(link)

    def identified(self, handler: web.RequestHandler) -> None:
        """The handshake is done: this connection belongs to a neighbour."""
        stranger = self._by_handler.pop(handler, None)
        if stranger is not None:
            self.forget(stranger)
            stranger.identified()

    def unhandled(self, handler: web.RequestHandler) -> None:
        self._by_handler.pop(handler, None)

    def knows(self, stranger: Stranger) -> bool:
        return stranger in self._open

    def forget(self, stranger: Stranger) -> None:
        """The connection has ended, or is about to."""
        self._open.pop(stranger, None)

    def cut(self, stranger: Stranger, why: str) -> None:
        """End a connection, unless its handshake is done."""
        if stranger in self._open:
            self.forget(stranger)
            log.warning("a connection cut: %s", why, extra={"event": "stranger", "reason": why})
            stranger.abort()
