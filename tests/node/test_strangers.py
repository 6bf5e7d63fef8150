"""What somebody who is no neighbour can cost a node: a few bytes, a short time, one line in the log."""

import asyncio
import gc
import logging
import math
import socket
import struct
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgpack
import pytest
from aiohttp import web
from conftest import make_daemons, run_all, small
from steady_time import SteadyLoop
from test_faults import daemon_listens, federation_with_fake, one_that_listens

from p2p_tally.errors import FrameError
from p2p_tally.ids import NodeName
from p2p_tally.node.links import handshake, strangers
from p2p_tally.node.links.strangers import BUDGET, READ_BYTES, Stranger, Strangers
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.node.service.logs import RationFilter
from p2p_tally.protocol import frames, scores
from p2p_tally.protocol.messages import Here, Welcome

REQUEST = b"GET /p2p-tally HTTP/1.1\r\nHost: x\r\n"


async def connect(daemon: Daemon) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = daemon.transport.listen
    return await asyncio.open_connection(address.host, address.port)


async def is_cut(reader: asyncio.StreamReader) -> bool:
    """The other end is gone, with or without an answer."""
    async with asyncio.timeout(10):
        try:
            await reader.read()
        except ConnectionError:
            return True
    return reader.at_eof()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for a handshake is no help here."""
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 600.0)


async def flood(writer: asyncio.StreamWriter, piece: bytes, most: int) -> int:
    """Write until the other end is gone; how many bytes that took, at most so many."""
    sent = 0
    try:
        while sent < most:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
    except ConnectionError:
        pass
    return sent


@pytest.mark.parametrize(
    "piece", [b"X-A: " + b"a" * 200 + b"\r\n", b"a" * 4096, b"\x00" * 1024], ids=["headers", "one line", "garbage"]
)
async def test_endless_headers_are_cut_at_the_budget(
    piece: bytes, tmp_path: Path, patient: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_that_listens(tmp_path) as (_, daemon):
        reader, writer = await connect(daemon)
        writer.write(REQUEST)
        # What is under way in the buffers of two sockets comes on top of the budget.
        async with asyncio.timeout(20):
            assert await flood(writer, piece, most=1 << 26) < BUDGET + (1 << 23)
        assert await is_cut(reader)
        writer.close()
        assert not any(record.exc_info for record in caplog.records)


async def test_connections_that_are_aborted_leave_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Gone without a goodbye, at once, after the request, and in the middle of the handshake."""
    upgrade = REQUEST + (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    async with one_that_listens(tmp_path) as (_, daemon):
        with caplog.at_level(logging.WARNING):
            for said in (b"", REQUEST, upgrade, b"\x16\x03\x01\x02\x00\x01") * 15:
                _, writer = await connect(daemon)
                reset = struct.pack("ii", 1, 0)  # close sends a reset
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                writer.write(said)
                await writer.drain()
                writer.transport.abort()
            await daemon_listens(daemon)  # all of these have been seen to
        assert not any(record.exc_info for record in caplog.records)


async def test_one_address_pushes_out_only_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "MOST_FROM_ONE_ADDRESS", 3)
    async with one_that_listens(tmp_path) as (_, daemon):
        address = daemon.transport.listen
        other, _ = await asyncio.open_connection(address.host, address.port, local_addr=("127.0.0.2", 0))
        many = [await connect(daemon) for _ in range(6)]
        assert [await is_cut(reader) for reader, _ in many[:3]] == [True] * 3
        alive = [reader for reader, _ in many[3:]] + [other]
        done, _ = await asyncio.wait([asyncio.create_task(reader.read(1)) for reader in alive], timeout=0.2)
        assert not done


