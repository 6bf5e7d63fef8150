"""What each fault of a neighbour does, over real sockets: the round goes on, and the fault is counted by its reason."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgpack
import numpy as np
import pytest
from conftest import Killed, kill_at, make_daemons, small

from p2p_tally.ids import NodeName
from p2p_tally.node.links import handshake, strangers
from p2p_tally.node.service import startup
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol import frames
from p2p_tally.protocol.barrier import HELD_AHEAD
from p2p_tally.protocol.handshake import fields_digest
from p2p_tally.protocol.messages import Announce, Hello, Shard, Stage, Vote, Welcome
from p2p_tally.runner.simulation.simulate import simulate

FAKE = NodeName("node-0")


class FakePeer:
    """node-0, which dials the others as it should and then does what a test wants."""

    def __init__(self, session: aiohttp.ClientSession, understudy: Daemon) -> None:
        self._session = session
        self.understudy = understudy  # the daemon that would have been node-0: it knows the right hello

    async def dial(self, daemon: Daemon, hello: Hello | None = None) -> aiohttp.ClientWebSocketResponse:
        connection = await self._session.ws_connect(f"http://{daemon.transport.listen}{strangers.PATH}")
        await connection.send_bytes(frames.encode(hello or self.understudy.hello()))
        return connection

    async def join(self, daemon: Daemon) -> aiohttp.ClientWebSocketResponse:
        connection = await self.dial(daemon)
        frames.decode_hello(await connection.receive_bytes())
        await connection.send_bytes(frames.encode(Welcome()))
        assert await connection.receive_bytes() == frames.encode(Welcome())
        return connection


@asynccontextmanager
async def federation_with_fake(
    tmp_path: Path, barrier_timeout: float = 1, **options: Any
) -> AsyncIterator[tuple[FakePeer, list[Daemon]]]:
    """Daemons node-1, node-2, ... that wait for a fake node-0."""
    federation = small(**{"nodes": 3, "rounds": 6, "warmup": 0, "eval_every": 5, "merge_every": 0, **options})
    daemons = make_daemons(federation, tmp_path, barrier_timeout=barrier_timeout, checkpoint_every=0)
    async with aiohttp.ClientSession() as session:
        understudy = daemons[0]
        understudy.transport.inherited.close()  # nobody listens as node-0: it is the one that dials
        yield FakePeer(session, understudy), daemons[1:]
        understudy.worker.shutdown()


@asynccontextmanager
async def one_that_listens(tmp_path: Path) -> AsyncIterator[tuple[FakePeer, Daemon]]:
    """A daemon that answers, and waits for its peers; at the end it is stopped."""
    async with federation_with_fake(tmp_path) as (fake, daemons):
        daemon, absent = daemons
        running = asyncio.create_task(daemon.run())
        await daemon_listens(daemon)
        yield fake, daemon
        daemon.stop()
        await running
        absent.worker.shutdown()


async def closed_with(link: aiohttp.ClientWebSocketResponse) -> int:
    """The code of the close frame that ends a link, past whatever the daemon had to say before."""
    async with asyncio.timeout(10):
        while (message := await link.receive()).type is aiohttp.WSMsgType.BINARY:
            pass
    assert message.type is aiohttp.WSMsgType.CLOSE
    return int(message.data)


async def finish(daemons: list[Daemon]) -> list[dict[str, Any]]:
    async with asyncio.timeout(60):
        return await asyncio.gather(*(daemon.run() for daemon in daemons))


def ballot(daemon: Daemon, value: int = 1) -> bytes:
    return daemon.node.ballots.encode(np.full(daemon.node.ballots.count, value))


async def test_a_silent_neighbour_costs_one_deadline(tmp_path: Path) -> None:
    async with federation_with_fake(tmp_path) as (fake, daemons):
        running = asyncio.create_task(finish(daemons))
        links = [await fake.join(daemon) for daemon in daemons]
        results = await running
        assert all(result["finished"] for result in results)
        # Six rounds of votes, one deadline each of the two waited for it.
        assert [daemon.node.step.roster.missed[FAKE] for daemon in daemons] == [1, 1]
        # Nobody has cut its links: they end as those of any neighbour do, when the run does.
        assert [await closed_with(link) for link in links] == [aiohttp.WSCloseCode.OK] * 2


@pytest.mark.parametrize("merge_every", [0, 4])
async def test_on_a_ring_a_silent_node_costs_its_neighbours_one_deadline_and_the_others_none(
    merge_every: int, tmp_path: Path
) -> None:
    """Whoever waits says so: the neighbours' neighbours do not give up on them in the same moment."""
    federation = small(nodes=8, rounds=16, warmup=0, eval_every=16, merge_every=merge_every, topology="ring")
    daemons = make_daemons(federation, tmp_path, barrier_timeout=3, checkpoint_every=0)
    understudy, others = daemons[0], daemons[1:]
    understudy.transport.inherited.close()
    async with aiohttp.ClientSession() as session:
        fake = FakePeer(session, understudy)
        running = asyncio.create_task(finish(others))
        _links = [await fake.join(daemon) for daemon in others if FAKE in daemon.addresses]
        results = await running
    understudy.worker.shutdown()
    assert all(result["finished"] for result in results)
    missed = {daemon.name: dict(daemon.node.step.roster.missed) for daemon in others}
    neighbours = {"node-1", "node-7"}
    assert missed == {daemon.name: {FAKE: 1} if daemon.name in neighbours else {} for daemon in others}
    assert all(daemon.metrics.skipped_merges == 0 for daemon in others)


