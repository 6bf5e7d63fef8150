"""Votes that others pass on, when something is amiss: a dead relay, one that hangs, one that lies."""

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from conftest import Killed, kill_at, make_daemons, small
from test_faults import FAKE, FakePeer, ballot, finish

from p2p_tally.config import Federation
from p2p_tally.node.node import Node
from p2p_tally.node.reports import RoundReport
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.node.step.relay import RelayedVotes
from p2p_tally.protocol import frames
from p2p_tally.protocol.messages import Here, Lost, News, Relayed, Stage, Vote, Waiting
from p2p_tally.runner.simulation.simulate import simulate


def count_answers(daemons: list[Daemon], monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """How many answers each node tallied, by round."""
    counts: dict[str, list[int]] = {daemon.name: [] for daemon in daemons}
    for daemon in daemons:
        record = daemon.recorder.record

        async def count(node: Node, report: RoundReport, record: Any = record) -> None:
            counts[node.name].append(len(report.answers))
            await record(node, report)

        monkeypatch.setattr(daemon.recorder, "record", count)
    return counts


async def kill_and_return(
    federation: Federation, out: Path, barrier_timeout: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Daemon], dict[str, list[int]]]:
    """A run in which node-3 is killed before round 5 and started again: those that finished, and their answers."""
    daemons = make_daemons(federation, out, barrier_timeout=barrier_timeout, checkpoint_every=0)
    first = daemons[3]
    second = Daemon(federation, first.settings, membership=True, inherited=first.transport.inherited.dup())
    others = [*daemons[:3], *daemons[4:]]
    counts = count_answers([*others, second], monkeypatch)
    kill_at(first, 5)

    async def twice() -> Any:
        with pytest.raises(Killed):
            await first.run()
        return await second.run()

    async with asyncio.timeout(90):
        results = await asyncio.gather(*(daemon.run() for daemon in others), twice())
    assert all(result["finished"] for result in results)
    return [*others, second], counts


