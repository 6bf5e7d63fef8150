"""Arrays in memory and in .npz files: what is read, and one line for every file that is not fit."""

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning.data import Arrays, DataOptions, Source, every_index, load

torch.set_num_threads(1)

Contents = dict[str, np.ndarray]


def good() -> Contents:
    """20 training and 6 test examples of 3 numbers, classes 0 to 2."""
    return {
        "x_train": np.arange(60, dtype=np.float64).reshape(20, 3),
        "y_train": np.arange(20, dtype=np.uint8) % 3,
        "x_test": -np.arange(18, dtype=np.float32).reshape(6, 3),
        "y_test": np.arange(6) % 2,
    }


def saved(folder: Path, contents: Contents) -> str:
    path = folder / "data.npz"
    np.savez(path, **contents)
    return f"npz:{path}"


# --- Arrays


def arrays() -> Arrays:
    return Arrays(torch.arange(10.0).reshape(5, 2), torch.tensor([10, 11, 12, 13, 14]))


def test_take_and_subset_by_hand() -> None:
    some = arrays().subset(torch.tensor([4, 2, 0]))
    assert len(some) == 3
    x, y = some.take(torch.tensor([0, 2, 2]))
    assert x.tolist() == [[8, 9], [0, 1], [0, 1]]
    assert y is not None and y.tolist() == [14, 10, 10]
    assert some.labels is not None and some.labels.tolist() == [14, 12, 10]


def test_a_subset_of_a_subset_counts_from_the_subset() -> None:
    some = arrays().subset(torch.tensor([4, 2, 0])).subset(torch.tensor([2, 0]))
    assert some.take(every_index(some))[0].tolist() == [[0, 1], [8, 9]]


def test_subsets_share_their_storage() -> None:
    whole = arrays()
    assert whole.subset(torch.tensor([1])).subset(torch.tensor([0])).x is whole.x


def test_without_labels() -> None:
    bare = arrays().subset(torch.tensor([3])).without_labels()
    assert (len(bare), bare.labels) == (1, None)
    x, y = bare.take(torch.tensor([0]))
    assert x.tolist() == [[6, 7]] and y is None


def test_an_array_example_is_one_probe() -> None:
    assert arrays().probes_each == 1


# --- a whole data set


def test_a_good_file(tmp_path: Path) -> None:
    source = load(saved(tmp_path, good()), DataOptions())
    assert isinstance(source.train, Arrays) and isinstance(source.test, Arrays)
    assert (len(source.train), len(source.test)) == (20, 6)
    assert source.train.x.dtype == torch.float32 and source.train.x[1].tolist() == [3, 4, 5]
    assert source.train.y is not None and source.train.y.dtype == torch.int64
    assert (source.classes, source.input_shape, source.holdout, source.default_model) == (3, (3,), 2, "mlp")


def test_the_class_count_sees_the_test_labels_too(tmp_path: Path) -> None:
    contents = good() | {"y_test": np.array([0, 0, 0, 0, 0, 6])}
    assert load(saved(tmp_path, contents), DataOptions()).classes == 7


def test_images_get_the_image_model_and_few_examples_one_probe(tmp_path: Path) -> None:
    contents = {
        "x_train": np.zeros((4, 1, 8, 8), dtype=np.uint8),
        "y_train": np.array([0, 1, 0, 1]),
        "x_test": np.zeros((1, 1, 8, 8), dtype=np.uint8),
        "y_test": np.array([1]),
    }
    source = load(saved(tmp_path, contents), DataOptions())
    assert (source.default_model, source.input_shape, source.holdout) == ("cnn", (1, 8, 8), 1)


# --- files that are not fit


def without(name: str) -> Contents:
    return {key: value for key, value in good().items() if key != name}


