"""Links that are TLS by keys: who has one, who has none, and what is counted of those who have none."""

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from conftest import make_daemons, run_all, small
from secure import LOOPS, homes, make_secure_daemons, run_on

from p2p_tally.ids import NodeName
from p2p_tally.node.links import handshake, strangers
from p2p_tally.node.links.introduction import introduce
from p2p_tally.node.links.pinned import PinnedKeys
from p2p_tally.node.links.strangers import BUDGET
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol import frames
from p2p_tally.protocol.messages import Welcome
from p2p_tally.runner.simulation.simulate import simulate
from p2p_tally.trust.certificates import asking, dialling
from p2p_tally.trust.identity import Identity, make_identity

FAKE = NodeName("node-0")


@LOOPS
def test_same_bits_as_over_plain_links(loop: str, tmp_path: Path) -> None:
    federation = small(nodes=3, rounds=8, merge_every=4)
    simulated = simulate(federation)

    async def play() -> None:
        daemons = make_secure_daemons(federation, tmp_path, checkpoint_every=0)
        results = await run_all(daemons)
        assert [result["parameters_sha256"] for result in results] == simulated.parameters_sha256
        assert all(result["finished"] and result["missed"] == 0 for result in results)
        assert sum(result["payload_bytes"] for result in results) / 3 == simulated.lines[-1].payload_bytes
        assert not any(daemon.transport.refusals for daemon in daemons)

    run_on(loop, play())


# --- strangers


class Visitor:
    """Somebody at the port of a daemon that is node-1. It holds node-0's key, unless a test takes another."""

    def __init__(self, session: aiohttp.ClientSession, daemon: Daemon, understudy: Daemon, key: Identity) -> None:
        self.session = session
        self.daemon = daemon
        self.understudy = understudy
        self.key = key
        self.theirs = homes([daemon.name], key.file.parents[1])[daemon.name].credential

    @property
    def address(self) -> tuple[str, int]:
        listen = self.daemon.transport.listen
        assert listen is not None
        return listen.host, listen.port

    async def is_introduced(self) -> None:
        assert self.daemon.transport.listen is not None
        pinned = PinnedKeys(self.key, {self.daemon.name: self.theirs.fingerprint})
        await introduce(pinned, self.daemon.name, self.daemon.transport.listen)

    async def dial(self, context: ssl.SSLContext) -> aiohttp.ClientWebSocketResponse:
        url = f"https://{self.daemon.transport.listen}{strangers.PATH}"
        return await self.session.ws_connect(url, ssl=context)

    async def say(self, text: bytes, context: ssl.SSLContext | None = None) -> bytes:
        """What comes back until the other end is gone."""
        reader, writer = await asyncio.open_connection(*self.address, ssl=context)
        try:
            writer.write(text)
            async with asyncio.timeout(10):
                return await reader.read()
        except (ConnectionError, ssl.SSLError):
            return b""
        finally:
            writer.transport.abort()


@asynccontextmanager
async def visited(out: Path) -> AsyncIterator[Visitor]:
    # So many rounds that it does not come to its end while it is visited, whoever is cut off.
    federation = small(nodes=2, rounds=1_000_000, warmup=0, merge_every=0, eval_every=1_000_000)
    understudy, daemon = make_secure_daemons(federation, out, barrier_timeout=1, checkpoint_every=0)
    assert understudy.transport.inherited is not None
    understudy.transport.inherited.close()
    running = asyncio.create_task(daemon.run())
    url = f"https://{daemon.transport.listen}/"
    async with aiohttp.ClientSession() as session:
        async with asyncio.timeout(10), session.get(url, ssl=asking()) as answer:
            assert answer.status == 404  # its loop has taken the socket over
        yield Visitor(session, daemon, understudy, homes([FAKE], out / "homes")[FAKE])
    daemon.stop()
    await running
    understudy.worker.shutdown()


async def plain_text(visitor: Visitor) -> None:
    await visitor.say(b"GET /p2p-tally HTTP/1.1\r\nHost: x\r\n\r\n")


async def garbage(visitor: Visitor) -> None:
    await visitor.say(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + bytes(600))


async def no_certificate(visitor: Visitor) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await visitor.dial(dialling(None, visitor.theirs))
    assert caught.value.status == 403


async def foreign_key(visitor: Visitor) -> None:
    stranger = make_identity(visitor.key.file.parent / "stranger")
    with pytest.raises(aiohttp.ClientError):
        await visitor.dial(dialling(stranger.file, visitor.theirs))


async def not_introduced(visitor: Visitor) -> None:
    """The right key, which this daemon knows only by its fingerprint so far."""
    with pytest.raises(aiohttp.ClientError):
        await visitor.dial(dialling(visitor.key.file, visitor.theirs))


async def old_tls(visitor: Visitor) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await visitor.say(b"", context)