@pytest.mark.parametrize(
    ("topology", "hops", "left"),
    [("ring", "all", [7] * 8), ("ring", 2, [5, 4, 3, 0, 3, 4, 5, 5]), ("torus", "all", [7] * 8)],
)
async def test_a_dead_relay_costs_its_own_vote_and_no_deadline(
    topology: str, hops: Any, left: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = small(nodes=8, rounds=12, warmup=0, eval_every=12, merge_every=0, topology=topology, hops=hops)
    daemons = make_daemons(federation, tmp_path, barrier_timeout=30, checkpoint_every=0)
    counts = count_answers(daemons, monkeypatch)
    kill_at(daemons[3], 5)
    async with asyncio.timeout(25):  # less than one deadline
        results = await asyncio.gather(*(daemon.run() for daemon in daemons), return_exceptions=True)
    assert isinstance(results.pop(3), Killed)
    assert all(result["finished"] and result["missed"] == 0 for result in results if isinstance(result, dict))
    whole = {"all": 8, 2: 5}[hops]
    for rank, daemon in enumerate(daemons):
        assert counts[daemon.name][:4] == [whole] * 4
        if rank != 3:  # from the next round on, if not in this one, everyone hears all that can be heard
            assert counts[daemon.name][5:] == [left[rank]] * 7


async def test_a_relay_that_hangs_costs_everyone_one_deadline_and_only_its_own_vote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = small(nodes=8, rounds=6, warmup=0, eval_every=6, merge_every=0, topology="ring", hops="all")
    daemons = make_daemons(federation, tmp_path, barrier_timeout=1, checkpoint_every=0)
    understudy, others = daemons[0], daemons[1:]
    understudy.transport.inherited.close()
    counts = count_answers(others, monkeypatch)
    async with aiohttp.ClientSession() as session:
        fake = FakePeer(session, understudy)
        running = asyncio.create_task(finish(others))
        _links = [await fake.join(daemon) for daemon in others if FAKE in daemon.addresses]
        results = await running
    understudy.worker.shutdown()
    assert all(result["finished"] for result in results)
    for daemon in others:  # those further away may hear of it before their own deadline
        missed = daemon.node.step.roster.missed
        assert missed[FAKE] == 1 if FAKE in daemon.addresses else missed[FAKE] <= 1
        assert missed.total() == missed[FAKE]
    assert all(answers == [7] * 6 for answers in counts.values())


async def test_a_slow_node_far_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains three timeouts long, three hops from some; whoever waits asks, and it answers."""
    federation = small(nodes=6, rounds=4, warmup=0, eval_every=4, merge_every=0, topology="ring", hops="all")
    daemons = make_daemons(federation, tmp_path, barrier_timeout=0.6)
    counts = count_answers(daemons, monkeypatch)
    train = daemons[1].learner.train

    def train_slowly(round: int) -> None:
        if daemons[1].node.position.round == 2:
            time.sleep(2)
        train(round)

    monkeypatch.setattr(daemons[1].learner, "train", train_slowly)
    results = await finish(daemons)
    assert all(result["finished"] and result["missed"] == 0 for result in results)
    assert all(answers == [6] * 4 for answers in counts.values())


async def test_a_lying_relay_is_refused_where_it_can_be_known(tmp_path: Path) -> None:
    """node-0 of a ring of five tells its neighbours node-1 and node-4 tales."""
    federation = small(nodes=5, rounds=5, warmup=0, eval_every=5, merge_every=0, topology="ring", hops=2)
    daemons = make_daemons(federation, tmp_path, barrier_timeout=1, checkpoint_every=0)
    understudy, others = daemons[0], daemons[1:]
    understudy.transport.inherited.close()
    victim = daemons[1]
    async with aiohttp.ClientSession() as session:
        fake = FakePeer(session, understudy)
        running = asyncio.create_task(finish(others))
        links = {daemon.name: await fake.join(daemon) for daemon in others if FAKE in daemon.addresses}
        tales = [
            (Relayed(4, 3, Vote(2, ballot(victim))), "hops"),  # further than votes travel
            (Relayed(2, 2, Vote(2, ballot(victim))), "hops"),  # node-2 is two from node-0: it takes three
            (Relayed(1, 2, Vote(1, ballot(victim))), "origin"),  # the victim's own
            (Relayed(99, 2, Vote(1, ballot(victim))), "origin"),
            (Relayed(4, 2, Vote(5, ballot(victim))), "too-far-ahead"),  # would take the place of node-4's next
            (Relayed(4, 2, Vote(2, b"\x0b" * 16)), "ballot-class"),  # of a round that node-4 cannot be in yet
            (News(77, 1, Here(1)), "origin"),
        ]
        for tale, _ in tales:
            await links[victim.name].send_bytes(frames.encode(tale))
        forged, again = (frames.encode(Relayed(4, 2, Vote(2, ballot(victim, value)))) for value in (3, 4))
        for frame in (forged, again, forged):
            await links[victim.name].send_bytes(frame)
        results = await running
    understudy.worker.shutdown()
    assert all(result["finished"] for result in results)
    arrivals = victim.node.step.inbox.arrivals
    for _, reason in tales:
        assert arrivals[reason] == sum(reason == other for _, other in tales), reason
    assert arrivals["equivocation"] + arrivals["late"] >= 1
    assert arrivals["duplicate"] + arrivals["late"] >= 1


async def test_where_votes_travel_one_hop_nothing_is_passed_on(tmp_path: Path) -> None:
    daemons = make_daemons(small(nodes=3), tmp_path)
    inbox = daemons[0].node.step.inbox
    for message in (
        Relayed(2, 2, Vote(1, ballot(daemons[0]))),
        News(1, 7, Waiting(1, Stage.VOTE)),
        News(1, 8, Lost(b"")),
    ):
        assert inbox.deliver(daemons[1].name, frames.encode(message), 10) is False
    assert inbox.arrivals["unknown-kind"] == 3
    for daemon in daemons:
        daemon.worker.shutdown()
        daemon.transport.inherited.close()


async def test_one_that_comes_back_is_heard_everywhere_and_the_trees_serve_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = small(nodes=6, rounds=120, warmup=0, eval_every=120, merge_every=0, topology="ring", hops="all")
    daemons, counts = await kill_and_return(federation, tmp_path, 6, monkeypatch)
    for answers in counts.values():
        assert answers[-5:] == [6] * 5
    for daemon in daemons:
        votes = daemon.node.step.votes
        assert isinstance(votes, RelayedVotes) and not votes.someone_is_missing


async def test_votes_that_come_before_a_link_does_go_over_it_later(tmp_path: Path) -> None:
    """node-1 has all its links and plays, while node-0 and node-2 still wait for node-3."""
    federation = small(nodes=4, rounds=6, warmup=2, eval_every=6, merge_every=0, topology="ring", hops="all")
    simulated = await asyncio.to_thread(simulate, federation)
    daemons = make_daemons(federation, tmp_path, barrier_timeout=60, checkpoint_every=0)
    running = [asyncio.create_task(daemon.run()) for daemon in daemons[:3]]
    async with asyncio.timeout(25):  # less than half a deadline
        while daemons[1].node.position.round < 2 or daemons[1].node.position.phase != "barrier":
            await asyncio.sleep(0.01)
        results = [*await asyncio.gather(daemons[3].run(), *running)]
    hashes = [result["parameters_sha256"] for result in (*results[1:], results[0])]
    assert hashes == simulated.parameters_sha256
    assert sum(result["payload_bytes"] for result in results) / 4 == simulated.lines[-1].payload_bytes
    assert sum(result["framed_bytes"] for result in results) / 4 == simulated.lines[-1].framed_bytes
