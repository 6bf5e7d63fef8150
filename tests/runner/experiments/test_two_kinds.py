"""The experiment in docs/experiments/two-kinds: models that see one of two kinds of features."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from p2p_tally.runner.experiments.experiment import load_experiment

FOLDER = Path(__file__).parents[3] / "docs" / "experiments" / "two-kinds"


@pytest.fixture
def two_kinds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("two_kinds")
    del sys.modules["two_kinds"]


def test_a_file_of_both_kinds(two_kinds: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images: dict[str, Any] = {
        "x_train": rng.integers(0, 256, (400, 12, 12, 3), np.uint8),
        "y_train": rng.integers(0, 10, 400),
    }
    images |= {"x_test": images["x_train"][:50], "y_test": images["y_train"][:50]}
    embedded: dict[str, Any] = {**images, "x_train": rng.normal(size=(400, 256)), "x_test": rng.normal(size=(50, 256))}
    np.savez(tmp_path / "images.npz", **images)
    np.savez(tmp_path / "features.npz", **embedded)
    two_kinds.main(tmp_path / "images.npz", tmp_path / "features.npz", tmp_path / "both.npz")
    both = np.load(tmp_path / "both.npz")
    assert both["x_train"].shape == (400, 512) and both["x_train"].dtype == np.float32
    np.testing.assert_allclose(both["x_train"][:, :256], embedded["x_train"], rtol=1e-5)
    pixels = both["x_train"][:, 256:]
    np.testing.assert_allclose(np.cov(pixels.T), np.eye(256), atol=1e-2)  # principal components, of variance 1
    np.testing.assert_allclose(both["x_test"][:, 256:], pixels[:50], atol=1e-4)  # the same images, the same way
    np.savez(tmp_path / "others.npz", **{**embedded, "y_train": embedded["y_train"][::-1]})
    with pytest.raises(SystemExit, match="its labels are not those of"):
        two_kinds.main(tmp_path / "images.npz", tmp_path / "others.npz", tmp_path / "both.npz")


def test_a_model_sees_its_own_columns(two_kinds: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 512)
    other = torch.cat([x[:, :256], torch.randn(3, 256)], 1)
    seen, unseen = two_kinds.features(10), two_kinds.pixels(10)
    assert torch.equal(seen(x), seen(other))
    assert not torch.equal(unseen(x), unseen(other))


def test_its_findings_can_be_judged() -> None:
    experiment = load_experiment(str(FOLDER / "two-kinds.toml"))
    names = {cell.name for cell in experiment.cells}
    assert len(experiment.findings) == 4
    assert all(one.cells <= names for one in experiment.findings)
