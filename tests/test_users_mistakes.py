"""Mistakes in a user's own model or data: each is one line that names the option, and none a traceback."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from p2p_tally import Arrays, Federation, Source
from p2p_tally.errors import OperatorError
from p2p_tally.learning.setup import make_learner, prepare

MODULE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden, out):
        super().__init__()


class Pair(nn.Linear):
    def forward(self, x):
        return super().forward(x), 1


model = nn.Linear(64, 10)


def seven():
    return nn.Linear(64, 7)


def flat():
    return nn.Sequential(nn.Linear(64, 10), nn.Flatten(0))


def pair():
    return Pair(64, 10)


def fails():
    raise KeyError("colour")


def takes(x):
    return x
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in {"mistaken": MODULE, "unfinished": "def f(:\n"}.items():
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(text)


def refusal(**options: object) -> str:
    with pytest.raises(OperatorError) as caught:
        task = prepare(Federation.parse({"nodes": 2, "rounds": 2, **options}))
        make_learner(task, "node-0", 0, "cpu")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"model": "mistaken:Net"},
            "--model mistaken:Net: needs hidden, out, which nobody gives it; accepted is one that",
        ),
        (
            {"model": "mistaken:model"},
            "--model mistaken:model: a Linear; accepted is a function that returns a torch.nn",
        ),
        ({"model": "mistaken:seven"}, "it gives (2, 7) for two examples; accepted are logits (2, 10)"),
        ({"model": "mistaken:flat"}, "it gives (20,) for two examples; accepted are logits (2, 10)"),
        ({"model": "mistaken:pair"}, "it gives a tuple; accepted are logits"),
        ({"model": "mistaken:fails"}, "--model mistaken:fails: it fails: KeyError: 'colour' (mistaken.py, line 32)"),
        ({"model": "unfinished:f"}, "its module fails: SyntaxError: invalid syntax (unfinished.py, line 1)"),
        ({"data": "mistaken:fails"}, "--data mistaken:fails: it fails: KeyError: 'colour' (mistaken.py, line 32)"),
        (
            {"data": "mistaken:takes"},
            "--data mistaken:takes: needs x, which nobody gives it; accepted is one that takes",
        ),
        ({"probes": "mistaken:fails"}, "--probes mistaken:fails: it fails: KeyError"),
    ],
)
def test_a_mistake_in_ones_own_module_is_one_line(options: dict[str, str], said: str) -> None:
    assert said in refusal(**options)


X, Y = torch.zeros(90, 4), torch.arange(90) % 3


def source(x: object = X, y: object = Y, **more: object) -> Source:
    values = {"train": Arrays(x, y), "test": Arrays(X, Y), "classes": 3, "input_shape": (4,), "holdout": 20}  # type: ignore[arg-type]
    return Source(**{**values, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: source(x=np.zeros((90, 4), np.float32)), r"train\.x is a numpy\.ndarray; accepted is a torch\.Tensor"),
        (lambda: source(y=Y.numpy()), r"train\.y is a numpy\.ndarray; accepted is a torch\.Tensor"),
        (lambda: source(y=Y.float()), r"train\.y is torch\.float32 \(90,\); accepted is torch\.int64 \(90,\)"),
        (lambda: source(y=Y[:80]), r"train\.y is torch\.int64 \(80,\); accepted is torch\.int64 \(90,\)"),
        (lambda: source(y=Y + 1), r"train\.y has classes 1 to 3; accepted is 0 to 2"),
        (lambda: source(x=X[:, :3]), r"train\.x has examples of shape \(3,\), input_shape says \(4,\)"),
        (lambda: source(test=(X, Y)), r"test is a tuple; accepted is Arrays\(x, y\)"),
    ],
)
def test_a_source_whose_arrays_do_not_fit_is_refused(make: Callable[[], Source], said: str) -> None:
    assert re.search(said, refusal(data=make()))


def test_a_source_that_fits_is_taken() -> None:
    task = prepare(Federation.parse({"nodes": 2, "rounds": 2, "data": source()}))
    assert isinstance(make_learner(task, "node-0", 0, "cpu").model, nn.Module)