async def wrong_name(visitor: Visitor) -> None:
    await visitor.is_introduced()
    connection = await visitor.dial(dialling(visitor.key.file, visitor.theirs))
    await connection.send_bytes(frames.encode(replace(visitor.understudy.hello(), name="node-1")))
    while (message := await connection.receive()).type is aiohttp.WSMsgType.BINARY:
        pass
    assert message.data == handshake.REFUSED


async def unknown_introduction(visitor: Visitor) -> None:
    stranger = make_identity(visitor.key.file.parent / "stranger").credential.raw
    head = b"POST /introduce HTTP/1.1\r\nHost: x\r\nContent-Length: 96\r\n\r\n"
    assert b" 403 " in await visitor.say(head + stranger, asking())


async def forged_introduction(visitor: Visitor) -> None:
    """The right key with a proof that its owner did not make."""
    head = b"POST /introduce HTTP/1.1\r\nHost: x\r\nContent-Length: 96\r\n\r\n"
    assert b" 403 " in await visitor.say(head + visitor.key.credential.key + bytes(64), asking())


async def long_introduction(visitor: Visitor) -> None:
    head = b"POST /introduce HTTP/1.1\r\nHost: x\r\nContent-Length: 97\r\n\r\n"
    assert b" 413 " in await visitor.say(head, asking())


async def gone_within_tls(visitor: Visitor) -> None:
    _, writer = await asyncio.open_connection(*visitor.address)
    writer.write(b"\x16\x03\x01")
    await writer.drain()
    writer.transport.abort()


