"""Checkpoints of a simulation: a run that was interrupted ends with the bits and the record of one that was not."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import small

from p2p_tally.config import Federation, SimulationSettings
from p2p_tally.errors import ConfigError
from p2p_tally.runner.clock.clock import NoClock
from p2p_tally.runner.runs.folder import RunFolder
from p2p_tally.runner.runs.run import RoundLine, Run
from p2p_tally.runner.simulation import checkpoints as module
from p2p_tally.runner.simulation.simulate import EngineName, simulate


class Interrupted(Exception):
    pass


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer to draw than these runs to play."""
    monkeypatch.setattr("p2p_tally.runner.report.accuracy_figure.accuracy_figure", lambda *_: None)


@pytest.fixture
def at_every_evaluated_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_PAUSE", 0)


def settings(out: Path) -> SimulationSettings:
    return SimulationSettings(out=out, checkpoint_seconds=1e-9)


def interrupt(federation: Federation, out: Path, at: int, engine: EngineName = "exact", resume: bool = False) -> None:
    """Play until the line of round `at` is about to be written."""

    def stop(line: RoundLine) -> None:
        if line.round >= at:
            raise Interrupted

    with pytest.raises((Interrupted, ExceptionGroup)):
        simulate(federation, settings(out), stop, engine, resume)


