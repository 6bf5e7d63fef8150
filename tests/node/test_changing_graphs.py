"""Graphs that change, over real sockets: the simulation's bits, over links that come and go as rounds need them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from conftest import make_daemons, run_all, small
from prometheus_client import generate_latest
from test_relays import kill_and_return

from p2p_tally.ids import NodeName, ranked_names
from p2p_tally.learning.schedule import resolve
from p2p_tally.node.links.plan import GRACE, LinkPlan, lead
from p2p_tally.node.service.admin import status
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.runner.simulation.simulate import simulate
from p2p_tally.topologies import build


def count_links(daemons: list[Daemon], monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The most links that each node had open at once, and those that it lost while it played."""
    most = dict.fromkeys((daemon.name for daemon in daemons), 0)
    lost: list[tuple[str, str]] = []
    for daemon in daemons:
        link_up = daemon.link_up

        def count(peer: NodeName, hello: Any, daemon: Daemon = daemon, link_up: Any = link_up) -> None:
            link_up(peer, hello)
            most[daemon.name] = max(most[daemon.name], len(daemon.transport.links))

        def down(peer: NodeName, daemon: Daemon = daemon, link_down: Any = daemon.link_down) -> None:
            link_down(peer)
            if daemon.node.position.phase != "done" and peer not in daemon.node.step.roster.left:
                lost.append((daemon.name, peer))

        monkeypatch.setattr(daemon, "link_up", count)
        monkeypatch.setattr(daemon, "link_down", down)
    return most, lost


@pytest.mark.parametrize(
    "options",
    [
        {"topology": "gossip-k:4", "degree": 2, "nodes": 10},
        {"topology": "gossip-k:3", "degree": 2, "nodes": 10, "hops": "all", "merge_every": 0},
        {"topology": "matchings", "nodes": 12, "warmup": 5},
        {"topology": "one-peer-exponential", "nodes": 8, "warmup": "auto"},
        {"topology": "matchings", "nodes": 12, "method": "fedavg", "merge_every": 3},
    ],
    ids=str,
)
async def test_same_bits_over_links_that_come_and_go(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = small(**{"rounds": 30, "eval_every": 30, "merge_every": 7, "local_steps": 1, **options})
    simulated = await asyncio.to_thread(simulate, federation)
    daemons = make_daemons(federation, tmp_path)
    most, lost = count_links(daemons, monkeypatch)
    results = await run_all(daemons)
    assert [result["parameters_sha256"] for result in results] == simulated.parameters_sha256
    assert sum(result["missed"] for result in results) == 0
    assert lost == []
    line = simulated.lines[-1]
    assert sum(result["payload_bytes"] for result in results) / federation.nodes == line.payload_bytes
    assert sum(result["framed_bytes"] for result in results) / federation.nodes == line.framed_bytes
    if options["topology"] != "one-peer-exponential":  # whose few partners all come back within a few rounds
        union = build(federation.topology, ranked_names(federation.nodes), degree=federation.degree).union(30)
        assert sum(most.values()) < 0.9 * sum(degree for _, degree in union.degree())


def test_a_plan_looks_ahead_and_keeps_what_was_just_used() -> None:
    federation = resolve(small(nodes=16, rounds=60, warmup=20, merge_every=0, topology="matchings"), labelled=True)
    members = ranked_names(16)
    topology = build("matchings", members)
    plan = LinkPlan(members[0], topology, federation)
    speaking = range(21, 61)

    def partners(rounds: range) -> set[str]:
        return {peer for r in rounds if r in speaking for peer in topology.neighbours(members[0], r)}

    assert plan.needed(2) == plan.needed(20) == partners(range(21, 22 + lead(16)))  # nobody speaks before
    for member in members:  # but to say that it is there
        first = LinkPlan(member, topology, federation)
        assert first.needed(1) == first.needed(2) | set(topology.neighbours(member, 1))
    assert plan.needed(40) == partners(range(40 - GRACE, 41 + lead(16)))
    assert plan.needed(60) == partners(range(60 - GRACE, 61))
    for r in range(2, 60):  # whoever is needed was so in time
        assert set(topology.neighbours(members[0], r + 1)) <= plan.needed(r) or r + 1 not in speaking


def test_merges_alone_are_planned_for() -> None:
    federation = resolve(small(nodes=8, rounds=40, method="fedavg", merge_every=10), labelled=True)
    members = ranked_names(8)
    topology = build("matchings", members)
    plan = LinkPlan(members[3], topology, federation)
    assert plan.needed(15) == {peer for r in (20, 30, 40) for peer in topology.neighbours(members[3], r)}
    assert set(topology.neighbours(members[3], 10)) <= plan.needed(11)


async def test_one_that_is_killed_is_missed_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links that are idle when it dies are found dead when they are dialled, or cost a deadline; then it is back."""
    federation = small(nodes=6, rounds=100, warmup=0, eval_every=100, merge_every=0, topology="matchings")
    daemons, counts = await kill_and_return(federation, tmp_path, 2, monkeypatch)
    assert max(max(daemon.node.step.roster.missed.values(), default=0) for daemon in daemons[:-1]) <= 2
    for answers in counts.values():
        assert answers[-5:] == [2] * 5


async def test_status_and_metrics_tell_idle_links_from_lost_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = small(nodes=12, rounds=20, warmup=0, eval_every=20, merge_every=0, topology="matchings")
    daemons = make_daemons(federation, tmp_path)
    seen: list[tuple[dict[str, Any], str]] = []
    record = daemons[0].recorder.record

    async def look(node: Any, report: Any) -> None:
        seen.append(
            (
                status(node, daemons[0].transport, daemons[0].metrics),
                generate_latest(daemons[0].metrics.registry).decode(),
            )
        )
        await record(node, report)

    monkeypatch.setattr(daemons[0].recorder, "record", look)
    await run_all(daemons)
    page, metrics = seen[9]
    states = [link["state"] for link in page["links"].values()]
    assert page["missing"] == []
    assert states.count("idle") >= 3
    assert page["open_links"] == states.count("up")
    assert f'p2p_tally_links{{state="idle"}} {states.count("idle")}.0' in metrics
    assert metrics.count("p2p_tally_link_up{") == len(states) - states.count("idle")