async def replayed(visitor: Visitor) -> None:
    """What a peer sent when it made a link, once more."""
    await visitor.is_introduced()
    heard = bytearray()

    async def overhear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, out = await asyncio.open_connection(*visitor.address)

        async def back() -> None:
            while data := await inner.read(1 << 16):
                writer.write(data)

        backwards = asyncio.create_task(back())
        while data := await reader.read(1 << 16):
            heard.extend(data)
            out.write(data)
        out.close()
        await backwards

    server = await asyncio.start_server(overhear, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = await visitor.session.ws_connect(
        f"https://127.0.0.1:{port}{strangers.PATH}", ssl=dialling(visitor.key.file, visitor.theirs)
    )
    await connection.close()
    server.close()
    before = dict(visitor.daemon.transport.refusals)
    await visitor.say(bytes(heard))
    assert before == {"no-hello": 1}


VISITS = {
    plain_text: {"plain-text": 1},
    garbage: {"tls": 1},
    no_certificate: {"no-certificate": 1},
    foreign_key: {"key": 2},  # aiohttp tries a GET twice
    not_introduced: {"key": 2},
    old_tls: {"tls-version": 1},
    wrong_name: {"owner": 1},
    unknown_introduction: {"introduction": 1},
    forged_introduction: {"introduction": 1},
    long_introduction: {"oversized": 1},
    gone_within_tls: {"tls-unfinished": 1},
    replayed: {"no-hello": 1, "tls": 1},
}


@LOOPS
@pytest.mark.parametrize("visit", VISITS, ids=lambda visit: visit.__name__)
def test_who_is_not_admitted_is_counted(
    loop: str, visit: Callable[[Visitor], Awaitable[None]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with visited(tmp_path) as visitor:
            await visit(visitor)
            transport = visitor.daemon.transport
            async with asyncio.timeout(10):
                while transport.refusals != VISITS[visit]:
                    await asyncio.sleep(0.01)
            assert not transport.links
            assert not any(record.exc_info for record in caplog.records)

    run_on(loop, play())


@LOOPS
def test_the_limits_of_strangers_hold_with_tls(loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "MOST_FROM_ONE_ADDRESS", 3)

    async def gone(reader: asyncio.StreamReader) -> bool:
        try:
            async with asyncio.timeout(10):
                await reader.read()
        except (ConnectionError, ssl.SSLError):
            pass
        return True

    async def play() -> None:
        async with visited(tmp_path) as visitor:
            # Within TLS, and after it: one more ends the oldest.
            many = [
                await asyncio.open_connection(*visitor.address, ssl=c)
                for c in (None, None, asking(), asking(), asking())
            ]
            assert [await gone(reader) for reader, _ in many[:2]] == [True] * 2
            endless = b"GET /p2p-tally HTTP/1.1\r\nX: " + bytes(BUDGET)
            for said in (b"GET / HTTP/1.1\r\n\r\n", endless):
                await visitor.say(said, asking())
            for _, writer in many:
                writer.transport.abort()
            monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.05)
            for context in (None, asking()):
                reader, writer = await asyncio.open_connection(*visitor.address, ssl=context)
                assert await gone(reader)
                writer.transport.abort()
            monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 5.0)
            gc.collect()
            assert sum(type(found) is web.RequestHandler for found in gc.get_objects()) < 5

    run_on(loop, play())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_a_second_request_may_be_for_anything(
    secure: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the first line of the first request is looked at before aiohttp has it."""
    first = b"GET /p2p-tally HTTP/1.1\r\nHost: x\r\n\r\n"
    second = b"POST /elsewhere HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    federation = small(nodes=2, rounds=4, warmup=0, merge_every=0)
    unused, daemon = (make_secure_daemons if secure else make_daemons)(federation, tmp_path, checkpoint_every=0)
    running = asyncio.create_task(daemon.run())
    assert daemon.listen is not None
    reader, writer = await asyncio.open_connection(
        daemon.listen.host, daemon.listen.port, ssl=asking() if secure else None
    )
    writer.write(first if not secure else b"POST /introduce HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
    writer.write(second)
    async with asyncio.timeout(10):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 403" if secure else b"HTTP/1.1 404")
    assert b" 500 " not in answer and not any(record.exc_info for record in caplog.records)
    writer.transport.abort()
    daemon.stop()
    await running
    unused.worker.shutdown()
    assert unused.transport.inherited is not None
    unused.transport.inherited.close()


# --- keys that go


class Listed(PinnedKeys):
    """Pinned keys that can be taken away, as from a list of members."""

    def take_away(self, peer: NodeName) -> None:
        gone = self._known.pop(peer)
        del self._owners[gone.key], self._names[gone.fingerprint]
        self._accepting = None
        self._dialling.pop(peer, None)


@LOOPS
def test_a_key_that_is_taken_away_opens_nothing_from_then_on(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2p_tally.node.service.whereabouts.PinnedKeys", Listed)

    async def play() -> None:
        async with visited(tmp_path) as visitor:
            daemon = visitor.daemon
            await visitor.is_introduced()
            context = dialling(visitor.key.file, visitor.theirs)
            link = await visitor.dial(context)
            await link.send_bytes(frames.encode(visitor.understudy.hello()))
            await link.receive_bytes()
            await link.send_bytes(frames.encode(Welcome()))
            assert await link.receive_bytes() == frames.encode(Welcome())
            async with asyncio.timeout(10):
                while FAKE not in daemon.transport.links:
                    await asyncio.sleep(0.01)
            security = daemon.transport._security
            assert isinstance(security, Listed)
            security.take_away(FAKE)
            daemon.transport.security_changed()
            async with asyncio.timeout(10):
                while (await link.receive()).type is aiohttp.WSMsgType.BINARY:
                    pass
                while FAKE in daemon.transport.links:
                    await asyncio.sleep(0.01)
            with pytest.raises(aiohttp.ClientError):
                await visitor.dial(context)
            async with asyncio.timeout(10):
                while "key" not in daemon.transport.refusals:
                    await asyncio.sleep(0.01)

    run_on(loop, play())


async def test_a_peer_that_shows_another_key_gets_no_link(tmp_path: Path) -> None:
    """Somebody has taken the address of node-1. Nothing is said to it, least of all in plain text."""
    federation = small(nodes=2, rounds=4, warmup=0, merge_every=0)
    first, second = make_secure_daemons(federation, tmp_path, checkpoint_every=0)
    assert second.transport.inherited is not None
    stranger = make_identity(tmp_path / "stranger")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(stranger.file)
    said: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            said.append(await reader.read())
        except ConnectionError:
            said.append(b"")
        writer.close()

    server = await asyncio.start_server(hear, sock=second.transport.inherited, ssl=context)
    running = asyncio.create_task(first.run())
    async with asyncio.timeout(10):
        while not said:
            await asyncio.sleep(0.01)
    assert set(said) == {b""}
    assert first.transport.refusals.keys() == {"key"}
    assert first.transport.peers[NodeName("node-1")].detail.endswith("which is not node-1's")
    first.stop()
    await running
    server.close()
    second.worker.shutdown()


async def test_a_plain_peer_gets_no_link_from_one_with_keys(tmp_path: Path) -> None:
    """Neither side falls back to what the other speaks."""
    federation = small(nodes=2, rounds=4, warmup=0, merge_every=0)
    first, other = make_secure_daemons(federation, tmp_path / "tls", checkpoint_every=0)
    unused, plain = make_daemons(federation, tmp_path / "plain", checkpoint_every=0)
    plain_listens = plain.listen
    assert plain_listens is not None
    first.transport.add_peer(NodeName("node-1"), plain_listens)
    running = [asyncio.create_task(daemon.run()) for daemon in (first, plain)]
    async with asyncio.timeout(10):
        while not first.transport.refusals:
            await asyncio.sleep(0.01)
    assert first.transport.refusals.keys() == {"plain-text"}
    assert not first.transport.links and not plain.transport.links
    for daemon in (first, plain):
        daemon.stop()
    await asyncio.gather(*running)
    for daemon in (other, unused):
        daemon.worker.shutdown()
        assert isinstance(daemon.transport.inherited, socket.socket)
        daemon.transport.inherited.close()