def record(run: Run) -> list[dict[str, Any]]:
    """The lines on the disk, without seconds."""
    assert run.folder is not None
    lines = [json.loads(text) for text in (run.folder / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def assert_same(run: Run, straight: Run) -> None:
    assert run.parameters_sha256 == straight.parameters_sha256
    assert record(run) == record(straight)
    assert [dataclasses.replace(line, seconds={}) for line in run.lines] == [
        dataclasses.replace(line, seconds={}) for line in straight.lines
    ]
    for key, value in straight.summary().items():
        if key not in ("seconds", "run"):
            assert run.summary()[key] == value, key


@pytest.mark.usefixtures("at_every_evaluated_round")
@pytest.mark.parametrize("engine", ["exact", "stacked"])
@pytest.mark.parametrize(
    "options",  # each keeps other things
    [
        {"method": "tally"},
        {"method": "fedprox"},
        {"method": "feddf"},
        {"method": "diloco"},
        {"method": "spod-gt", "merge_every": 1},
        {"method": "gflat", "merge_every": 1},
        {"merge_precision": "int8"},
        {"merge_when": "drift", "merge_threshold": 1.0, "merge_every": 3},
        {"calibrate": 1.0, "tally_weights": "reliability", "abstain": 0.5},
        {"calibrate": 1.0, "tally_weights": "reliability", "topology": "ring"},
        {"overlap": True, "merge_precision": "int8", "merge_every": 2, "link": "1mbit,100ms", "compute": "1s"},
        {"overlap": True, "method": "rcfd", "topology": "ring", "merge_every": 3},
        {"join": "node-1@7", "leave": "node-2@5", "method": "diloco"},  # the newcomer comes right after the checkpoint
        {"join": "node-1@5,node-3@8", "leave": "node-2@7", "merge_precision": "int8"},
        {"nodes": 10, "leave": "churn:0.2", "method": "fedprox"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_an_interrupted_run_ends_as_if_it_had_not_been(
    options: dict[str, Any], engine: EngineName, tmp_path: Path
) -> None:
    federation = small(**options, ballot="coded", eval_every=2)
    straight = simulate(federation, settings(tmp_path / "straight"), engine=engine)
    interrupt(federation, tmp_path / "stopped", 8, engine)
    assert sorted(path.name for path in (tmp_path / "stopped" / "checkpoints").iterdir()) == [
        "checkpoint-00000004.safetensors",
        "checkpoint-00000006.safetensors",
    ]
    heard: list[int] = []
    resumed = simulate(
        federation, settings(tmp_path / "stopped"), lambda line: heard.append(line.round), engine, resume=True
    )
    assert heard == [8]  # rounds up to the checkpoint's are not played again
    assert_same(resumed, straight)
    assert not (tmp_path / "stopped" / "checkpoints").exists()
    assert not (tmp_path / "straight" / "checkpoints").exists()


@pytest.mark.usefixtures("at_every_evaluated_round")
@pytest.mark.parametrize("engine", ["exact", "stacked"])
@pytest.mark.parametrize(
    "options",
    [
        # Channels open one by one: some peers step alone.
        {"topology": "ring", "nodes": 6, "warmup": "auto", "rounds": 24, "local_steps": 4, "batch": 16},
        {"model": "own_models:with_extras"},  # dropout, buffers, frozen parameters
        {"topology": "matchings", "nodes": 5},  # another graph every round
        {"model": "mlp:8,own_models:with_extras,mlp:8,mlp", "nodes": 6, "merge_every": 0},
    ],
    ids=["openings", "dropout", "varying", "mixed"],
)
def test_interrupted_twice(options: dict[str, Any], engine: EngineName, tmp_path: Path) -> None:
    federation = small(**options)
    straight = simulate(federation, settings(tmp_path / "straight"), engine=engine)
    interrupt(federation, tmp_path / "stopped", federation.rounds // 2, engine)
    interrupt(federation, tmp_path / "stopped", federation.rounds - 1, engine, resume=True)
    assert_same(simulate(federation, settings(tmp_path / "stopped"), None, engine, resume=True), straight)


@pytest.mark.usefixtures("at_every_evaluated_round")
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_or_for_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = small()
    straight = simulate(federation, settings(tmp_path / "straight"))
    interrupt(federation, tmp_path / "stopped", 6)
    shutil.copytree(tmp_path / "stopped", tmp_path / "twice")
    shutil.copytree(tmp_path / "stopped", tmp_path / "cut")

    _, newer = sorted((tmp_path / "stopped" / "checkpoints").iterdir())
    newer.write_bytes(newer.read_bytes()[:-1] + b"\xff")
    heard: list[int] = []
    assert_same(
        simulate(federation, settings(tmp_path / "stopped"), lambda line: heard.append(line.round), resume=True),
        straight,
    )
    assert heard[0] == 5
    assert f"{newer.name} passed over: its digest does not fit" in caplog.text

    for path in (tmp_path / "twice" / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:1000])
    assert_same(simulate(federation, settings(tmp_path / "twice"), resume=True), straight)
    assert "no checkpoint to go on from: beginning at round 1" in caplog.text

    lines = tmp_path / "cut" / "rounds.jsonl"
    lines.write_text("".join(lines.read_text().splitlines(keepends=True)[:4]))
    caplog.clear()
    assert_same(simulate(federation, settings(tmp_path / "cut"), resume=True), straight)
    assert "checkpoint of round 5 passed over: rounds.jsonl lacks lines" in caplog.text
    assert "beginning at round 1" not in caplog.text


def test_what_another_federation_or_engine_left_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    interrupt(small(), tmp_path / "stopped", 4)
    run = simulate(small(), settings(tmp_path / "stopped"), engine="stacked", resume=True)
    assert "it is of another federation" in caplog.text
    assert run.parameters_sha256 == simulate(small(), engine="stacked").parameters_sha256


def test_a_graph_whose_file_has_changed_is_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph = tmp_path / "graph.txt"
    graph.write_text("0 1\n1 2\n2 3\n3 0\n")
    federation = small(topology=f"file:{graph}")
    interrupt(federation, tmp_path / "stopped", 4)
    graph.write_text("0 1\n1 2\n2 3\n")
    run = simulate(federation, settings(tmp_path / "stopped"), resume=True)
    assert "it is of another federation" in caplog.text
    assert run.parameters_sha256 == simulate(federation).parameters_sha256


class Spy:
    """Stands in for engine, record and disk: a checkpoint takes it two seconds."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock
        self.saved: list[int] = []

    def state(self) -> module.EngineState:
        return module.EngineState({}, {})

    def restore(self, round: int, state: module.EngineState) -> None:
        raise AssertionError("nothing is taken up here")

    def save(self, checkpoint: Any) -> bool:
        self.saved.append(checkpoint.round)
        self.clock[0] += 2.0
        return True


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (60.0, [60, 122, 184]),
        (10.0, [10, 50, 90, 130, 170]),  # 2 of 40 seconds: a twentieth, however short the wish
        (0.0, []),
    ],
)
def test_checkpoints_take_a_small_share_of_the_time(seconds: float, expected: list[int], tmp_path: Path) -> None:
    clock = [0.0]
    spy = Spy(clock)
    fields = {"total": module.Count(), "run": Run(small(rounds=200), []), "clock": NoClock()}
    lines: Any = type("FakeLines", (), fields)()
    folder = RunFolder(tmp_path / "run")
    fake: Any = spy
    kept = module.RunCheckpoints(spy, lines, folder, fake, seconds, lambda: clock[0])
    at: list[int] = []
    while clock[0] < 200:
        before = len(spy.saved)
        now = clock[0]
        kept.on_line(RoundLine(1, [], [], False, None, None, None, None, 0, 0, {}, {}))
        if len(spy.saved) > before:
            at.append(int(now))
        clock[0] += 1.0
    folder.close()
    assert at == expected


def test_two_processes_do_not_share_a_run_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(ConfigError, match="another process is running in this folder"):
        RunFolder.reopen(tmp_path / "run")
    folder.close()
    RunFolder.reopen(tmp_path / "run").close()
