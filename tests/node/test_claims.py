"""What a neighbour says about rounds moves no node, unless a majority says so; what an honest one does still counts."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from conftest import Killed, kill_at, make_daemons, run_all, small
from test_faults import FakePeer, ballot, federation_with_fake

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.node.links.state import LinkState
from p2p_tally.node.service import startup
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol import frames, start_wait
from p2p_tally.protocol.messages import Bye, Hello, Here, Message, Stage, Vote, Waiting, Welcome


async def join_saying(fake: FakePeer, daemon: Daemon, hello: Hello) -> aiohttp.ClientWebSocketResponse:
    """A link that begins with this hello."""
    link = await fake.dial(daemon, hello)
    frames.decode_hello(await link.receive_bytes())
    await link.send_bytes(frames.encode(Welcome()))
    assert await link.receive_bytes() == frames.encode(Welcome())
    return link


def far_ahead(fake: FakePeer, round: int) -> Hello:
    return replace(fake.understudy.hello(), running=True, round=round)


def trained_rounds(daemon: Daemon) -> list[int]:
    """The rounds in which this node trains, as it goes."""
    trained: list[int] = []
    daemon.node.position.listen(lambda round, phase: trained.append(round) if phase == "train" else None)
    return trained


async def test_the_only_neighbours_claim_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It claimed the last round in its first hello, and the node finished at once, untrained."""
    async with federation_with_fake(tmp_path, nodes=2, rounds=30) as (fake, [daemon]):
        trained = trained_rounds(daemon)
        running = asyncio.create_task(run_all([daemon]))
        link = await join_saying(fake, daemon, far_ahead(fake, 30))
        [result] = await running
        await link.close()
    assert result["finished"] and trained == list(range(1, 31))
    assert [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "unconfirmed"] == [
        "1 of 1 neighbours play, up to round 31: no majority, going on after round 0, it is this node's own newest"
    ]


@pytest.mark.parametrize("words", [[], [Here(30), Waiting(30, Stage.VOTE)]], ids=["hello", "hello and more"])
async def test_one_of_two_that_claims_a_round_does_not_end_the_wait_for_the_other(
    words: list[Message], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_wait, "LATE_SECONDS", 0.0)
    async with federation_with_fake(tmp_path, nodes=3, rounds=30) as (fake, daemons):
        trained = [trained_rounds(daemon) for daemon in daemons]
        running = []
        for daemon in daemons:  # the second one starts when the first has heard the claim
            running.append(asyncio.create_task(daemon.run()))
            link = await join_saying(fake, daemon, far_ahead(fake, 29))
            for word in words:
                await link.send_bytes(frames.encode(word))
            await heard_from(daemon, len(words))
        async with asyncio.timeout(60):
            results = await asyncio.gather(*running)
    assert all(result["finished"] and result["missed"] == 0 for result in results)
    assert trained == [list(range(1, 31))] * 2


async def heard_from(daemon: Daemon, messages: int) -> None:
    """The link to the fake is up, and so many of its messages have been read."""
    async with asyncio.timeout(10):
        while not (daemon.transport.links and daemon.node.step.roster[NodeName("node-0")].messages >= messages):
            await daemon.transport.change(asyncio.get_running_loop().time() + 0.01)


async def test_three_impostors_among_seven_neighbours_move_nobody(tmp_path: Path) -> None:
    """The other four are gone. Those that are there were a majority of those that are there."""
    federation = small(nodes=8, rounds=40, warmup=0, eval_every=40, merge_every=0)
    daemons = make_daemons(federation, tmp_path, barrier_timeout=1, checkpoint_every=0)
    impostors, victim, gone = daemons[:3], daemons[3], daemons[4:]
    for daemon in (*impostors, *gone):
        assert daemon.transport.inherited is not None
        daemon.transport.inherited.close()
    for daemon in gone:
        victim.gone(daemon.name)
    trained = trained_rounds(victim)
    async with aiohttp.ClientSession() as session:
        running = asyncio.create_task(run_all([victim]))
        for impostor in impostors:
            fake = FakePeer(session, impostor)
            link = await fake.join(victim)
            for message in (Here(37), Vote(38, ballot(victim)), Vote(39, ballot(victim)), Waiting(40, Stage.VOTE)):
                await link.send_bytes(frames.encode(message))
        [result] = await running
    for daemon in (*impostors, *gone):
        daemon.worker.shutdown()
    assert result["finished"] and trained == list(range(1, 41))


async def stopped_after(federation: Federation, out: Path, round: int) -> list[Daemon]:
    """A federation that has checkpoints: all nodes are asked to stop in this round."""
    daemons = make_daemons(federation, out, checkpoint_every=4)
    for daemon in daemons:
        daemon.node.position.listen(
            lambda now, phase, daemon=daemon: daemon.stop() if (now, phase) == (round, "train") else None
        )
    await run_all(daemons)
    return make_daemons(federation, out, checkpoint_every=4, resume=True, barrier_timeout=1)


