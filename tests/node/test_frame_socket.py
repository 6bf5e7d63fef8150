"""A WebSocket on a bare transport: what a link sees of it."""

import asyncio
from typing import Any

import pytest
from aiohttp import WSMsgType

from p2p_tally.node.links import frame_socket as module
from p2p_tally.node.links.frame_socket import HELD_FROM_STRANGERS, JOINED, FrameSocket
from p2p_tally.node.links.rfc6455 import Opcode, close_payload, header

LIMIT = 100_000


class FakeTransport:
    """Keeps what is written, and whether anybody reads."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.reading = True
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.written += map(bytes, parts)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def open_socket(*, masks: bool = False, **callbacks: Any) -> tuple[FrameSocket, FakeTransport]:
    transport, socket = FakeTransport(), FrameSocket(LIMIT, masks=masks, **callbacks)
    socket.connection_made(transport)  # type: ignore[arg-type]
    return socket, transport


def message(opcode: int, payload: bytes = b"") -> bytes:
    return header(opcode, len(payload), masked=False) + payload


@pytest.mark.parametrize("masks", [False, True])
async def test_a_message_is_written_with_its_header(masks: bool) -> None:
    socket, transport = open_socket(masks=masks)
    for payload in (b"short", bytes(JOINED + 1)):
        transport.written.clear()
        assert socket.write_now(payload)
        assert b"".join(transport.written) == header(Opcode.BINARY, len(payload), masked=masks) + payload
    assert len(transport.written) == 2  # a long one is not copied


async def test_a_transport_without_room_is_awaited() -> None:
    socket, transport = open_socket()
    socket.pause_writing()
    assert not socket.write_now(b"one")
    sending = asyncio.create_task(socket.send_bytes(b"one"))
    await asyncio.sleep(0)
    assert transport.written and not sending.done()
    socket.resume_writing()
    await sending
    assert socket.write_now(b"two")


async def test_who_waits_for_room_hears_that_the_connection_has_ended() -> None:
    lost: list[BaseException | None] = []
    socket, _ = open_socket(lost=lost.append)
    socket.pause_writing()
    sending = asyncio.create_task(socket.send_bytes(b"one"))
    await asyncio.sleep(0)
    socket.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await sending
    with pytest.raises(ConnectionResetError):
        await socket.send_bytes(b"two")
    assert not socket.write_now(b"three") and lost == [None]
    assert (await socket.receive()).type is WSMsgType.CLOSED


async def test_what_is_not_read_stops_the_transport() -> None:
    """Of a stranger little is kept, of a peer two of the longest messages. Each is counted, even if it is empty."""
    for known, most in ((False, HELD_FROM_STRANGERS), (True, 2 * LIMIT)):
        for payload in (b"", bytes(1000)):
            socket, transport = open_socket()
            if known:
                socket.identified()
            sent = 0
            while transport.reading:
                socket.feed(message(Opcode.BINARY, payload))
                sent += 1
            assert most < sent * (len(payload) + module.EACH) <= most + len(payload) + module.EACH
            for _ in range(sent):
                assert (await socket.receive()).data == payload
            assert transport.reading


async def test_pings_are_answered_and_pongs_ignored() -> None:
    socket, transport = open_socket()
    socket.feed(message(Opcode.PING, b"there?") + message(Opcode.PONG) + message(Opcode.BINARY, b"x"))
    assert (await socket.receive()).data == b"x"
    assert transport.written == [message(Opcode.PONG, b"there?")]


async def test_a_text_is_told_apart() -> None:
    socket, _ = open_socket()
    socket.feed(message(Opcode.TEXT, b"hello"))
    assert (await socket.receive())[:2] == (WSMsgType.TEXT, "hello")


async def test_messages_before_a_violation_count() -> None:
    socket, transport = open_socket()
    socket.feed(message(Opcode.BINARY, b"x") + message(3) + message(Opcode.BINARY, b"y"))
    assert (await socket.receive()).data == b"x"
    assert (await socket.receive()).type is WSMsgType.ERROR
    assert transport.closed and transport.written == [message(Opcode.CLOSE, close_payload(1002, b""))]
    assert (await socket.receive()).type is WSMsgType.CLOSED


async def test_the_other_side_closes() -> None:
    released: list[None] = []
    socket, transport = open_socket(release=lambda: released.append(None))
    socket.feed(message(Opcode.CLOSE, close_payload(4002, b"idle")))
    assert await socket.receive() == (WSMsgType.CLOSE, 4002, "idle")
    assert await socket.close() and released
    assert transport.closed and transport.written == [message(Opcode.CLOSE, close_payload(1000, b""))]
    assert not await socket.close()


async def test_this_side_closes_and_waits_for_the_other() -> None:
    socket, transport = open_socket()
    receiving = asyncio.create_task(socket.receive())
    await asyncio.sleep(0)
    closing = asyncio.create_task(socket.close(code=4001, message=b"no"))
    assert (await receiving).type is WSMsgType.CLOSED  # who reads is not left waiting
    socket.feed(message(Opcode.BINARY, b"late"))
    await asyncio.sleep(0)
    assert not transport.closed and not closing.done()
    socket.feed(message(Opcode.CLOSE, close_payload(1000, b"")))
    assert await closing and transport.closed
    assert transport.written == [message(Opcode.CLOSE, close_payload(4001, b"no"))]


async def test_who_does_not_answer_a_close_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.01)
    socket, transport = open_socket()
    assert await socket.close() and transport.closed
