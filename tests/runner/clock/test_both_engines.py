"""Both engines tell the clock of the same messages, and these are the messages that traffic.py counts."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p2p_tally.config import EngineName, Federation, SimulationSettings
from p2p_tally.protocol import segments
from p2p_tally.protocol.messages import Stage
from p2p_tally.runner.clock import clock as clock_module
from p2p_tally.runner.clock.messages import Messages
from p2p_tally.runner.runs.run import RoundLine, Run
from p2p_tally.runner.simulation import checkpoints
from p2p_tally.runner.simulation.simulate import simulate

LINK = "1mbit/3mbit,100ms,1% node-1=64kbit,600ms"

CASES: tuple[dict[str, Any], ...] = (
    {},
    {"method": "fedmd", "ballot": "byte"},
    {"ballot": "coded", "merge_precision": "int8"},
    {"topology": "ring", "hops": 2},
    {"topology": "ring", "hops": "all", "merge_over": "ring"},
    {"topology": "mesh", "merge_over": "ring", "nodes": 2},
    {"topology": "gossip-k:2", "merge_precision": "bfloat16"},
    {"method": "diloco", "join": "node-4@3", "leave": "node-0@5"},
    {"method": "spod-gt"},
    {"method": "pame", "topology": "ring"},
    {"warmup": "auto", "topology": "star"},
    {"topology": "matchings", "start": "own"},
    {"overlap": True, "merge_precision": "int8"},
    {"overlap": True, "topology": "ring", "hops": 2, "warmup": "auto"},
)


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several runs a segment, of a model that is quick to train."""
    monkeypatch.setattr(segments, "RUN", 200)


def federation_of(**options: Any) -> Federation:
    defaults = {"nodes": 5, "rounds": 6, "warmup": 1, "merge_every": 2, "local_steps": 1, "batch": 4, "test_count": 20}
    return Federation.parse({**defaults, "link": LINK, "compute": "300ms node-0=2s", **options})


def played(federation: Federation, engine: EngineName, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, list[Messages]]:
    """A run, and the messages of each round as the clock was told."""
    told: list[Messages] = []
    play = clock_module.VirtualClock.play

    def note(self: Any, round: int, messages: Any, *rest: Any) -> None:
        table = messages()
        told.append(table)
        play(self, round, lambda: table, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(clock_module.VirtualClock, "play", note)
        return simulate(federation, engine=engine), told


@pytest.mark.parametrize("options", CASES, ids=str)
def test_the_same_messages_and_the_same_clock(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    federation = federation_of(**options)
    (exact, real), (stacked, modelled) = (played(federation, engine, monkeypatch) for engine in ("exact", "stacked"))
    for sent, same in zip(real, modelled, strict=True):
        for column, other in zip(sent, same, strict=True):
            assert column.tolist() == other.tolist()
    assert [(line.hours, line.idle) for line in exact.lines] == [(line.hours, line.idle) for line in stacked.lines]
    for line, sent in zip(stacked.lines, modelled, strict=True):
        framed = {Stage(stage).name.lower(): sent.size[sent.stage == stage].sum() for stage in np.unique(sent.stage)}
        counted = {stage: count["framed"] * federation.nodes for stage, count in line.sent.items()}
        counted.pop("handshake", None)
        assert {stage: pytest.approx(size) for stage, size in framed.items()} == counted


@pytest.mark.parametrize("engine", ["exact", "stacked"])
def test_a_clock_changes_no_bit(engine: EngineName) -> None:
    federation = federation_of(rounds=4)
    without = federation.model_copy(update={"link": None, "compute": None})
    timed, plain = simulate(federation, engine=engine), simulate(without, engine=engine)
    assert timed.parameters_sha256 == plain.parameters_sha256
    assert plain.summary().keys().isdisjoint({"hours", "idle_share", "rounds_per_hour", "hours_to"})
    assert "hours" not in plain.lines[-1].as_json()
    summary = timed.summary()
    assert summary["hours"] > 4 * 2 / 3600 and 0 < summary["idle_share"] < 1
    assert summary["rounds_per_hour"] == pytest.approx(4 / summary["hours"])


@pytest.mark.parametrize("engine", ["exact", "stacked"])
def test_a_resumed_run_has_the_same_clock(engine: EngineName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LEAST_PAUSE", 0)
    monkeypatch.setattr("p2p_tally.runner.report.accuracy_figure.accuracy_figure", lambda *_: None)
    federation = federation_of(topology="ring", hops=2)

    def stop(line: RoundLine) -> None:
        if line.round == 4:
            raise KeyboardInterrupt

    settings = SimulationSettings(out=tmp_path / "stopped", checkpoint_seconds=1e-9)
    with pytest.raises(KeyboardInterrupt):
        simulate(federation, settings, stop, engine)
    resumed = simulate(federation, settings, None, engine, resume=True)
    straight = simulate(federation, engine=engine)
    lines = [[dataclasses.replace(line, seconds={}) for line in run.lines] for run in (resumed, straight)]
    assert lines[0] == lines[1]
    assert resumed.lines[-1].hours is not None