BAD: dict[str, tuple[Contents, str]] = {
    "no labels": (without("y_train"), "has no array 'y_train'; found x_test, x_train, y_test"),
    "no test inputs": (without("x_test"), "has no array 'x_test'"),
    "nothing at all": ({}, "has no array 'x_train'; found none"),
    "a file of probes": ({"x": np.zeros((2, 3))}, "has no array 'x_train'; found x"),
    "one number": (good() | {"x_train": np.array(5.0)}, "x_train has shape ()"),
    "no values": (good() | {"x_train": np.zeros((20, 0))}, "x_train has shape (20, 0)"),
    "one row": (good() | {"x_train": np.zeros(20)}, "x_train has shape (20,)"),
    "no examples": (good() | {"x_train": np.zeros((0, 3)), "y_train": np.zeros(0, dtype=int)}, "shape (0, 3)"),
    "text": (good() | {"x_train": np.full((20, 3), "a")}, "x_train is of type <U1"),
    "booleans": (good() | {"x_train": np.ones((20, 3), dtype=bool)}, "x_train is of type bool"),
    "complex numbers": (good() | {"x_test": np.zeros((6, 3), dtype=complex)}, "x_test is of type complex128"),
    "a NaN": (good() | {"x_test": np.full((6, 3), np.nan)}, "x_test has values that are not finite"),
    "an infinity": (good() | {"x_train": np.full((20, 3), np.inf)}, "x_train has values that are not finite"),
    "label as float": (good() | {"y_train": np.zeros(20)}, "y_train is float64 (20,); accepted are whole numbers"),
    "one-hot labels": (good() | {"y_train": np.zeros((20, 3), dtype=int)}, "y_train is int64 (20, 3)"),
    "one label": (good() | {"y_test": np.array(1)}, "y_test is int64 ()"),
    "a negative label": (good() | {"y_test": np.array([0, 1, -3, 0, 0, 0])}, "negative class index -3"),
    "too few labels": (good() | {"y_train": np.zeros(19, dtype=int)}, "train has 20 examples and 19 labels"),
    "no labels in the array": (good() | {"y_test": np.zeros(0, dtype=int)}, "test has 6 examples and 0 labels"),
    "other shape": (good() | {"x_test": np.zeros((6, 4))}, "x_train has shape (3,) an example, x_test (4,)"),
    "too many classes": (
        good() | {"y_test": np.array([0, 0, 0, 0, 0, 2**24])},
        "16777217 classes; accepted is at most",
    ),
    "labels past int64": (good() | {"y_train": np.full(20, 2**63, dtype=np.uint64)}, "classes; accepted is at most"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_contents_are_one_line(case: str, tmp_path: Path) -> None:
    contents, said = BAD[case]
    spec = saved(tmp_path, contents)
    with pytest.raises(DataError) as caught:
        load(spec, DataOptions())
    message = str(caught.value)
    assert message.startswith(f"--data {spec}: ")
    assert said in message
    assert "\n" not in message


def test_the_most_classes_a_vote_can_name_are_accepted(tmp_path: Path) -> None:
    contents = good() | {"y_test": np.array([0, 0, 0, 0, 0, 2**24 - 1])}
    assert load(saved(tmp_path, contents), DataOptions()).classes == 2**24


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_numbers_too_large_for_float32_are_not_finite(tmp_path: Path) -> None:
    spec = saved(tmp_path, good() | {"x_train": np.full((20, 3), 1e300)})
    with pytest.raises(DataError, match="x_train has values that are not finite"):
        load(spec, DataOptions())


def test_a_missing_file(tmp_path: Path) -> None:
    spec = f"npz:{tmp_path / 'none.npz'}"
    with pytest.raises(DataError) as caught:
        load(spec, DataOptions())
    assert str(caught.value) == f"--data {spec}: No such file or directory"


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r": Is a directory$"):
        load(f"npz:{tmp_path}", DataOptions())


def damaged(path: Path) -> bytes:
    """A compressed archive whose first array does not inflate."""
    np.savez_compressed(path, x_train=np.random.default_rng(0).normal(size=(200, 4)))
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.infolist()[0].header_offset + 30 + len("x_train.npy") + 20
    raw[start : start + 40] = b"\xff" * 40
    return bytes(raw)


@pytest.mark.parametrize("kind", ["empty", "text", "half", "npy", "pickle", "objects", "deflate"])
def test_files_that_are_no_npz_are_one_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **good())
    whole = path.read_bytes()
    if kind == "npy":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif kind == "objects":
        np.savez(path, x_train=np.array([{"a": 1}], dtype=object))
    else:
        contents = {
            "empty": b"",
            "text": b"x,y\n1,2\n",
            "half": whole[: len(whole) // 2],
            "pickle": b"\x80\x04K\x01.",
            "deflate": damaged(path),
        }
        path.write_bytes(contents[kind])
    with pytest.raises(DataError) as caught:
        load(f"npz:{path}", DataOptions())
    message = str(caught.value)
    assert message.startswith(f"--data npz:{path}: not an .npz file of plain arrays")
    assert "\n" not in message


# --- a file of probes

FOR_PROBES = DataOptions(for_probes=True)


def test_probes_with_and_without_labels(tmp_path: Path) -> None:
    x = np.arange(12).reshape(4, 3)
    bare = load(saved(tmp_path, {"x": x}), FOR_PROBES, flag="--probes")
    assert (len(bare.train), bare.test, bare.classes, bare.input_shape) == (4, None, 0, (3,))
    assert bare.train.labels is None
    labelled = load(saved(tmp_path, {"x": x, "y": np.array([0, 4, 1, 1])}), FOR_PROBES, flag="--probes")
    assert labelled.classes == 5
    assert labelled.train.labels is not None and labelled.train.labels.tolist() == [0, 4, 1, 1]


def test_a_whole_data_set_may_serve_as_probes(tmp_path: Path) -> None:
    source = load(saved(tmp_path, good()), FOR_PROBES, flag="--probes")
    assert (len(source.train), source.classes) == (20, 3)
    assert source.test is not None


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ({"x": np.zeros((4, 3)), "y": np.zeros(3, dtype=int)}, "probes has 4 examples and 3 labels"),
        ({"x": np.zeros((4, 3)), "y": np.full(4, -1)}, "y has a negative class index -1"),
        ({"x": np.zeros(4)}, "x has shape (4,)"),
        ({"x": np.zeros((4, 3)), "y": np.full(4, 2**24)}, "16777217 classes"),
        ({"z": np.zeros((4, 3))}, "found z"),
    ],
)
def test_bad_probes_are_one_line_that_names_the_option(contents: Contents, said: str, tmp_path: Path) -> None:
    spec = saved(tmp_path, contents)
    with pytest.raises(DataError) as caught:
        load(spec, FOR_PROBES, flag="--probes")
    message = str(caught.value)
    assert message.startswith(f"--probes {spec}: ")
    assert said in message
    assert "\n" not in message


