"""A WebSocket after its upgrade, on the bare transport: either end of a link's own connection.

Messages are read straight from the transport into their buffers, and written to it without being joined or changed.
What waits to be read is bounded: the transport stops reading. Who sends waits until the transport has room.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from aiohttp import WSMessage, WSMsgType

from p2p_tally.node.links.rfc6455 import (
    FrameReader,
    Message,
    Opcode,
    Payload,
    Violation,
    close_payload,
    header,
    read_close,
)

# When this side closes: how long to wait for the other to say so too.
CLOSE_SECONDS = 10.0
# What a message that waits takes besides its bytes.
EACH = 64
# Bytes of messages that may wait before a stranger's handshake is done; otherwise those of two longest messages.
HELD_FROM_STRANGERS = 16 * 1024
# A shorter message is joined with its header.
JOINED = 16 * 1024

_CLOSED = WSMessage(WSMsgType.CLOSED, None, None)


class FrameSocket(asyncio.BufferedProtocol):
    """One end of a connection. It has the methods of aiohttp's WebSockets that links use."""

    def __init__(
        self,
        limit: int,
        *,
        masks: bool,
        lost: Callable[[BaseException | None], None] = lambda _: None,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """`limit`: messages of this length and longer are refused. `masks`: this side has dialled. `release` is called
        when this side ends the connection, and `lost` when it has ended."""
        self._reader = FrameReader(limit)
        self._masks = masks
        self._on_lost = lost
        self._release = release
        self._transport: asyncio.Transport | None = None
        self._came: deque[Message] = deque()
        self._held = 0  # what they take
        self._limit = 2 * limit
        self._most = self._limit if masks else HELD_FROM_STRANGERS
        self._reading = True
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = False  # by this side
        self._lost = False
        self._over = asyncio.Event()  # the other side has closed, or cannot any more

    # --- for a link

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    def identified(self) -> None:
        """The stranger that has dialled is a peer."""
        self._most = self._limit

    def write_now(self, data: bytes) -> bool:
        """Send a message if the transport takes it without waiting. False: it has to wait, or the connection ends."""
        if self._closed or not self._writable.is_set() or not self._is_open():
            return False
        self._write(Opcode.BINARY, data)
        return True

    async def send_bytes(self, data: bytes) -> None:
        await self._send(Opcode.BINARY, data)

    async def receive(self) -> WSMessage:
        while not self._closed:
            if self._came:
                opcode, payload = self._came.popleft()
                self._held -= len(payload) + EACH
                if not self._reading and self._held <= self._most // 2:
                    self._read_on()
                message = await self._look_at(opcode, payload)
                if message is not None:
                    return message
            elif self._reader.violation is not None:
                await self.close(code=self._reader.violation.code)
                return WSMessage(WSMsgType.ERROR, self._reader.violation, None)
            elif self._lost:
                break
            else:
                self._news.clear()
                await self._news.wait()
        return _CLOSED

    async def _look_at(self, opcode: int, payload: Payload) -> WSMessage | None:
        """None: it is not for the link."""
        match opcode:
            case Opcode.BINARY:
                return WSMessage(WSMsgType.BINARY, payload, None)
            case Opcode.TEXT:
                return WSMessage(WSMsgType.TEXT, bytes(payload).decode(errors="replace"), None)
            case Opcode.PING:
                with contextlib.suppress(ConnectionError):
                    await self._send(Opcode.PONG, payload)
            case Opcode.CLOSE:
                try:
                    return WSMessage(WSMsgType.CLOSE, *read_close(payload))
                except Violation as error:
                    await self.close(code=error.code)
                    return WSMessage(WSMsgType.ERROR, error, None)
        return None

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        """Say so, and wait until the other side has done so too. False: it was closed already."""
        if self._closed:
            return False
        self._closed = True
        self._came.clear()
        self._news.set()
        try:
            if self._is_open():
                self._write(Opcode.CLOSE, close_payload(code, message))
                if not self._reading:
                    self._read_on()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await self._over.wait()
        finally:
            self._release()
            if self._transport is not None:
                self._transport.close()
        return True

    # --- inside

    def _is_open(self) -> bool:
        return self._transport is not None and not self._lost and not self._transport.is_closing()

    async def _send(self, opcode: Opcode, data: Payload) -> None:
        if self._closed or not self._is_open():
            raise ConnectionResetError("the connection has ended")
        self._write(opcode, data)
        if not self._writable.is_set():
            await self._writable.wait()
            if self._lost:
                raise ConnectionResetError("the connection has ended")

    def _write(self, opcode: Opcode, data: Payload) -> None:
        assert self._transport is not None
        start = header(opcode, len(data), masked=self._masks)
        if len(data) < JOINED:
            self._transport.write(start + data)
        else:
            self._transport.writelines((start, data))

    def _read_on(self) -> None:
        self._reading = True
        if self._is_open() and self._transport is not None:
            self._transport.resume_reading()

    def _stop_reading(self) -> None:
        if self._is_open() and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    # --- called by the transport, or by who reads before the handshake is done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of asyncio's

    def feed(self, data: bytes | bytearray) -> None:
        """These bytes have come, and were read elsewhere."""
        left = memoryview(data)
        while left:
            space = self._reader.space()
            count = min(len(space), len(left))
            space[:count] = left[:count]
            self.buffer_updated(count)
            left = left[count:]

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        found = self._reader.advance(nbytes)
        if self._reader.violation is not None:
            self._over.set()
            self._news.set()
        if not found:
            return
        for message in found:
            if message[0] == Opcode.CLOSE:
                self._over.set()
            if not self._closed and message[0] != Opcode.PONG:
                self._came.append(message)
                self._held += len(message[1]) + EACH
        self._news.set()
        if self._held > self._most and self._reading and not self._closed:
            self._stop_reading()

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: BaseException | None) -> None:
        self._lost = True
        self._over.set()
        self._news.set()
        self._writable.set()
        self._on_lost(exc)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
