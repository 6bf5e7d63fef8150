"""Build the wheel, install it into a clean environment, and try it there: before a release.

    python scripts/try_wheel.py                  # fetches the pinned dependencies: minutes
    python scripts/try_wheel.py --borrow         # takes those of this Python: no network
    python scripts/try_wheel.py --models mlp,own

For each kind of model a run is made with the installed command. Its model is then taken to another folder. There it
must load, and `evaluate` and `predict` must have the accuracy that the run reported, to the last digit (TinyGPT:
`evaluate` alone).
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]

NETS = """
from torch import nn


def deep(input_shape, classes):
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Dropout(0.3), nn.Linear(96, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, classes),
    )
"""

LOAD = """
import json, sys
import p2p_tally
assert "site-packages" in p2p_tally.__file__, p2p_tally.__file__
model = p2p_tally.load("node-0.safetensors", model=json.loads(sys.argv[1]))
print(p2p_tally.__version__, type(model).__name__, model.training)
"""

IMAGES = ["--data=npz:images.npz", "--probe-count=40"]
TEXT = ["--data=text:words.txt", "--vocabulary=260", "--context=16", "--partition=chunks", "--probes-per-round=2"]
# Options of the run, and those of the evaluation.
MODELS: dict[str, tuple[list[str], list[str]]] = {
    "mlp": (["--model=mlp:24x2"], ["--data=digits"]),
    "cnn": ([*IMAGES, "--model=cnn:8x2"], ["--data=npz:images.npz"]),
    "resnet18": ([*IMAGES, "--model=resnet18", "--rounds=3"], ["--data=npz:images.npz"]),
    "tinygpt": ([*TEXT, "--model=tinygpt:16x1", "--test-count=50"], ["--data=text:words.txt", "--test-count=50"]),
    "own": ([*IMAGES, "--model=nets:deep"], ["--data=npz:images.npz", "--model=nets:deep"]),
}


def run(arguments: list[Any], folder: Path) -> str:
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [str(one) for one in arguments],
        cwd=folder,
        env=kept,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, arguments))}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def build(work: Path) -> Path:
    """The wheel, made from a copy: a build leaves files in the tree."""
    source = work / "source"
    for name in ("p2p_tally", "runner", "topologies"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    program = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    run([sys.executable, "-P", "-c", program, work], source)
    [wheel] = work.glob("*.whl")
    return wheel


def install(wheel: Path, work: Path, borrow: bool) -> Path:
    """The folder of programs of a new environment that has the wheel."""
    home = work / "clean"
    venv.create(home, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "--disable-pip-version-check", "install"]
    if borrow:
        run([*pip, "--quiet", "--no-deps", "--no-index", wheel], work)
        [packages] = home.glob("lib/python*/site-packages")
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    else:
        constraints = ROOT / "scripts" / "constraints.txt"
        run([*pip, "--quiet", "--constraint", constraints, f"{wheel}[vision,text]"], work)
    return home / "bin"


def write_data(folder: Path) -> None:
    """Noisy images of four classes, each brighter in another corner; words in random order; a module of one's own."""
    draw = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 240), ("test", 90)):
        y = draw.integers(4, size=count)
        x = draw.integers(0, 200, size=(count, 3, 16, 16), dtype=np.uint8)
        for image, label in zip(x, y, strict=True):
            image[:, label // 2 * 8 :, label % 2 * 8 :][:, :8, :8] += 55
        arrays |= {f"x_{split}": x, f"y_{split}": y}
    np.savez(folder / "images.npz", **arrays)
    known = ["tally", "vote", "peer", "probe", "merge", "round", "ballot"]
    (folder / "words.txt").write_text(" ".join(draw.choice(known, size=3000)) + "\n", encoding="utf-8")
    (folder / "nets.py").write_text(NETS, encoding="utf-8")


def check(name: str, bin: Path, work: Path) -> str:
    """Make a run, take its model away, and compare. Returns a line that says what held."""
    options, evaluation = MODELS[name]
    here, there = work / name / "here", work / name / "there"
    for folder in (here, there):
        folder.mkdir(parents=True)
        write_data(folder)
    sizes = ["--nodes=2", "--rounds=10", "--warmup=2", "--merge-every=4", "--local-steps=4", "--batch=8"]
    ran = json.loads(run([bin / "p2p-tally", "simulate", *sizes, *options, "--out=run", "--json"], here))
    shutil.copy(here / "run" / "node-0.safetensors", there)
    shutil.rmtree(here)
    reported = ran["accuracy"][0]
    model = ["node-0.safetensors", *evaluation]
    found = json.loads(run([bin / "p2p-tally", "evaluate", *model, "--json"], there))["accuracy"]
    own = "nets:deep" if name == "own" else None
    loaded = run([bin / "python", "-c", LOAD, json.dumps(own)], there).strip()
    if reported != found:
        sys.exit(f"{name}: the run reported {reported}, evaluate found {found}")
    held = f"{name}: {reported} % in the run and evaluated; loaded by {loaded}"
    if name == "tinygpt":  # predict takes a text as a whole, so there is no accuracy of the same part to compare
        return held
    run([bin / "p2p-tally", "predict", *model, "--out=said.csv"], there)
    with (there / "said.csv").open(encoding="utf-8") as file:
        right = [row["prediction"] == row["label"] for row in csv.DictReader(file)]
    said = 100 * (sum(right) / len(right))
    if reported != said:
        sys.exit(f"{name}: the run reported {reported}, predict has {said}")
    return f"{held}; predicted too"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--borrow", action="store_true", help="use the dependencies of this Python; no network")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        wheel = build(work)
        bin = install(wheel, work, given.borrow)
        for name in given.models.split(","):
            print(check(name, bin, work), flush=True)
    print(f"{wheel.name}: all held")


if __name__ == "__main__":
    main()