async def test_one_that_died_before_the_others_were_all_there_costs_a_deadline(tmp_path: Path) -> None:
    """node-1 has all its links, plays and dies, while its neighbours still wait for node-3."""
    daemons = make_daemons(small(nodes=4, topology="ring", warmup=0), tmp_path, barrier_timeout=2, checkpoint_every=0)
    kill_at(daemons[1], 1)
    waiting = [asyncio.create_task(daemons[rank].run()) for rank in (0, 2)]
    async with asyncio.timeout(30):
        with pytest.raises(Killed):
            await daemons[1].run()
        results = await asyncio.gather(*waiting, daemons[3].run())
    assert all(result["finished"] for result in results)


async def test_one_that_was_there_and_died_before_it_began_costs_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """node-0 has said hello to both and is gone, while node-1 and node-2 still wait for node-3."""
    monkeypatch.setattr(startup, "LAST_DELAY", 0.5)
    federation = small(nodes=4, rounds=6, warmup=0, eval_every=5, merge_every=3)
    daemons = make_daemons(federation, tmp_path, barrier_timeout=1, checkpoint_every=0)
    understudy, last = daemons[0], daemons[3]
    understudy.transport.inherited.close()
    async with aiohttp.ClientSession() as session, asyncio.timeout(30):
        fake = FakePeer(session, understudy)
        waiting = [asyncio.create_task(daemon.run()) for daemon in daemons[1:3]]
        for link in [await fake.join(daemon) for daemon in daemons[1:3]]:
            await link.close()
        # The last one has never met it, and learns from those who play that it was there.
        results = await asyncio.gather(*waiting, last.run())
    understudy.worker.shutdown()
    assert all(result["finished"] for result in results)
    assert all(daemon.node.step.roster.missed[FAKE] == 0 for daemon in daemons[1:])


async def test_one_that_is_not_up_yet_is_waited_for(tmp_path: Path) -> None:
    """However long it takes: only the operator knows whether it will come."""
    daemons = make_daemons(small(nodes=3, rounds=3), tmp_path, barrier_timeout=0.1, checkpoint_every=0)
    waiting = [asyncio.create_task(daemon.run()) for daemon in daemons[:2]]
    await asyncio.wait(waiting, timeout=1)
    assert [daemon.node.position.phase for daemon in daemons] == ["waiting"] * 3
    results = await asyncio.gather(*waiting, daemons[2].run())
    assert all(result["finished"] and not result["missed"] for result in results)


async def test_one_whose_other_neighbour_is_not_up_yet_is_waited_for(tmp_path: Path) -> None:
    """On a ring node-1 has both its links and plays, while its neighbours still wait for node-3, deadlines long."""
    federation = small(nodes=4, rounds=3, warmup=0, topology="ring")
    daemons = make_daemons(federation, tmp_path, barrier_timeout=1, checkpoint_every=0)
    waiting = [asyncio.create_task(daemon.run()) for daemon in daemons[:3]]
    await asyncio.wait(waiting, timeout=3)
    assert [daemon.node.position.phase for daemon in daemons] == ["waiting", "barrier", "waiting", "waiting"]
    results = await asyncio.gather(*waiting, daemons[3].run())
    assert [result["parameters_sha256"] for result in results] == (
        await asyncio.to_thread(simulate, federation)
    ).parameters_sha256
    assert not any(result["missed"] for result in results)


