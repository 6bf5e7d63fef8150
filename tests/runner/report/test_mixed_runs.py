"""Peers with different models: what a run, a report and a sweep say of them."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from conftest import small

from p2p_tally.config import NodeSettings, SimulationSettings
from p2p_tally.errors import ConfigError
from p2p_tally.runner.experiments.experiment import load_experiment
from p2p_tally.runner.experiments.local_cells import LocalCells
from p2p_tally.runner.experiments.sweep import choose, sweep
from p2p_tally.runner.report.results import collect
from p2p_tally.runner.report.sent_bytes import measure_runs
from p2p_tally.runner.report.tables import cell_table, provenance_table
from p2p_tally.runner.simulation.simulate import simulate

MODEL = "mlp:8,mlp,mlp"


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("p2p_tally.runner.report.accuracy_figure.accuracy_figure", lambda *_: None)
    simulate(small(model=MODEL, merge_every=0), NodeSettings(out=tmp_path / "run"))
    return tmp_path / "run"


def test_the_summary_tells_the_models_apart(run_folder: Path) -> None:
    summary = json.loads((run_folder / "summary.json").read_text())
    assert summary["parameters"] == [610, 4810, 4810, 610]
    last = np.array(summary["accuracy"])  # the tail is one round
    assert summary["tail_by_model"] == pytest.approx({"mlp:8": last[[0, 3]].mean(), "mlp": last[[1, 2]].mean()})
    assert tomllib.loads((run_folder / "config.toml").read_text())["model"] == MODEL
    again, made = simulate(small(model=MODEL, merge_every=0)), json.loads((run_folder / "made.json").read_text())
    assert again.provenance.parameters == made["parameters"] == summary["parameters"]


def test_the_summary_of_one_model_says_nothing_of_it() -> None:
    for model in ("mlp", "mlp,mlp"):
        summary = simulate(small(model=model, rounds=1, warmup=0, tail=1)).summary()
        assert not {"tail_by_model", "parameters"} & summary.keys()


def test_a_report_has_the_smallest_and_the_largest(run_folder: Path) -> None:
    (results,) = collect([run_folder])
    (cell,) = results.cells
    tails = json.loads((run_folder / "summary.json").read_text())["tail_by_model"]
    smallest, largest = cell.metric("tail_smallest"), cell.metric("tail_largest")
    assert smallest is not None and largest is not None
    assert (smallest.mean, largest.mean) == pytest.approx((tails["mlp:8"], tails["mlp"]))
    table = cell_table(results)
    assert list(table.header)[3:5] == ["of the smallest models", "of the largest"]
    assert ["**model**", f"{MODEL}, 610 / 4,810 parameters"] in provenance_table(results).rows
    (measured,) = measure_runs([run_folder])
    assert measured.payload == measured.as_byte == 3 * 16 * 6  # to three neighbours, in six open rounds


def test_a_sweep_refuses_before_it_makes_a_folder(tmp_path: Path) -> None:
    changes = {"model": "mlp,mlp:8"}
    experiment = load_experiment("default", changes)
    where, settings, out = LocalCells(1), SimulationSettings(), tmp_path / "sweep"
    with pytest.raises(ConfigError, match=r"^cell fedavg-fa50: --model mlp,mlp:8: --method fedavg with"):
        sweep(experiment, choose(experiment, "local,fedavg-fa50"), [0], out, where=where, settings=settings, changes={})
    assert not out.exists()