async def test_many_addresses_together_push_out_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit from one address says nothing about how many there are in all."""
    monkeypatch.setattr(strangers, "MOST", 3)
    async with one_that_listens(tmp_path) as (_, daemon):
        address = daemon.transport.listen
        many = [
            await asyncio.open_connection(address.host, address.port, local_addr=(f"127.0.0.{number}", 0))
            for number in range(2, 8)
        ]
        assert [await is_cut(reader) for reader, _ in many[:3]] == [True] * 3
        done, _ = await asyncio.wait([asyncio.create_task(reader.read(1)) for reader, _ in many[3:]], timeout=0.2)
        assert not done
    assert any(getattr(record, "reason", "") == "too many connections" for record in caplog.records)


async def test_nothing_is_kept_of_connections_that_have_ended(tmp_path: Path, patient: None) -> None:
    """The timer of each one would keep it for as long as a handshake may take."""
    async with one_that_listens(tmp_path) as (_, daemon):
        for _ in range(40):
            _, writer = await connect(daemon)
            writer.close()
            await writer.wait_closed()
        await daemon_listens(daemon)  # the daemon has seen all of them end
        gc.collect()
        assert sum(type(found) is web.RequestHandler for found in gc.get_objects()) < 10


async def test_who_is_refused_and_does_not_answer_holds_no_buffers(tmp_path: Path, patient: None) -> None:
    """The refusal held the frames that raised it, and with them 100 kB of what reads a hello."""
    async with one_that_listens(tmp_path) as (_, daemon), aiohttp.ClientSession() as session:
        links = []
        for _ in range(5):
            link = await session.ws_connect(f"http://{daemon.transport.listen}/p2p-tally", autoclose=False)
            await link.send_bytes(b"nope")
            while (await link.receive()).type is not aiohttp.WSMsgType.CLOSE:
                pass
            links.append(link)  # open, without a word
        assert daemon.transport.refusals == {"garbage": 5}
        assert not any(type(found) is msgpack.Unpacker for found in gc.get_objects())
        assert not any(type(found) is FrameError and found.__traceback__ for found in gc.get_objects())
        for link in links:
            await link.close()


async def test_strangers_are_read_in_small_pieces_through_one_buffer() -> None:
    """Each took up to 256 KiB at once."""
    them, handlers = Strangers(), lambda: pytest.fail("no request came")
    with socket.socket() as one, socket.socket() as other:
        first, second = (Stranger(handlers, them, [], end).get_buffer(1 << 18) for end in (one, other))
        assert len(first) == READ_BYTES and first is second


async def test_a_page_in_a_browser_is_refused(tmp_path: Path) -> None:
    async with one_that_listens(tmp_path) as (_, daemon), aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"http://{daemon.transport.listen}/p2p-tally", origin="https://example.org")
        assert refused.value.status == 403
        assert daemon.transport.refusals == {"origin": 1}


async def test_the_admin_address_answers_to_its_own_name_only(tmp_path: Path) -> None:
    own = ["127.0.0.1", "127.0.0.1:7101", "localhost:7101", "[::1]:7101"]
    foreign = ["example.org", "example.org:7101", "127.0.0.1.example.org:7101", "192.0.2.1"]
    daemons = make_daemons(small(nodes=2), tmp_path, admin="127.0.0.1:0")
    alone = daemons[1]
    assert alone.admin is not None
    await alone.admin.start()
    url = f"http://{alone.admin.address}/healthz"
    for host in (*own, *foreign):
        async with aiohttp.ClientSession() as session, session.get(url, headers={"Host": host}) as answer:
            assert answer.status == (200 if host in own else 403), host
    await alone.admin.close()
    for daemon in daemons:
        daemon.worker.shutdown()
        daemon.transport.inherited.close()


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_a_line_that_a_peer_can_cause_is_rationed(level: int) -> None:
    ration = RationFilter(clock=lambda: 0.0)

    def passes(**extra: str) -> bool:
        record = logging.LogRecord("p2p_tally", level, __file__, 1, "link up", (), None)
        record.__dict__.update(extra)
        return ration.filter(record)

    assert [passes(event="link-up", peer="node-1") for _ in range(3)] == [True, False, False]
    assert passes(event="link-up", peer="node-2")
    assert [passes(event="round") for _ in range(2)] == [True, level < logging.WARNING]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\n",
        b"POST /p2p-tally HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n" + bytes(4096),
        b"GET /p2p-tally-not HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01",
    ],
    ids=["another page", "a body", "a longer path", "TLS"],
)
async def test_what_is_no_request_for_a_link_is_answered_at_once_and_not_read_on(
    request_: bytes, tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first line is enough. aiohttp read bodies up to the budget, which took milliseconds each."""
    async with one_that_listens(tmp_path) as (_, daemon):
        handlers: list[None] = []
        with monkeypatch.context() as patched:
            patched.setattr(daemon.transport._reception, "_server", lambda: handlers.append(None))
            reader, writer = await connect(daemon)
            writer.write(request_)
            assert await is_cut(reader)
            writer.close()
        assert not handlers  # aiohttp had no part in it


