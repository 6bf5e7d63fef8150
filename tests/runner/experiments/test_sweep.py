"""Sweeps: cells by seeds as processes, resumed, and with a cell among them that fails."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import command, wait_until

from p2p_tally.config import NodeSettings, SimulationSettings, parse_options, read_options
from p2p_tally.errors import ConfigError
from p2p_tally.runner.experiments.experiment import Cell, Experiment, load_experiment
from p2p_tally.runner.experiments.local_cells import LocalCells
from p2p_tally.runner.experiments.sweep import MANIFEST, Job, choose, parse_changes, parse_seeds, sweep
from p2p_tally.runner.experiments.sweep_display import progress
from p2p_tally.runner.runs.provenance import read_provenance
from p2p_tally.runner.simulation.simulate import simulate

MINE = """
title = "Mine"
[facts]
classes = 10
parameters = 4_810
[base]
nodes = 3
rounds = 4
local_steps = 1
[[cells]]
name = "local"
method = "local"
[[cells]]
name = "broken"
probe_count = 1_000_000
"""


def experiment_file(folder: Path, text: str = MINE) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def run_sweep(
    experiment: Experiment,
    cells: Sequence[Cell],
    seeds: list[int],
    out: Path,
    changes: dict[str, str] | None = None,
    notes: Sequence[str] = (),
) -> list[Job]:
    settings, changes = SimulationSettings(), changes or {}
    return sweep(experiment, cells, seeds, out, where=LocalCells(1), settings=settings, changes=changes, notes=notes)


def test_a_failing_cell_stops_no_other_and_what_is_finished_is_kept(tmp_path: Path) -> None:
    out, file = tmp_path / "out", str(experiment_file(tmp_path))
    other = out / "local/seed-0/checkpoints/checkpoint-00000003.safetensors"  # of who knows what options
    other.parent.mkdir(parents=True)
    other.write_bytes(b"")
    first = subprocess.run(
        command("sweep", file, "--out", str(out), "--json"), capture_output=True, text=True, check=False
    )
    assert first.returncode == 1, first.stderr
    said = json.loads(first.stdout)
    assert (said["done"], said["kept"], said["failed"]) == (1, 0, 1)
    [failure] = said["failures"]
    assert failure["cell"] == "broken"
    assert failure["error"].startswith("--probe-count 1000000: accepted is")
    assert "broken seed 0: failed" in first.stderr
    record = out / "local/seed-0/summary.json"
    assert json.loads(record.read_text())["method"] == "local"
    assert (out / "local/seed-0/config.toml").is_file()
    assert not other.parent.exists()
    assert progress(out / "local/seed-0").startswith("round 4, accuracy ")

    federation, settings = parse_options(read_options(out / "local/seed-0/config.toml"), NodeSettings)
    assert simulate(federation, settings).parameters_sha256 == json.loads(record.read_text())["parameters_sha256"]

    written = record.stat().st_mtime_ns
    experiment = load_experiment(file)
    again = run_sweep(experiment, experiment.cells[:1], [0], out)
    assert [job.state for job in again] == ["kept"]
    assert record.stat().st_mtime_ns == written

    # A file from before an option was known asked for its default.
    asked = out / "local/seed-0.toml"
    asked.write_text("".join(line for line in asked.read_text().splitlines(True) if not line.startswith("ballot")))
    [kept] = run_sweep(experiment, experiment.cells[:1], [0], out)
    assert kept.state == "kept"

    changed = load_experiment(file, {"rounds": "5"})
    with pytest.raises(ConfigError, match="finished run with other options"):
        run_sweep(changed, changed.cells[:1], [0], out, {"rounds": "5"})


def test_a_refused_sweep_loses_nothing(tmp_path: Path) -> None:
    """A slip in --set once removed the interrupted cells before it came to a finished one, and refused."""
    out, file = tmp_path / "out", str(experiment_file(tmp_path))
    experiment = load_experiment(file)
    run_sweep(experiment, experiment.cells[:1], [0, 1], out)
    (out / "local/seed-0/summary.json").unlink()  # as if it had been interrupted
    kept = out / "local/seed-0/checkpoints/checkpoint-00000003.safetensors"
    kept.parent.mkdir()
    kept.write_bytes(b"")
    changed = load_experiment(file, {"rounds": "5"})
    for seeds, what in (([0, 1], "an interrupted"), ([1, 0], "a finished"), ([0], "an interrupted")):
        with pytest.raises(ConfigError, match=f"{what} run with other options; accepted is another --out"):
            run_sweep(changed, changed.cells[:1], seeds, out, {"rounds": "5"})
        assert kept.is_file() and (out / "local/seed-0/rounds.jsonl").is_file()


LONGER = ["--cells=local", "--set=rounds=450", "--set=eval-every=3", "--set=tail=9", "--checkpoint-seconds=0.01"]


def test_an_interrupted_cell_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    out, file = tmp_path / "out", experiment_file(tmp_path)
    folder, arguments = out / "local/seed-0", command("sweep", str(file), *LONGER, f"--out={out}")

    def checkpoints() -> set[str]:
        return {path.name for path in folder.glob("checkpoints/*.safetensors")}

    for number, code, said in (
        (signal.SIGINT, 130, "stopped; the same command goes on"),
        (signal.SIGKILL, -9, "goes on"),
    ):
        before = checkpoints()
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until(lambda before=before: checkpoints() - before, "no checkpoint")
        with pytest.raises(ConfigError, match="another sweep is running"):
            run_sweep(load_experiment(str(file)), [], [0], out)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=30)
        assert process.returncode == code
        assert said in stderr.splitlines()[-1]
        wait_until(lambda: not _processes_with(str(out)), "a cell outlived its sweep")
        assert not (folder / "summary.json").exists()

    again = subprocess.run([*arguments, "--json"], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "local seed 0: goes on from its checkpoint" in again.stderr
    assert "going on after round" in (out / "local/seed-0.log").read_text()
    assert not (folder / "checkpoints").exists()
    federation, _ = parse_options(read_options(folder / "config.toml"), NodeSettings)
    straight = simulate(federation, NodeSettings(out=tmp_path / "straight"))
    summary = json.loads((folder / "summary.json").read_text())
    expected = json.loads((tmp_path / "straight/summary.json").read_text())
    assert summary["parameters_sha256"] == straight.parameters_sha256
    assert _without_seconds([summary]) == _without_seconds([expected])
    records = [
        [json.loads(line) for line in (where / "rounds.jsonl").read_text().splitlines()]
        for where in (folder, tmp_path / "straight")
    ]
    assert _without_seconds(records[0]) == _without_seconds(records[1])


def _without_seconds(values: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{key: value for key, value in item.items() if key not in ("seconds", "run")} for item in values]


def _processes_with(text: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if text in words and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("rounds", "--set rounds: accepted is KEY=VALUE"),
        ("ronds=3", "--set ronds=3: accepted is KEY=VALUE, KEY one of abstain, align, alpha, "),
        ("seed=3", "--set seed=3: accepted is"),
    ],
)
def test_a_bad_change_is_one_line(given: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_changes([given])
    assert message in str(caught.value)


def test_changes_win_over_every_cell_and_are_checked(tmp_path: Path) -> None:
    assert parse_changes(["data=npz:a=b.npz", "merge-every=7"]) == {"data": "npz:a=b.npz", "merge_every": "7"}
    cells = load_experiment("bridge-small", {"merge_every": "7", "data": "npz:x.npz"}).cells
    assert {cell.federation.merge_every for cell in cells} == {7}
    assert {cell.federation.data for cell in cells} == {"npz:x.npz"}
    with pytest.raises(ConfigError, match="cell local, as changed: --rounds many: accepted is a whole number"):
        load_experiment(str(experiment_file(tmp_path)), {"rounds": "many"})


def test_cells_and_seeds() -> None:
    experiment = load_experiment("probes-per-round")
    assert [cell.name for cell in choose(experiment, "cifar10-b4,cifar100-*")] == [
        "cifar10-b4",
        "cifar100-b8",
        "cifar100-b32",
        "cifar100-b128",
    ]
    with pytest.raises(ConfigError, match="--cells nope: accepted are cells of probes-per-round: cifar10-b4"):
        choose(experiment, "nope")
    assert parse_seeds("0,2") == [0, 2]
    for bad in ("", "a", "0,0", "-1", str(2**63)):
        with pytest.raises(ConfigError, match="--seeds"):
            parse_seeds(bad)


def test_a_folder_holds_one_experiment(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps({"experiment": "other", "cells": []}))
    experiment = load_experiment("default")
    with pytest.raises(ConfigError, match="holds a sweep of other, not of default"):
        run_sweep(experiment, experiment.cells, [0], tmp_path)


def test_the_byte_column_is_left_out_where_a_change_makes_it_void(tmp_path: Path) -> None:
    for changes, known in (({"model": "mlp"}, False), ({"data": "npz:x"}, True)):
        experiment = load_experiment("hybrid-small", changes)
        out = tmp_path / "-".join(changes)
        run_sweep(experiment, experiment.cells, [], out, changes)
        cells = json.loads((out / MANIFEST).read_text())["cells"]
        assert [cell["payload_bytes"] is not None for cell in cells] == [known] * 3


def test_the_engine_of_an_experiment_plays_its_cells_and_notes_stay(tmp_path: Path) -> None:
    file = experiment_file(tmp_path, 'engine = "stacked"\n' + MINE)
    experiment = load_experiment(str(file))
    out = tmp_path / "out"
    for notes in (["first"], ["second", "first"]):
        [job] = run_sweep(experiment, experiment.cells[:1], [0], out, notes=notes)
    assert job.state == "kept"
    assert json.loads((out / MANIFEST).read_text())["notes"] == ["first", "second"]
    federation, settings = parse_options(read_options(job.folder / "config.toml"), SimulationSettings)
    assert settings.engine == "stacked"
    made = read_provenance(job.folder)
    assert (made.engine, made.parameters, made.test) == ("stacked", 4810, 400)
    assert made.versions is not None and "torch" in made.versions
    summary = json.loads((job.folder / "summary.json").read_text())
    assert simulate(federation, settings).parameters_sha256 == summary["parameters_sha256"]


def test_a_cell_that_is_not_forked_computes_the_same(tmp_path: Path) -> None:
    """As on platforms that cannot fork. The other sweeps here are forked where the platform can."""
    experiment = load_experiment(str(experiment_file(tmp_path)))
    where, settings = LocalCells(1, forked=False), SimulationSettings()
    [job] = sweep(experiment, experiment.cells[:1], [0], tmp_path / "out", where=where, settings=settings, changes={})
    assert job.state == "done"
    said = json.loads((job.folder / "summary.json").read_text())["parameters_sha256"]
    assert said == simulate(job.federation).parameters_sha256