async def test_one_that_its_launcher_says_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    daemons = make_daemons(small(nodes=3, rounds=3), tmp_path, barrier_timeout=60, checkpoint_every=0)
    daemons[0].transport.inherited.close()
    for daemon in daemons[1:]:
        daemon.gone(FAKE)
    async with asyncio.timeout(20):
        results = await asyncio.gather(*(daemon.run() for daemon in daemons[1:]))
    assert all(result["finished"] and not result["missed"] for result in results)
    daemons[0].worker.shutdown()


async def test_a_node_that_is_slow_but_at_work_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three timeouts long it trains; it answers all the while, so nobody gives it up."""
    daemons = make_daemons(small(nodes=3, rounds=5, warmup=0, eval_every=5), tmp_path, barrier_timeout=0.5)
    slow = daemons[1].learner
    train = slow.train

    def train_slowly(round: int) -> None:
        if daemons[1].node.position.round == 2:
            time.sleep(1.5)  # the work of a slow machine, in the worker thread
        train(round)

    monkeypatch.setattr(slow, "train", train_slowly)
    results = await finish(daemons)
    assert all(result["finished"] and result["missed"] == 0 for result in results)


async def test_votes_twice_late_early_and_contradicting(tmp_path: Path) -> None:
    async with federation_with_fake(tmp_path) as (fake, daemons):
        running = asyncio.create_task(finish(daemons))
        for daemon in daemons:
            link = await fake.join(daemon)
            for vote in (
                Vote(1, ballot(daemon, 1)),  # in time, or early
                Vote(1, ballot(daemon, 1)),  # the same again
                Vote(1, ballot(daemon, 2)),  # another for the same round
                Vote(2, ballot(daemon, 3)),  # early
                Vote(4, ballot(daemon)),  # further ahead than may be held: two rounds are
                Vote(5, ballot(daemon)),
                Vote(6, ballot(daemon)),
            ):
                await link.send_bytes(frames.encode(vote))
        results = await running
        assert all(result["finished"] for result in results)
        for daemon in daemons:
            arrivals = daemon.node.step.inbox.arrivals
            assert arrivals["equivocation"] + arrivals["late"] >= 1
            assert arrivals["duplicate"] + arrivals["late"] >= 1
        # All of these came before node-1 could begin: node-2 had no link to the fake yet.
        arrivals = daemons[0].node.step.inbox.arrivals
        assert [arrivals[what] for what in ("duplicate", "equivocation", "too-far-ahead", "late")] == [1, 1, 3, 0]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\x00" * 16 + b"\x00", "ballot-length"),
        (b"\x0b" * 16, "ballot-class"),
    ],
)
async def test_a_bad_ballot_is_refused_whole(payload: bytes, reason: str, tmp_path: Path) -> None:
    async with federation_with_fake(tmp_path) as (fake, daemons):
        running = asyncio.create_task(finish(daemons))
        for daemon in daemons:
            link = await fake.join(daemon)
            await link.send_bytes(frames.encode(Vote(1, payload)))
        results = await running
        assert all(result["finished"] for result in results)
        assert all(daemon.node.step.inbox.arrivals[reason] == 1 for daemon in daemons)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\xc1garbage", "garbage"),
        (b"", "garbage"),
        (msgpack.packb([2, 1]), "unknown-kind"),
        (msgpack.packb([99, 1, b"x"]), "unknown-kind"),
        (msgpack.packb([2, 1, b"x" * 16])[:-3], "garbage"),
        (msgpack.packb([2, 1, msgpack.ExtType(5, b"x")]), "garbage"),
        (msgpack.packb([2, 1, b"x" * 5000]), "oversized"),
        (msgpack.packb({"kind": 2}), "garbage"),
        (msgpack.packb([2, 0, b"x"]), "field"),
        (msgpack.packb([2, -1, b"x"]), "field"),
        (msgpack.packb([2, True, b"x"]), "field"),
    ],
)
async def test_what_is_no_message_ends_the_link(frame: bytes, reason: str, tmp_path: Path) -> None:
    async with federation_with_fake(tmp_path) as (fake, daemons):
        running = asyncio.create_task(finish(daemons))
        for daemon in daemons:
            link = await fake.join(daemon)
            await link.send_bytes(frame)
            async for _ in link:  # what the daemon had to say, until it ends the link
                pass
            assert link.close_code == aiohttp.WSCloseCode.PROTOCOL_ERROR
            assert daemon.node.step.inbox.arrivals[reason] == 1
        assert all(result["finished"] for result in await running)


async def test_a_declared_length_past_the_limit_ends_the_link_unread(tmp_path: Path) -> None:
    """The header alone, of a message of a gigabyte, is enough to be cut off."""
    async with federation_with_fake(tmp_path) as (fake, daemons):
        running = asyncio.create_task(finish(daemons))
        for daemon in daemons:
            link = await fake.join(daemon)
            writer = link.get_extra_info("socket")
            header = bytes([0x82, 0xFF]) + (1 << 30).to_bytes(8, "big") + bytes(4)
            await asyncio.get_running_loop().run_in_executor(None, os.write, writer.fileno(), header)
            # As it came: `link.close_code` is 1006 where the daemon shut its socket before aiohttp could reply.
            assert await closed_with(link) == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        assert all(result["finished"] for result in await running)


async def test_a_flood_of_future_rounds_is_not_kept(tmp_path: Path) -> None:
    """Rounds that the run has, and that an honest peer could not be in: two are held, the rest is dropped."""
    async with federation_with_fake(tmp_path, rounds=3000, eval_every=3000) as (fake, daemons):
        running = asyncio.create_task(finish(daemons))
        victim = daemons[0]
        link = await fake.join(victim)  # the other daemon has no link to the fake, so that nobody begins
        for round in range(100, 2100):
            await link.send_bytes(frames.encode(Vote(round, ballot(victim))))
        arrivals = victim.node.step.inbox.arrivals
        async with asyncio.timeout(30):
            while arrivals.total() < 2000:
                await asyncio.sleep(0.01)
        assert arrivals == {"early": HELD_AHEAD, "too-far-ahead": 2000 - HELD_AHEAD}
        for daemon in daemons:
            daemon.stop()
        await running


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("method", "fedavg"),
        ("rounds", "7"),
        ("seed", "1"),
        ("probe set", "0" * 16),
        ("classes", "11"),
        ("alpha", "0.4"),
    ],
)
async def test_each_side_names_the_field_that_differs(
    field: str, value: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_that_listens(tmp_path) as (fake, daemon):
        hello = fake.understudy.hello()
        fields = tuple((name, value if name == field else said) for name, said in hello.fields)
        own = dict(hello.fields)[field]
        assert own != value
        with caplog.at_level(logging.WARNING):
            link = await fake.dial(daemon, replace(hello, fields=fields, digest=fields_digest(fields)))
            frames.decode_hello(await link.receive_bytes())
            message = await link.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert link.close_code == handshake.REFUSED
        assert message.extra == f"{field} is {own} here, {value} there"
        assert f"{field} is {own} here, {value} there" in caplog.text
        assert daemon.transport.refusals == {"mismatch": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 99}, "version"),
        ({"name": "mallory"}, "stranger"),
        ({"name": "node-1"}, "name"),
        ({"name": "node-2"}, "direction"),
        ({"digest": "0" * 64}, "digest"),
    ],
)
async def test_who_may_not_take_part(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    async with one_that_listens(tmp_path) as (fake, daemon):
        link = await fake.dial(daemon, replace(fake.understudy.hello(), **change))
        async for _ in link:
            pass
        assert link.close_code == handshake.REFUSED
        assert daemon.transport.refusals == {reason: 1}


async def daemon_listens(daemon: Daemon) -> None:
    """The socket listens from the start; the daemon answers once its loop has taken it over."""
    url = f"http://{daemon.transport.listen}/"
    async with asyncio.timeout(10), aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 404


async def test_a_slow_loris_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.3)
    async with one_that_listens(tmp_path) as (_, daemon):
        address = daemon.transport.listen
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /p2p-tally HTTP/1.1\r\nHost: x\r\n")  # and never the end of the headers
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()


async def test_bad_parameters_break_the_merge_and_keep_the_model(tmp_path: Path) -> None:
    """NaN from a neighbour: the merge is skipped, the model stays what it was, and the run goes on."""
    async with federation_with_fake(tmp_path, merge_every=3, topology="star", method="fedavg") as (fake, daemons):
        running = asyncio.create_task(finish(daemons))
        for daemon in daemons:
            link = await fake.join(daemon)
            length = len(daemon.learner.parameters)
            await link.send_bytes(frames.encode(Announce(3, b"")))
            data = np.full(length, np.nan, "<f4").tobytes()
            await link.send_bytes(frames.encode(Shard(3, Stage.VECTOR, 0, data)))
        results = await running
        assert all(result["finished"] for result in results)
        for daemon in daemons:
            assert daemon.node.step.inbox.arrivals["not-finite"] == 1
            assert np.isfinite(daemon.learner.export()).all()
            assert daemon.metrics.skipped_merges == 1