async def test_a_request_may_come_in_pieces(tmp_path: Path) -> None:
    async with one_that_listens(tmp_path) as (_, daemon):
        reader, writer = await connect(daemon)
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        for byte in REQUEST + upgrade + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
        writer.close()


# --- on the event loop of daemons


def masked(payload: bytes) -> bytes:
    """A frame of a WebSocket, as a client sends it."""
    length = bytes([128 + len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
    return b"\x82" + length + bytes(4) + payload


async def messages_right_behind_the_handshake(out: Path) -> None:
    """A peer may send as soon as it has been welcomed, and on a busy machine all of it is read at once."""
    async with federation_with_fake(out, nodes=2) as (fake, [daemon]):
        running = asyncio.create_task(daemon.run())
        await daemon_listens(daemon)
        reader, writer = await connect(daemon)
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        writer.write(REQUEST + upgrade + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        many = masked(frames.encode(Here(0))) * (4 * BUDGET // 8)
        writer.write(masked(frames.encode(fake.understudy.hello())) + masked(frames.encode(Welcome())) + many)
        await writer.drain()
        known = daemon.node.step.roster[NodeName("node-0")]
        async with asyncio.timeout(20):
            while known.messages < 4 * BUDGET // 8:
                assert not running.done()
                await asyncio.sleep(0)
        writer.close()
        daemon.stop()
        await running


def run_on(loop: str, work: Coroutine[Any, Any, None]) -> None:
    factory = SteadyLoop if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_whoever_is_cut_is_gone(loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On uvloop, where daemons run if there is one, no connection was ever ended: its kind was not recognised."""
    monkeypatch.setattr(strangers, "MOST_FROM_ONE_ADDRESS", 3)

    async def visit() -> None:
        async with one_that_listens(tmp_path) as (_, daemon):
            many = [await connect(daemon) for _ in range(5)]
            assert [await is_cut(reader) for reader, _ in many[:2]] == [True] * 2
            for said in (b"GET / HTTP/1.1\r\n\r\n", REQUEST + b"X: " + bytes(BUDGET)):
                reader, writer = await connect(daemon)
                writer.write(said)
                assert await is_cut(reader)
                writer.close()
            monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.0)
            reader, writer = await connect(daemon)
            assert await is_cut(reader)
            writer.close()
            for _, writer in many:
                writer.close()

    run_on(loop, visit())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_links_carry_what_is_longer_than_a_strangers_buffer(loop: str, tmp_path: Path) -> None:
    async def play() -> None:
        results = await run_all(make_daemons(small(nodes=3, rounds=8, merge_every=4), tmp_path, checkpoint_every=0))
        assert all(result["finished"] and result["missed"] == 0 for result in results)
        assert all(result["framed_bytes"] > 2 * READ_BYTES for result in results)

    run_on(loop, play())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_messages_right_behind_the_handshake_are_no_strangers(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "USELESS_AT_ONCE", math.inf)  # so many small messages are a flood otherwise
    run_on(loop, messages_right_behind_the_handshake(tmp_path))
