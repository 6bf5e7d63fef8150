"""ONNX: what another program computes from the file is what the model computes."""

from pathlib import Path
from typing import Any

import numpy as np
import own_models
import pytest
import torch
from torch import Tensor, nn

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning.data.images import PerChannel
from p2p_tally.learning.saved import onnx_file
from p2p_tally.learning.saved.about import OWN, About
from p2p_tally.learning.saved.file import ModelFile, model_bytes
from p2p_tally.learning.saved.loaded import TrainedModel, loaded
from p2p_tally.learning.saved.onnx_file import export_onnx

PIXELS = PerChannel((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))


def as_onnx(model: TrainedModel, path: Path, x: np.ndarray) -> np.ndarray:
    pytest.importorskip("onnxscript", reason="the extra p2p-tally[onnx] is not installed")
    onnx: Any = pytest.importorskip("onnx.reference", reason="the extra p2p-tally[onnx] is not installed")
    export_onnx(model, path)
    (logits,) = onnx.ReferenceEvaluator(str(path)).run(None, {"inputs": x})
    return np.asarray(logits)


def made(about: About) -> TrainedModel:
    """A model of this project with its initial parameters, by way of a file."""
    from p2p_tally.config import Federation
    from p2p_tally.learning.models import construct

    federation = Federation(model=about.model, width=about.width, depth=about.depth)
    model = construct(federation, "", about.input_shape, about.classes, 0)
    return loaded(ModelFile.parse(model_bytes(model, about), "m"))


@pytest.mark.parametrize(
    "about",
    [
        About("mlp", 8, 1, (64,), 10),
        About("cnn", 8, 2, (3, 16, 16), 4, PIXELS),
        About("tinygpt", 8, 1, (12,), 50, tokenizer="{}"),
    ],
    ids=lambda about: about.model,
)
def test_it_computes_the_same(about: About, tmp_path: Path) -> None:
    model = made(about)
    draw = np.random.default_rng(0)
    for count in (2, 5):  # the number of examples is free
        shape = (count, *about.input_shape)
        x: np.ndarray = draw.normal(size=shape).astype(np.float32)
        if about.normalise is not None:
            x = draw.integers(256, size=shape).astype(np.uint8)
        elif about.tokenizer is not None:
            x = draw.integers(50, size=shape)
        with torch.no_grad():
            expected = model(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(as_onnx(model, tmp_path / "m.onnx", x), expected, rtol=1e-3, atol=1e-4)


def test_batch_norm_and_dropout_are_as_in_evaluation(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = own_models.with_norms(10)
    net(torch.randn(30, 64))  # its statistics are not those of the start
    model = TrainedModel(net, About("own", 0, 0, (64,), 10), None)
    x = torch.randn(3, 64)
    np.testing.assert_allclose(
        as_onnx(model, tmp_path / "m.onnx", x.numpy()), model(x).detach().numpy(), rtol=1e-3, atol=1e-4
    )


class Undecided(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.sum()) > 0 else -x


def test_what_torch_cannot_write_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="the extra p2p-tally[onnx] is not installed")
    pytest.importorskip("onnx", reason="the extra p2p-tally[onnx] is not installed")
    with pytest.raises(DataError, match=r"^export: torch cannot write this model as ONNX \([^\n]*\)$"):
        export_onnx(TrainedModel(Undecided(), About("own", 0, 0, (3,), 3), None), tmp_path / "m.onnx")


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "NEEDED", ("no_such_package",))
    with pytest.raises(ConfigError, match=r"^export: needs the package no_such_package; install it with: pip install"):
        export_onnx(made(About("mlp", 8, 1, (64,), 10)), tmp_path / "m.onnx")


def test_a_normalisation_of_the_users_own_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "NEEDED", ())
    model = TrainedModel(nn.Linear(3, 3), About("own", 0, 0, (3,), 3, OWN), lambda x: 2 * x)
    with pytest.raises(ConfigError, match=r"^export: the inputs are normalised by a function of the data source's own"):
        export_onnx(model, tmp_path / "m.onnx")
