"""A run's model, used elsewhere by another process that has its file alone: the accuracy that the run reported.

The process starts in an empty folder, in which are the model, the data that it is tested on, and for a model of the
user's own the module that builds it.
"""

import csv
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import command, small

from p2p_tally import load
from p2p_tally.config import EngineName, SimulationSettings
from p2p_tally.learning.saved.inputs import Finder, first
from p2p_tally.learning.saved.predict import evaluate
from p2p_tally.runner.runs.run import Run
from p2p_tally.runner.simulation.simulate import simulate

ROOT = Path(__file__).parents[1]
OWN = "nets_to_take_away"

NETS = """
from torch import nn

def deep(input_shape, classes):
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Dropout(0.3), nn.Linear(96, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, classes),
    )
"""


def images(path: Path, side: int = 16) -> None:
    """Noisy images of four classes, each brighter in another corner."""
    draw = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 240), ("test", 90)):
        y = draw.integers(4, size=count)
        x = draw.integers(0, 200, size=(count, 3, side, side), dtype=np.uint8)
        half = side // 2
        for image, label in zip(x, y, strict=True):
            image[:, label // 2 * half :, label % 2 * half :][:, :half, :half] += 55
        arrays |= {f"x_{split}": x, f"y_{split}": y}
    np.savez(path, **arrays)


def words(path: Path) -> None:
    draw = np.random.default_rng(1)
    known = ["tally", "vote", "peer", "probe", "merge", "round", "ballot"]
    path.write_text(" ".join(draw.choice(known, size=3000)) + "\n")


@dataclass(frozen=True)
class Case:
    options: dict[str, Any]
    data: str
    files: tuple[str, ...] = ()  # what evaluation needs besides the model
    more: tuple[str, ...] = ()  # options of the command


IMAGES = {"data": "npz:images.npz", "probe_count": 40}
CASES = {
    "mlp": Case({"model": "mlp:24x2"}, "digits"),
    "cnn": Case({**IMAGES, "model": "cnn:8x2"}, "npz:images.npz", ("images.npz",)),
    "resnet18": Case(
        {**IMAGES, "model": "resnet18", "nodes": 2, "rounds": 2, "warmup": 1, "merge_every": 2, "test_count": 40},
        "npz:images.npz",
        ("images.npz",),
        ("--test-count", "40"),
    ),
    "tinygpt": Case(
        {"data": "text:words.txt", "vocabulary": 260, "context": 16, "partition": "chunks", "model": "tinygpt:16x1"}
        | {"probes_per_round": 2, "test_count": 50},
        "text:words.txt",
        ("words.txt",),
        ("--test-count", "50"),
    ),
    "own": Case(
        {**IMAGES, "model": f"{OWN}:deep"},
        "npz:images.npz",
        ("images.npz", f"{OWN}.py"),
        ("--model", f"{OWN}:deep"),
    ),
}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the run is made; the working folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    images(folder / "images.npz")
    words(folder / "words.txt")
    (folder / f"{OWN}.py").write_text(NETS)
    return folder


def run_of(case: Case, folder: Path, engine: EngineName) -> Run:
    federation = small(**{"nodes": 3, "rounds": 10, "local_steps": 4, **case.options})
    return simulate(federation, SimulationSettings(out=folder / "run", engine=engine))


def elsewhere(case: Case, model: Path, tmp_path: Path) -> Path:
    there = tmp_path / "there" / model.stem
    there.mkdir(parents=True)
    for path in (model, *(model.parents[1] / name for name in case.files)):
        shutil.copy(path, there)
    return there


def ask(folder: Path, *arguments: str) -> str:
    """The command's standard output; the environment names no other folder than the project's."""
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME")}
    environment = {**kept, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    done = subprocess.run(command(*arguments), cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "engine"),
    [("mlp", "stacked"), ("cnn", "exact"), ("resnet18", "exact"), ("tinygpt", "exact"), ("own", "stacked")],
)
def test_it_has_the_accuracy_that_the_run_reported(
    name: str, engine: EngineName, workplace: Path, tmp_path: Path
) -> None:
    case = CASES[name]
    run = run_of(case, workplace, engine)
    reported = run.summary()["accuracy"]
    loss = run.lines[-1].loss
    rank = len(run.names) - 1
    there = elsewhere(case, workplace / "run" / f"node-{rank}.safetensors", tmp_path)
    options = ("--data", case.data, *case.more)
    found = json.loads(ask(there, "evaluate", f"node-{rank}.safetensors", *options, "--json"))
    assert found["accuracy"] == reported[rank]
    assert found["loss"] == pytest.approx(loss[rank], rel=1e-5)
    assert 0 < reported[rank] < 100  # a model that is always wrong would agree too easily
    if name == "tinygpt":
        assert found["perplexity"] == pytest.approx(math.exp(loss[rank]), rel=1e-4)
    else:
        confusion = np.array(found["confusion"])
        assert confusion.sum() == found["examples"]
        assert 100 * (int(confusion.trace()) / found["examples"]) == reported[rank]
    for model, accuracy in zip(run.models, reported, strict=True):  # the others' without another process
        inputs = first(Finder(model.about).to_test(case.data), case.options.get("test_count"))
        assert evaluate(model, inputs).accuracy == accuracy


def test_predictions_have_it_too(workplace: Path, tmp_path: Path) -> None:
    case = CASES["own"]
    run = run_of(case, workplace, "exact")
    there = elsewhere(case, workplace / "run" / "node-1.safetensors", tmp_path)
    ask(there, "predict", "node-1.safetensors", "--data", case.data, *case.more, "--out", "said.csv")
    rows = list(csv.DictReader((there / "said.csv").open()))
    right = sum(row["prediction"] == row["label"] for row in rows)
    assert 100 * (right / len(rows)) == run.summary()["accuracy"][1]


def test_a_launched_one_has_it_too(workplace: Path) -> None:
    sizes = ("--nodes", "2", "--rounds", "6", "--warmup", "2", "--merge-every", "3", "--probe-count", "40")
    chosen = ("--data", "npz:images.npz", "--model", f"{OWN}:deep")
    summary = json.loads(ask(workplace, "launch", *sizes, *chosen, "--out", "run", "--json"))
    for rank in range(2):
        model = load(workplace / "run" / f"node-{rank}.safetensors", model=f"{OWN}:deep")
        found = evaluate(model, Finder(model.about).to_test("npz:images.npz"))
        assert found.accuracy == summary["accuracy"][rank]
