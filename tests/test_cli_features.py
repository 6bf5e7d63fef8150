"""`p2p-tally features` as a user types it."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p2p_tally import cli

SIZES = ["--centroids", "6", "--dimensions", "4"]

Run = Any  # what the fixture gives: arguments -> exit code, stdout, stderr


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command in a folder with images.npz (a task) and pool.npz (probes)."""
    monkeypatch.chdir(tmp_path)

    def pixels(count: int, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(256, size=(count, 10, 10, 3)).astype(np.uint8)

    labels = {"y_train": np.arange(60) % 3, "y_test": np.arange(20) % 3}
    np.savez("images.npz", x_train=pixels(60, 0), x_test=pixels(20, 1), **labels)
    np.savez("pool.npz", x=pixels(30, 2))
    (tmp_path / "cli_backbones.py").write_text(
        "from torch import nn\ndef flat():\n    return nn.Sequential(nn.AvgPool2d(5), nn.Flatten())\n", encoding="utf-8"
    )

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["p2p-tally", "features", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return call


def test_it_says_what_it_did_and_writes_the_file(run: Run) -> None:
    code, out, err = run("npz:images.npz", *SIZES, "--out", "F.npz", "--check")
    assert code == 0
    assert "60 images and 20 test images as 4 numbers each" in out
    assert "learned from the 60 training images, no labels: 6 centroids" in out
    assert "written: F.npz; computed in" in out
    assert "trained on all of them in one place: test" in out
    assert "features: training images 100 %" in err
    arrays = np.load("F.npz")
    assert arrays["x_train"].shape == (60, 4) and arrays["x_test"].shape == (20, 4)
    assert arrays["y_train"].tolist() == [i % 3 for i in range(60)]


def test_the_second_call_computes_nothing_and_writes_the_same_bytes(run: Run) -> None:
    run("npz:images.npz", *SIZES, "--out", "F.npz")
    code, out, err = run("npz:images.npz", *SIZES, "--out", "G.npz", "--json")
    assert code == 0 and err == ""
    facts = json.loads(out)
    assert facts["cached"] is True and facts["out"] == "G.npz"
    first, second = np.load("F.npz"), np.load("G.npz")
    assert first.files == second.files
    assert all(np.array_equal(first[name], second[name]) for name in first.files)


def test_without_out_the_features_are_kept_for_the_source(run: Run) -> None:
    code, out, _ = run("npz:images.npz", *SIZES)
    assert code == 0 and "kept for --data features:npz:images.npz" in out
    assert not Path("F.npz").exists()


def test_like_embeds_other_images_the_same_way(run: Run) -> None:
    run("npz:images.npz", *SIZES, "--out", "F.npz")
    code, out, _ = run("npz:images.npz", "--like", "F.npz", "--out", "again.npz")
    assert code == 0 and "embedded with the extractor in F.npz" in out
    first, again = np.load("F.npz"), np.load("again.npz")
    assert all(np.array_equal(first[name], again[name]) for name in first.files)
    code, _, _ = run("npz:pool.npz", "--like", "F.npz", "--out", "P.npz")
    assert code == 0 and np.load("P.npz")["x"].shape == (30, 4)


def test_a_backbone_embeds_without_an_extractor(run: Run) -> None:
    code, out, _ = run("npz:images.npz", "--backbone", "cli_backbones:flat", "--out", "B.npz", "--json")
    assert code == 0
    facts = json.loads(out)
    assert (facts["dimensions"], facts["centroids"], facts["backbone"]) == (12, None, "cli_backbones:flat")
    assert sorted(np.load("B.npz").files) == ["x_test", "x_train", "y_test", "y_train"]
    code, _, err = run("npz:pool.npz", "--like", "B.npz", "--out", "P.npz")
    assert code == 2 and "--like B.npz: holds no extractor" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["npz:pool.npz"], "has no array 'x_train'"),
        (["digits"], "--data digits: inputs of type torch.float32"),
        (["npz:images.npz", "--dimensions", "300"], "--dimensions 300: accepted is 1 to 60"),
        (["npz:images.npz", "--like", "F.npz"], "--like: needs --out FILE"),
        (["npz:images.npz", "--backbone", "a:b"], "--backbone: needs --out FILE"),
        (["npz:images.npz", "--like", "F.npz", "--backbone", "a:b"], "--like and --backbone: accepted is one"),
        (["npz:images.npz", "--weights", "w.pt"], "--weights w.pt: accepted with --backbone only"),
        (["npz:images.npz", "--like", "F.npz", "--out", "G.npz", *SIZES], "--centroids: follows from --like"),
        (["npz:images.npz", "--out", "absent/F.npz"], "--out absent/F.npz: accepted is a file in a folder"),
        (["npz:images.npz", "--out", "."], "--out .: accepted is a file in a folder"),
        (["npz:images.npz", "--like", "absent.npz", "--out", "G.npz"], "--like absent.npz: No such file"),
        (["npz:images.npz", "--device", "moon"], "device"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err and len(err.splitlines()) == 1


def test_check_needs_a_test_set(run: Run) -> None:
    run("npz:images.npz", *SIZES, "--out", "F.npz")
    code, _, err = run("npz:pool.npz", "--like", "F.npz", "--out", "P.npz", "--check")
    assert code == 2 and "--check: npz:pool.npz has no test set" in err
