"""Merges around a ring: the exact mean on sparse graphs, over every transport and engine; and what failures leave."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_daemons, run_all, small
from hypothesis import given
from hypothesis import strategies as st
from test_relays import Killed

from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName
from p2p_tally.learning.graph import make_topology
from p2p_tally.node.merges.exchange import Merged
from p2p_tally.node.merges.ring import RingReduce, halves
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol import segments
from p2p_tally.protocol.messages import Message, Shard, Stage
from p2p_tally.runner.simulation.simulate import simulate


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several runs a segment, of a model that is quick to train."""
    monkeypatch.setattr(segments, "RUN", 200)


def exact(**options: Any) -> Any:
    return small(**{"nodes": 6, "rounds": 4, "warmup": 0, "eval_every": 4, "merge_over": "ring", **options})


@given(st.integers(1, 3000), st.integers(2, 9))
def test_each_way_round_carries_half_in_a_segment_a_member(parameters: int, members: int) -> None:
    cuts = halves(parameters, members)
    assert len(cuts) == (1 if members == 2 else 2)
    assert all(len(cut) == members for cut in cuts)
    covered = [place for cut in cuts for segment in cut for run in segment for place in range(run.start, run.stop)]
    assert covered == list(range(parameters))


@pytest.mark.parametrize("graph", [{"topology": "ring"}, {"topology": "torus"}, {"topology": "gossip", "degree": 3}])
def test_everyone_ends_with_the_mean(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch, short_runs: None) -> None:
    before: list[np.ndarray] = []
    taken: list[np.ndarray] = []
    merge = RingReduce.merge

    async def look(self: RingReduce, round: int, vector: np.ndarray) -> Merged:
        before.append(vector.copy())
        merged = await merge(self, round, vector)
        assert merged.average is not None
        taken.append(merged.average)
        return merged

    monkeypatch.setattr(RingReduce, "merge", look)
    federation = exact(**graph)
    run = simulate(federation)
    assert len(set(run.parameters_sha256)) == 1
    mean = np.mean(before, axis=0, dtype=np.float64)
    assert len(taken) == 6
    assert all(np.abs(average - mean).max() < 1e-6 for average in taken)
    sent = run.lines[-1].sent
    assert sent["scatter"]["payload"] + sent["gather"]["payload"] == 2 * 5 / 6 * 4 * len(mean)


@pytest.mark.parametrize("nodes", [2, 3, 6])
async def test_over_sockets_the_same_bits_and_bytes(nodes: int, tmp_path: Path, short_runs: None) -> None:
    federation = exact(nodes=nodes, topology="ring", rounds=8, merge_every=4)
    simulated = await asyncio.to_thread(simulate, federation)
    daemons = make_daemons(federation, tmp_path)
    results = await run_all(daemons)
    assert [result["parameters_sha256"] for result in results] == simulated.parameters_sha256
    assert len(set(simulated.parameters_sha256)) == 1
    assert sum(result["missed"] for result in results) == 0
    line = simulated.lines[-1]
    assert sum(result["payload_bytes"] for result in results) / nodes == line.payload_bytes
    assert sum(result["framed_bytes"] for result in results) / nodes == line.framed_bytes
    for daemon in daemons:  # neighbours keep in step: what comes early is held, nothing is dropped
        assert daemon.node.step.inbox.arrivals["too-far-ahead"] == 0


def die_in_merge(daemon: Daemon, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it die as it is about to send the first run of a stage."""
    stream = daemon.node.outbox.stream

    async def stream_or_die(peer: NodeName, message: Message, frame: bytes) -> None:
        if isinstance(message, Shard) and message.stage is stage:
            raise Killed
        await stream(peer, message, frame)

    monkeypatch.setattr(daemon.node.outbox, "stream", stream_or_die)


@pytest.mark.parametrize("stage", [Stage.SCATTER, Stage.GATHER])
async def test_one_that_dies_within_a_merge_costs_that_merge_and_no_deadline(
    stage: Stage, tmp_path: Path, short_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = exact(topology="torus", rounds=9, merge_every=4)
    daemons = make_daemons(federation, tmp_path, barrier_timeout=40, checkpoint_every=0)
    die_in_merge(daemons[2], stage, monkeypatch)
    async with asyncio.timeout(35):
        results = await asyncio.gather(*(daemon.run() for daemon in daemons), return_exceptions=True)
    assert isinstance(results[2], Killed)
    for daemon, result in zip(daemons, results, strict=True):
        if isinstance(result, dict):
            assert result["finished"] and result["missed"] == 0
            assert daemon.metrics.skipped_merges == 2  # that one, and the next: the ring is not whole


async def test_parameters_that_are_not_finite_are_nobodys(
    tmp_path: Path, short_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = exact(topology="ring", method="fedavg", rounds=4)
    daemons = make_daemons(federation, tmp_path, barrier_timeout=40, checkpoint_every=0)
    learner = daemons[4].learner
    contribution = learner.contribution
    monkeypatch.setattr(learner, "contribution", lambda round: np.full_like(contribution(round), np.nan))
    async with asyncio.timeout(35):
        results = await asyncio.gather(*(daemon.run() for daemon in daemons))
    assert all(result["finished"] for result in results)
    assert all(daemon.metrics.skipped_merges == 1 for daemon in daemons)
    assert all(np.isfinite(daemon.learner.parameters.export()).all() for daemon in daemons)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topology": "star"}, "no ring of links through all 6 nodes found in --topology star"),
        ({"topology": "matchings"}, "accepted on a graph that stays"),
        ({"topology": "ring", "merge_precision": "int8"}, "accepted with --merge-precision float32"),
    ],
)
def test_what_cannot_be_is_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        make_topology(exact(**options))
    assert "\n" not in str(caught.value)