# --- sources by name


def test_an_unknown_source_is_one_line_with_those_there_are() -> None:
    for spec in ("cifar99", "cifar99:x", "npz_", "two.parts", "two.parts:"):
        with pytest.raises(ConfigError, match=rf"^--data {spec}: accepted [^\n]*digits[^\n]*npz[^\n]*$"):
            load(spec, DataOptions())


USERS_DATA = """
import torch
from p2p_tally import Arrays, Source

def task():
    x, y = torch.zeros(8, 2), torch.arange(8) % 2
    return Source(Arrays(x, y), Arrays(x, y), classes=2, input_shape=(2,), holdout=2)

def no_source():
    return {"x": 1}
"""


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with a module `data` in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    package = "users_package_of_test_data_arrays"
    for name in (package, f"{package}.data"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / package).mkdir()
    (tmp_path / package / "data.py").write_text(USERS_DATA)
    return f"{package}.data"


def test_a_users_own_data_by_import_path(users: str) -> None:
    source = load(f"{users}:task", DataOptions())
    assert isinstance(source, Source)
    assert (len(source.train), source.classes) == (8, 2)


def test_a_users_function_that_gives_no_source_is_one_line(users: str) -> None:
    with pytest.raises(DataError, match=r"^--probes \S+:no_source: [^\n]*Source, not dict$"):
        load(f"{users}:no_source", DataOptions(), flag="--probes")
    with pytest.raises(ConfigError, match=r"^--data \S+:nothing: [^\n]*has no function 'nothing'$"):
        load(f"{users}:nothing", DataOptions())
