"""predict, evaluate and export as a user types them: output, files, one-line errors."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import command, small
from PIL import Image

from p2p_tally import cli
from p2p_tally.config import NodeSettings
from p2p_tally.runner.simulation.simulate import simulate

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Call the entry point in this process; exit code, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["p2p-tally", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of digits."""
    out = tmp_path_factory.mktemp("digits") / "run"
    simulate(small(nodes=2), NodeSettings(out=out))
    return out / "node-0.safetensors"


@pytest.fixture(scope="module")
def pixels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of small pictures: dark ones are class 0, bright ones class 1."""
    folder = tmp_path_factory.mktemp("pixels")
    y = np.arange(300) % 2
    x = np.full((300, 3, 8, 8), 30, np.uint8) + (180 * y[:, None, None, None]).astype(np.uint8)
    np.savez(folder / "data.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    federation = small(nodes=2, data=f"npz:{folder}/data.npz", model="mlp", local_steps=10)
    simulate(federation, NodeSettings(out=folder / "run"))
    return folder / "run" / "node-0.safetensors"


def test_evaluate_shows_accuracy_and_the_whole_table(digits: Path, ask: Ask) -> None:
    code, out, _ = ask("evaluate", str(digits), "--data", "digits")
    assert code == 0
    assert "node-0.safetensors on digits: rows true, columns predicted" in " ".join(out.split())  # it may be wrapped
    reported = json.loads((digits.parent / "summary.json").read_text())["accuracy"][0]
    assert f"accuracy {reported} % of 400 examples" in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_evaluate_draws_and_prints_json(digits: Path, ask: Ask, tmp_path: Path) -> None:
    plot = tmp_path / "confusion.svg"
    code, out, _ = ask("evaluate", str(digits), "--data", "digits", "--test-count", "50", "--plot", str(plot), "--json")
    assert code == 0 and len(out.splitlines()) == 1
    found = json.loads(out)
    assert found.keys() == {"model", "examples", "accuracy", "loss", "confusion"}
    assert found["examples"] == 50 == sum(map(sum, found["confusion"]))
    assert plot.read_text().startswith("<?xml")


def test_predict_writes_a_line_an_example(digits: Path, ask: Ask, tmp_path: Path) -> None:
    code, out, _ = ask("predict", str(digits), "--data", "digits")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and len(rows) == 400
    assert rows[0].keys() == {"example", "prediction", "probability", "label"}
    code, said, _ = ask("predict", str(digits), "--data", "digits", "--out", str(tmp_path / "p.csv"))
    assert (code, said) == (0, f"written: {tmp_path}/p.csv\n")
    assert (tmp_path / "p.csv").read_text() == out
    _, line, _ = ask("predict", str(digits), "--data", "digits", "--json")
    assert [str(cls) for cls in json.loads(line)["predictions"]] == [row["prediction"] for row in rows]


def test_predict_reads_image_files(pixels: Path, ask: Ask, tmp_path: Path) -> None:
    for name, value in (("night", 10), ("day", 240)):
        Image.fromarray(np.full((20, 30), value, np.uint8)).save(tmp_path / f"{name}.png")
    both = ("--data", str(tmp_path / "night.png"), "--data", str(tmp_path / "day.png"))
    code, out, _ = ask("predict", str(pixels), *both)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [(row["example"], row["prediction"]) for row in rows] == [
        (f"{tmp_path}/night.png", "0"),
        (f"{tmp_path}/day.png", "1"),
    ]


def test_predict_continues_a_text(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text("vote and tally, " * 400)
    federation = small(
        nodes=1, data=f"text:{tmp_path}/all.txt", vocabulary=260, context=8, partition="chunks", model="tinygpt:16x1",
        rounds=30, lr=0.01, probes_per_round=2, eval_every=30, tail=1,
    )  # fmt: skip
    simulate(federation, NodeSettings(out=tmp_path / "run"))
    (tmp_path / "part.txt").write_text("vote and tal")
    code, out, _ = ask("predict", str(tmp_path / "run" / "node-0.safetensors"), "--data", f"text:{tmp_path}/part.txt")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert rows[0].keys() == {"token", "prediction", "probability", "text"}
    assert "".join(row["token"] for row in rows) == "vote and tal"
    assert "ly, vote and tally, vote".startswith(rows[-1]["text"])


def test_a_reader_that_has_seen_enough_is_no_error(digits: Path, quiet_environment: dict[str, str]) -> None:
    """Nobody reads the other end of the pipe."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command("predict", str(digits), "--data", "digits"),
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=quiet_environment,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("evaluate", "none", "--data", "digits"), "none: No such file or directory"),
        (("evaluate", "MODEL", "--data", "nowhere"), "--data nowhere: accepted is one of "),
        (("evaluate", "MODEL", "--data", "digits", "--plot", "a.txt"), "--plot a.txt: accepted is a file that ends"),
        (("evaluate", "MODEL", "--data", "digits", "--plot", "no/a.svg"), "--plot no/a.svg: No such file or directory"),
        (("evaluate", "MODEL", "--data", "digits", "--device", "tpu"), "--device tpu: accepted is auto, cpu, cuda"),
        (("evaluate", "MODEL", "--data", "digits", "--model", "a:b"), "MODEL: its model is mlp; --model is accepted"),
        (("predict", "MODEL", "--data", "digits", "--out", "no/a.csv"), "--out no/a.csv: No such file or directory"),
        (("predict", "MODEL"), "Missing option '--data'"),
        (("export", "none", "--out", "a.onnx"), "none: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...], complaint: str, digits: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "MODEL").write_bytes(digits.read_bytes())
    code, out, err = ask(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"p2p-tally: {complaint}") and err.count("\n") == 1
