"""A module of the user's own as the extractor."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from p2p_tally.errors import OperatorError
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.features.backbone import Backbone

MODULE = """
import torch
from torch import nn

def pooled():
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 5), nn.Dropout(0.5))

class Square(nn.Module):
    def forward(self, x):
        return x.mean(1)

class Pair(nn.Module):
    def forward(self, x):
        return x, x

class Endless(nn.Module):
    def forward(self, x):
        return x.flatten(1) / 0

def number():
    return 3

def wrong_size():
    return nn.Sequential(nn.Flatten(), nn.Linear(7, 5))
"""


@pytest.fixture(autouse=True)
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "backbones.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


def images(count: int) -> Arrays:
    return Arrays(
        torch.randint(256, (count, 3, 4, 4), generator=torch.Generator().manual_seed(0)).to(torch.uint8), None
    )


def embed(spec: str, weights: Path | None = None, count: int = 300) -> torch.Tensor:
    return Backbone(spec, weights, "cpu").embed(images(count), lambda *_: None, "images")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_images_from_0_to_1_go_through_the_module_with_the_weights(tmp_path: Path, suffix: str) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    path = tmp_path / f"weights{suffix}"
    (safetensors.torch.save_file if suffix == ".safetensors" else torch.save)(model.state_dict(), path)
    found = embed("backbones:pooled", path)  # its dropout is off: it is in evaluation mode
    assert found.shape == (300, 5) and not found.requires_grad
    assert torch.allclose(found, model(images(300).x.float() / 255), atol=1e-6)


def test_progress_counts_images() -> None:
    told: list[tuple[str, int, int]] = []
    Backbone("backbones:pooled", None, "cpu").embed(images(300), lambda *now: told.append(now), "images")
    assert told == [("images", 256, 300), ("images", 300, 300)]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("absent_module:f", "--backbone absent_module:f: no module named 'absent_module'"),
        ("backbones:absent", "module 'backbones' has no function 'absent'"),
        ("backbones:number", "must return a torch.nn.Module, not int"),
        ("backbones:Square", r"gives \(9, 4, 4\) for 9 images; accepted is \[9, D\]"),
        ("backbones:Pair", r"gives tuple for 9 images"),
        ("backbones:Endless", "not finite"),
        ("backbones:wrong_size", r"on images \(9, 3, 4, 4\) it fails"),
    ],
)
def test_what_is_no_backbone_is_refused_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(OperatorError, match=message) as caught:
        embed(spec, count=9)
    assert "\n" not in str(caught.value)


def test_weights_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "other.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "text.pt").write_text("no weights", encoding="utf-8")
    (tmp_path / "text.safetensors").write_text("no weights", encoding="utf-8")
    for name, message in {
        "other.pt": "does not fit the module",
        "list.pt": "does not fit the module",
        "text.pt": "no file of weights",
        "text.safetensors": "no file of weights",
        "absent.pt": "No such file",
        "absent.safetensors": "No such file",
    }.items():
        with pytest.raises(OperatorError, match=f"--weights .*{name}: .*{message}") as caught:
            embed("backbones:pooled", tmp_path / name)
        assert "\n" not in str(caught.value)
