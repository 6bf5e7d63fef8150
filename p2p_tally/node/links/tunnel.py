"""A connection that a third node carries: TLS between its two ends, and messages of known length within.

It offers what a link needs of a WebSocket: messages in order, a close with a code. The carrier sees TLS records. What
is under way is limited: a sender waits until the other end has read.
"""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Callable
from typing import Any

from aiohttp import WSMessage, WSMsgType

from p2p_tally.protocol.carried import CARRIED_BYTES, WINDOW, Step

_HEADER = struct.Struct("!IB")  # length, type
_BINARY, _CLOSE = 0, 1
_CODE = struct.Struct("!H")
_READ = 64 * 1024


class Tunnel:
    """One end."""

    def __init__(
        self, context: ssl.SSLContext, *, server: bool, limit: int, send: Callable[[Step, int, bytes], bool]
    ) -> None:
        """`limit`: messages of this length and longer are refused. `send`: passes a frame to the carrier; False: there
        is no link to it any more."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)
        self._limit = limit
        self._send = send
        self._plain = bytearray()
        self._credit = WINDOW
        self._came = 0  # bytes that have come
        self._told = 0  # how many of them the other end knows to have been read
        self._ended = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._writing = asyncio.Lock()

    # --- for the room that passes frames on

    def feed(self, data: bytes) -> bool:
        """Bytes have come. False: more than this end has allowed."""
        self._came += len(data)
        if self._came - self._told > WINDOW:
            return False
        self._incoming.write(data)
        self._news.set()
        return True

    def was_taken(self, count: int) -> None:
        """The other end has read so many bytes more."""
        self._credit = min(WINDOW, self._credit + count)
        self._room.set()

    def end(self) -> None:
        """The carrier, or the other end, carries nothing more."""
        self._ended = True
        self._news.set()
        self._room.set()

    async def shake_hands(self) -> None:
        """The TLS handshake; an ssl.SSLError if it fails."""
        while True:
            self._news.clear()
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if self._ended:
                    raise ConnectionResetError("the carried connection has ended") from None
                await self._news.wait()
            except ssl.SSLError:
                with contextlib.suppress(ConnectionError):
                    await self._flush()  # the alert that says why
                raise
            else:
                await self._flush()
                self._tell_taken()
                return

    # --- for a link

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tls if name == "ssl_object" else default

    def write_now(self, data: bytes) -> bool:  # noqa: ARG002
        """Never: it may have to wait for the other end."""
        return False

    async def send_bytes(self, data: bytes) -> None:
        await self._write(_BINARY, data)

    async def receive(self) -> WSMessage:
        while True:
            self._news.clear()
            try:
                message = self._next()
            except ssl.SSLError as error:
                return WSMessage(WSMsgType.ERROR, f"TLS: {error.reason}", None)
            if message is not None:
                return message
            if self._ended:
                return WSMessage(WSMsgType.CLOSED, None, None)
            await self._news.wait()

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        if not self._ended:
            with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._write(_CLOSE, _CODE.pack(code) + message)
            self.abort()
        return True

    def abort(self) -> None:
        if not self._ended:
            self._send(Step.END, 0, b"")
            self.end()

    # --- inside

    async def _write(self, kind: int, data: bytes) -> None:
        if self._ended:
            raise ConnectionResetError("the carried connection has ended")
        self._tls.write(_HEADER.pack(len(data), kind) + data)
        await self._flush()

    async def _flush(self) -> None:
        async with self._writing:
            while self._outgoing.pending:
                while self._credit <= 0 and not self._ended:
                    self._room.clear()
                    await self._room.wait()
                if self._ended:
                    raise ConnectionResetError("the carried connection has ended")
                piece = self._outgoing.read(min(CARRIED_BYTES, self._credit))
                self._credit -= len(piece)
                if not self._send(Step.DATA, 0, piece):
                    self.end()

    def _next(self) -> WSMessage | None:
        """The next whole message, if it has come."""
        while True:
            if len(self._plain) >= _HEADER.size:
                length, kind = _HEADER.unpack_from(self._plain)
                if length >= self._limit:
                    return WSMessage(WSMsgType.ERROR, f"a message of {length} bytes", None)
                if len(self._plain) >= _HEADER.size + length:
                    data = bytes(self._plain[_HEADER.size : _HEADER.size + length])
                    del self._plain[: _HEADER.size + length]
                    return _message(kind, data)
            try:
                piece = self._tls.read(_READ)
            except ssl.SSLWantReadError:
                return None
            self._tell_taken()
            if not piece:  # the other end has ended TLS
                self.end()
                return None
            self._plain += piece

    def _tell_taken(self) -> None:
        taken = self._came - self._incoming.pending - self._told
        if taken >= WINDOW // 4:
            self._told += taken
            self._send(Step.TAKEN, taken, b"")


def _message(kind: int, data: bytes) -> WSMessage:
    if kind == _BINARY:
        return WSMessage(WSMsgType.BINARY, data, None)
    if kind == _CLOSE and len(data) >= _CODE.size:
        (code,) = _CODE.unpack_from(data)
        return WSMessage(WSMsgType.CLOSE, code, data[_CODE.size :].decode(errors="replace"))
    return WSMessage(WSMsgType.ERROR, f"a message of type {kind}", None)
