"""Saved models: what a file says, that plain safetensors can read it, and how a file that is none is refused."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import nn

from p2p_tally.config import Federation
from p2p_tally.errors import DataError
from p2p_tally.learning.architectures import of_rank
from p2p_tally.learning.data.images import PerChannel
from p2p_tally.learning.saved.about import LARGEST, OWN, About
from p2p_tally.learning.saved.file import KEY, ModelFile, model_bytes, read_model

ABOUT = About("mlp", 16, 2, (3, 8, 8), 10, PerChannel((0.5,) * 3, (0.25,) * 3), 7, "{}")

floats = st.floats(allow_nan=False, allow_infinity=False)
channels = st.lists(st.tuples(floats, floats), min_size=1, max_size=3).map(
    lambda pairs: PerChannel(tuple(mean for mean, _ in pairs), tuple(std for _, std in pairs))
)
sizes = st.integers(0, LARGEST - 1)


@given(
    st.builds(
        About,
        st.text(),
        sizes,
        sizes,
        st.lists(sizes).map(tuple),
        sizes,
        st.one_of(st.none(), st.just(OWN), channels),
        st.integers(0, 2**63 - 1),
        st.one_of(st.none(), st.text()),
    )
)
def test_what_is_said_is_read_again(about: About) -> None:
    assert About.from_json(about.as_json(), "file") == about


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_anything_else_is_refused_in_one_line(value: object) -> None:
    whole = json.loads(ABOUT.as_json())
    for key in whole:
        if value == whole[key] or (key == "model" and isinstance(value, str)):
            continue
        try:
            found = About.from_json(json.dumps(whole | {key: value}), "file.safetensors")
        except DataError as error:
            assert str(error).startswith("file.safetensors: its description ")
            assert "\n" not in str(error)
        else:  # what is accepted has the type that its reader counts on
            assert type(getattr(found, key)) in (type(getattr(ABOUT, key)), type(None), str)


@pytest.mark.parametrize("text", ["", "[]", "{}", '"a"', "[" * 100_000, '{"format": 2}'])
def test_no_description_at_all_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"^f: its description "):
        About.from_json(text, "f")


@pytest.mark.parametrize(
    ("item", "rank", "expected"),
    [
        ("auto", 0, ("cnn", 0, 0)),
        ("mlp:32x2", 0, ("mlp", 32, 2)),
        ("mlp,nets:small", 1, ("nets:small", 0, 0)),
        (lambda: nn.Linear(1, 1), 0, ("<lambda>", 0, 0)),
    ],
)
def test_the_model_is_named_as_it_is_built(item: object, rank: int, expected: tuple[str, int, int]) -> None:
    federation = of_rank(Federation(model=item, nodes=2, seed=3), rank)
    about = About.of(federation, "cnn", (3, 8, 8), 4, lambda x: x, None)
    assert (about.model, about.width, about.depth) == expected
    assert about.is_own == (expected[0] not in ("cnn", "mlp"))
    assert (about.normalise, about.seed, about.classes) == (OWN, 3, 4)


def test_plain_safetensors_reads_the_file(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    path = tmp_path / "m.safetensors"
    path.write_bytes(model_bytes(model, ABOUT))
    held = load_file(path)
    assert sorted(held) == sorted(model.state_dict())
    assert all(torch.equal(held[key], value) for key, value in model.state_dict().items())
    with safe_open(path, "pt") as file:
        assert About.from_json(file.metadata()[KEY], "") == ABOUT
    assert ModelFile.read(path).about == ABOUT


def test_equal_models_have_equal_files() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    first = model_bytes(model, ABOUT)
    assert first == model_bytes(model, ABOUT)
    model.weight.data[0, 0] += 1
    assert first != model_bytes(model, ABOUT)


@pytest.mark.parametrize("data", [b"", b"\x00" * 7, b"\xff" * 40, b"\x02" + b"\x00" * 7 + b"{}x", b"not a model"])
def test_what_is_no_safetensors_file_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(DataError, match=r"^m: not a safetensors file \([^\n]*\)$"):
        read_model(data, "m")


def test_a_file_that_says_nothing_has_tensors_and_is_no_model_file() -> None:
    data = save({"a": torch.ones(2)})
    tensors, about = read_model(data, "m")
    assert tensors["a"].tolist() == [1, 1] and about is None
    with pytest.raises(DataError, match=r"^m: does not say what model it is; accepted are files that p2p-tally has"):
        ModelFile.parse(data, "m")


def test_a_path_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none: No such file or directory; accepted is a file of a trained model$"):
        ModelFile.read(tmp_path / "none")
    with pytest.raises(DataError, match=r"Is a directory"):
        ModelFile.read(tmp_path)