async def test_one_that_says_it_has_no_checkpoint_rolls_nobody_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Three nodes were rolled back to round 0, by one hello."""
    federation = small(nodes=4, rounds=20, warmup=0, eval_every=20, merge_every=0)
    understudy, *daemons = await stopped_after(federation, tmp_path, 10)
    assert understudy.transport.inherited is not None
    understudy.transport.inherited.close()
    trained = [trained_rounds(daemon) for daemon in daemons]
    async with aiohttp.ClientSession() as session:
        fake = FakePeer(session, understudy)
        running = asyncio.create_task(run_all(daemons))
        for daemon in daemons:
            await join_saying(fake, daemon, replace(understudy.hello(), checkpoints=(0,)))
        results = await running
    understudy.worker.shutdown()
    assert all(result["finished"] for result in results)
    assert [rounds[0] for rounds in trained] == [max(daemon.kept_rounds) + 1 for daemon in daemons]
    assert any(
        "no checkpoint of a round that all neighbours have: going on after round" in record.getMessage()
        for record in caplog.records
    )


@pytest.mark.parametrize("words", [[Here(0)], [Here(0), Bye(0)]], ids=["plays", "leaves"])
async def test_who_comes_in_a_peers_name_for_a_moment_leaves_nothing_behind(
    words: list[Message], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node did not wait for the real peer, because somebody had said in its name that it plays."""
    monkeypatch.setattr(startup, "LAST_DELAY", 20.0)  # on a busy machine the real one may take so long
    federation = small(nodes=3, rounds=6, warmup=0, eval_every=6, merge_every=0)
    daemons = make_daemons(federation, tmp_path, barrier_timeout=20, checkpoint_every=0)
    real, victim, third = daemons
    running = [asyncio.create_task(victim.run())]
    async with aiohttp.ClientSession() as session:
        link = await FakePeer(session, real).join(victim)
        for word in words:
            await link.send_bytes(frames.encode(word))
        await heard_from(victim, len(words))
        await link.close()
        await links_of(victim, set())
    running.append(asyncio.create_task(third.run()))
    await links_of(victim, {third.name})
    async with asyncio.timeout(60):
        results = await asyncio.gather(real.run(), *running)
    assert all(result["finished"] and result["missed"] == 0 for result in results)
    votes = [daemon.node.ledger.total_sent(Stage.VOTE).messages for daemon in daemons]
    assert votes == [2 * 6] * 3  # nobody had begun before the real one was there


async def links_of(daemon: Daemon, peers: set[NodeName]) -> None:
    async with asyncio.timeout(10):
        while set(daemon.transport.links) != peers:
            await daemon.transport.change(asyncio.get_running_loop().time() + 0.01)


# --- honest nodes that go, and that come back


async def test_one_that_ended_before_the_others_began_costs_them_no_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without votes the first played all its rounds while the other two had no link to each other."""
    monkeypatch.setattr(startup, "LAST_DELAY", 0.0)
    federation = small(nodes=3, rounds=3, method="local", eval_every=3)
    first, second, third = make_daemons(federation, tmp_path, barrier_timeout=3600, checkpoint_every=0)
    apart = asyncio.Event()
    connect = second.transport._connector.open

    async def connects_later(peer: NodeName, state: LinkState) -> Any:
        if peer == third.name:
            await apart.wait()
        return await connect(peer, state)

    monkeypatch.setattr(second.transport._connector, "open", connects_later)
    async with asyncio.timeout(60):
        others = [asyncio.create_task(daemon.run()) for daemon in (second, third)]
        assert (await first.run())["finished"]
        apart.set()
        results = await asyncio.gather(*others)
    assert all(result["finished"] for result in results)


async def killed_and_resumed(daemon: Daemon, round: int) -> tuple[Daemon, dict[str, Any]]:
    """Run a node, let it die in this round, and run it again with --resume."""
    assert daemon.transport.inherited is not None
    listener = daemon.transport.inherited.dup()
    settings = daemon.settings.model_copy(update={"resume": True})
    kill_at(daemon, round)
    with pytest.raises(Killed):
        await daemon.run()
    again = Daemon(daemon.node.federation, settings, membership=True, inherited=listener)
    return again, await again.run()


async def test_one_of_two_comes_back_and_is_in_step(tmp_path: Path) -> None:
    """The other is no majority: it is followed for what it sends, and does not wait a deadline meanwhile."""
    federation = small(nodes=2, rounds=400, warmup=0, eval_every=400, merge_every=0)
    first, second = make_daemons(federation, tmp_path, barrier_timeout=8, checkpoint_every=20)
    began: list[float] = []
    clock = asyncio.get_running_loop().time
    first.node.position.listen(lambda _round, phase: began.append(clock()) if phase == "train" else None)
    async with asyncio.timeout(120):
        result, (again, resumed) = await asyncio.gather(first.run(), killed_and_resumed(second, 60))
    assert result["finished"] and resumed["finished"] and result["missed"] == 0
    assert max(after - before for before, after in pairwise(began)) < 8
    in_step = again.node.step.inbox.arrivals
    assert in_step["recorded"] + in_step["early"] > 20  # votes of the other that came in time


async def test_on_a_ring_with_a_dead_node_its_neighbour_comes_back_and_is_in_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its two neighbours one is dead, so there is no majority either."""
    monkeypatch.setattr(startup, "LAST_DELAY", 0.0)
    federation = small(nodes=4, rounds=600, warmup=0, eval_every=600, merge_every=0, topology="ring")
    daemons = make_daemons(federation, tmp_path, barrier_timeout=0.4, checkpoint_every=20)
    kill_at(daemons[1], 30)

    async def dies() -> None:
        with pytest.raises(Killed):
            await daemons[1].run()

    async with asyncio.timeout(120):
        _, (again, resumed), *others = await asyncio.gather(
            dies(), killed_and_resumed(daemons[2], 60), daemons[0].run(), daemons[3].run()
        )
    assert resumed["finished"] and all(result["finished"] for result in others)
    arrivals = again.node.step.inbox.arrivals
    assert arrivals["recorded"] + arrivals["early"] > 20
