"""Image data sets: torchvision's own reading, kept once, mapped, and never half-used."""

import ast
import pickle
from concurrent.futures import ThreadPoolExecutor
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning import torchvision_import
from p2p_tally.learning.data import Arrays, DataOptions, load, vision
from p2p_tally.learning.data.files import CACHE, cached_folder, is_sound, mapped_archive
from p2p_tally.learning.data.vision import _at_size
from p2p_tally.learning.setup import prepare
from p2p_tally.learning.torchvision_import import import_torchvision

REPOSITORY = Path(__file__).parents[2]


def images(count: int, side: int = 32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(count, 3, side, side)).astype(np.uint8)


def write_cifar(folder: Path) -> dict[str, str]:
    """Two training batches of 30 images and a test batch of 20, in CIFAR-10's own format; file -> MD5."""
    folder.mkdir(parents=True)
    contents: dict[str, dict[str, Any]] = {"batches.meta": {"label_names": list("abcdefghij")}}
    for seed, (name, count) in enumerate({"data_batch_1": 30, "data_batch_2": 30, "test_batch": 20}.items()):
        contents[name] = {
            "data": images(count, seed=seed).reshape(count, -1),
            "labels": [i % 10 for i in range(count)],
        }
    for name, content in contents.items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return {name: md5((folder / name).read_bytes()).hexdigest() for name in contents}


@pytest.fixture
def cifar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A data folder with a small CIFAR-10, which torchvision is told is the published one."""
    sums = write_cifar(tmp_path / "cifar-10-batches-py")
    published = import_torchvision("a test").datasets.CIFAR10
    monkeypatch.setattr(published, "train_list", [[name, sums[name]] for name in ("data_batch_1", "data_batch_2")])
    monkeypatch.setattr(published, "test_list", [["test_batch", sums["test_batch"]]])
    monkeypatch.setattr(published, "meta", {**published.meta, "md5": sums["batches.meta"]})
    return tmp_path


def options(root: Path | None, **more: Any) -> DataOptions:
    return DataOptions(root=root, **more)


def test_a_set_is_read_whole_and_kept_as_bytes(cifar: Path) -> None:
    source = load("cifar10", options(cifar))
    assert (len(source.train), source.input_shape, source.classes) == (60, (3, 32, 32), 10)
    assert source.test is not None and len(source.test) == 20
    x, y = source.train.take(torch.tensor([0, 31]))
    assert x.dtype == torch.uint8
    assert np.array_equal(x[0].numpy(), images(30, seed=0)[0])
    assert np.array_equal(x[1].numpy(), images(30, seed=1)[1])
    assert y is not None and y.tolist() == [0, 1]
    assert source.augment is not None and source.normalise is not None
    assert source.normalise(x).dtype == torch.float32


def test_a_second_start_maps_what_the_first_decoded(cifar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("cifar10", options(cifar)).train.take(torch.arange(60))[0]
    for path in (cifar / "cifar-10-batches-py").iterdir():
        path.unlink()  # so nothing can be decoded again
    monkeypatch.delattr(vision, "import_torchvision")  # which takes seconds: not for a warm start
    again = load("cifar10", options(cifar))
    assert torch.equal(again.train.take(torch.arange(60))[0], first)
    assert isinstance(again.train, Arrays)
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert any(CACHE in line and "train-x.npy" in line for line in maps.read_text().splitlines())


@pytest.mark.parametrize("damage", ["shorter", "other", "missing", "manifest"])
def test_a_damaged_cache_is_built_again(cifar: Path, damage: str) -> None:
    before = load("cifar10", options(cifar)).train.take(torch.arange(60))[0].clone()
    (folder,) = (path for path in (cifar / CACHE).iterdir() if path.is_dir())
    kept = folder / "train-x.npy"
    content = kept.read_bytes()
    if damage == "shorter":
        kept.write_bytes(content[:-100])
    elif damage == "other":
        kept.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "missing":
        kept.unlink()
    else:
        (folder / "manifest.json").write_text("{")
    assert not is_sound(folder)
    assert torch.equal(load("cifar10", options(cifar)).train.take(torch.arange(60))[0], before)
    assert is_sound(folder)
    assert [path.name for path in (cifar / CACHE).iterdir() if path.is_dir()] == [folder.name]


def test_a_cache_that_cannot_be_written_is_done_without(cifar: Path, caplog: pytest.LogCaptureFixture) -> None:
    (cifar / CACHE).write_text("a file where the folder would be")
    assert len(load("cifar10", options(cifar)).train) == 60
    assert "not kept" in caplog.text


def test_processes_that_start_together_do_the_work_once(tmp_path: Path) -> None:
    built = []

    def build(folder: Path) -> None:
        built.append(folder)
        np.save(folder / "x.npy", np.arange(100_000))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cached_folder(tmp_path, "one", build), range(8)))
    assert len(built) == 1
    assert set(found) == {tmp_path / CACHE / "one"}


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        np.save(folder / "x.npy", np.arange(10))
        raise DataError("no")

    with pytest.raises(DataError):
        cached_folder(tmp_path, "one", build)
    assert [path for path in (tmp_path / CACHE).iterdir() if path.is_dir()] == []


def test_missing_and_incomplete_sets_say_where_and_what_to_do(cifar: Path, tmp_path: Path) -> None:
    (cifar / "cifar-10-batches-py" / "data_batch_2").unlink()
    with pytest.raises(
        DataError, match=r"^--data cifar10: .*cifar-10-batches-py is incomplete or damaged; .*--download"
    ):
        load("cifar10", options(cifar))
    with pytest.raises(
        DataError, match=r"^--probes cifar100: .*cifar-100-python is missing; .*cifar-100-python.tar.gz"
    ):
        load("cifar100", options(cifar, for_probes=True), flag="--probes")
    with pytest.raises(ConfigError, match=r"^--data cifar10: .*--data-root FOLDER"):
        load("cifar10", options(None))
    with pytest.raises(DataError, match=r"--data-root .*nowhere is no folder"):
        load("cifar10", options(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(ConfigError, match="takes no argument"):
        load("cifar10:x", options(cifar))


def test_a_changed_byte_is_noticed(cifar: Path) -> None:
    batch = cifar / "cifar-10-batches-py" / "test_batch"
    content = bytearray(batch.read_bytes())
    content[1000] ^= 1
    batch.write_bytes(content)
    with pytest.raises(DataError, match="incomplete or damaged"):
        load("cifar10", options(cifar))


def test_a_download_is_put_in_place_whole(
    cifar: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {path.name: path.read_bytes() for path in (cifar / "cifar-10-batches-py").iterdir()}
    root = cifar / "elsewhere"

    def download(self: Any) -> None:
        print("Extracting")
        assert Path(self.root) != root  # never straight into the data folder
        folder = Path(self.root) / "cifar-10-batches-py"
        folder.mkdir(parents=True)
        for name, content in whole.items():
            (folder / name).write_bytes(content)

    monkeypatch.setattr(import_torchvision("a test").datasets.CIFAR10, "download", download)
    (root / "cifar-10-batches-py").mkdir(parents=True)
    (root / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"half of")
    source = load("cifar10", options(root, download=True))
    assert len(source.train) == 60
    assert {path.name for path in (root / "cifar-10-batches-py").iterdir()} == set(whole)
    assert (root / "cifar-10-batches-py.incomplete-1" / "data_batch_1").read_bytes() == b"half of"
    assert capsys.readouterr().out == ""  # standard output is for results


def test_an_interrupted_download_changes_nothing(cifar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = cifar / "elsewhere"

    def download(self: Any) -> None:
        folder = Path(self.root) / "cifar-10-batches-py"
        folder.mkdir(parents=True)
        (folder / "data_batch_1").write_bytes(b"half of")
        raise OSError("connection reset")

    monkeypatch.setattr(import_torchvision("a test").datasets.CIFAR10, "download", download)
    with pytest.raises(DataError, match=r"^--data cifar10: download into .* failed: connection reset"):
        load("cifar10", options(root, download=True))
    assert not list(root.glob("cifar*")) and not list(root.glob(".cifar*download*"))


@pytest.fixture
def stl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    counts = {"train": 10, "test": 20, "unlabeled": 30}
    for name, count in counts.items():
        np.repeat(np.arange(count, dtype=np.uint8), 3 * 96 * 96).tofile(folder / f"{name}_X.bin")
    for name in ("train", "test"):
        (np.arange(counts[name]) % 10 + 1).astype(np.uint8).tofile(folder / f"{name}_y.bin")
    sums = {path.name: md5(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    published = import_torchvision("a test").datasets.STL10
    for attribute in ("train_list", "test_list"):
        files = [name for name, _ in getattr(published, attribute)]
        monkeypatch.setattr(published, attribute, [[name, sums[name]] for name in files])
    return tmp_path


def test_stl10_gives_probes_without_labels_at_cifars_size(stl: Path) -> None:
    pool = load("stl10", options(stl, for_probes=True), flag="--probes")
    x, y = pool.train.take(torch.arange(30))
    assert y is None and pool.test is None
    assert tuple(x.shape) == (30, 3, 32, 32)
    assert x[:, 0, 0, 0].tolist() == list(range(30))  # even images stay as they are
    task = load("stl10", options(stl))
    assert task.test is not None and (len(task.train), len(task.test), task.classes) == (10, 20, 10)


def test_resizing_is_a_weighted_mean_of_the_pixels_around() -> None:
    ramp = np.broadcast_to(np.arange(96, dtype=np.uint8)[None, None, None, :], (1, 3, 96, 96))
    small = _at_size(ramp)  # private, but the front wants a whole data set of such images on disk
    assert small.shape == (1, 3, 32, 32)
    assert np.array_equal(small[0, 0, 0, 1:-1], np.arange(4, 93, 3))  # the middle one of each three


def test_probes_of_another_set_are_normalised_as_the_tasks_data(cifar: Path, stl: Path) -> None:
    federation = Federation(data="cifar10", probes="stl10", nodes=2, partition="iid", anchor=10)
    task = prepare(federation, root=cifar)
    assert task.normalise == load("cifar10", options(cifar)).normalise
    assert task.probes.labelled and task.federation.alpha == 0.5
    assert not prepare(federation.model_copy(update={"anchor": 0}), root=cifar).probes.labelled


# --- a user's own images


def save(path: Path, compressed: bool = False, **arrays: np.ndarray) -> str:
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return f"npz:{path}"


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
def test_uint8_images_in_an_npz_file_stay_bytes(tmp_path: Path, channels_last: bool, compressed: bool) -> None:
    x, y = images(400), np.arange(400) % 7
    stored = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if channels_last else x
    spec = save(tmp_path / "own.npz", compressed, x_train=stored, y_train=y, x_test=stored[:9], y_test=y[:9])
    source = load(spec, DataOptions())
    assert (source.input_shape, source.classes, source.default_model) == ((3, 32, 32), 7, "cnn")
    taken = source.train.take(torch.tensor([3, 5]))[0]
    assert taken.dtype == torch.uint8 and np.array_equal(taken.numpy(), x[[3, 5]])
    assert source.normalise is not None
    expected = (torch.from_numpy(x[[3, 5]]).float() / 255 - 0.5) / 0.25
    torch.testing.assert_close(source.normalise(taken), expected, rtol=1e-5, atol=1e-5)
    assert source.augment is None  # a mirrored image may be of another class: the operator's to say


def test_large_arrays_of_an_npz_file_are_mapped(tmp_path: Path) -> None:
    arrays = {"large": images(400), "small": np.arange(5), "fortran": np.asfortranarray(np.ones((600, 700)))}
    np.savez(tmp_path / "own.npz", **arrays)
    found = mapped_archive(tmp_path / "own.npz")
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(tmp_path / "own.npz") in maps.read_text()


def test_probes_of_another_shape_or_type_are_refused(tmp_path: Path) -> None:
    x, y = images(60), np.arange(60) % 5
    task = save(tmp_path / "task.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    other = save(tmp_path / "other.npz", x=images(40, side=16))
    with pytest.raises(
        DataError, match=r"^--probes npz:.*inputs of shape \(3, 16, 16\), but the data has \(3, 32, 32\)"
    ):
        prepare(Federation(data=task, probes=other, nodes=2, partition="iid"))
    floats = save(tmp_path / "floats.npz", x=x.astype(np.float32))
    assert len(prepare(Federation(data=task, probes=floats, nodes=2, partition="iid")).probes.examples) == 60
    with pytest.raises(DataError, match=r"^--probes .*type torch.float32, but the data has torch.uint8"):
        prepare(Federation(data=task, probes=floats, nodes=2, partition="iid", anchor=20))


# --- torchvision


def test_without_torchvision_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(torchvision_import.importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"^--model resnet18: needs .*pip install 'p2p-tally\[vision\]'$"):
        torchvision_import.import_torchvision.__wrapped__("--model resnet18")


def test_one_file_alone_imports_torchvision() -> None:
    importing = []
    for folder in ("p2p_tally", "runner", "topologies"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [node.value] if isinstance(node, ast.Constant) and node.value == "torchvision" else []
                if any(name.partition(".")[0] == "torchvision" for name in names):
                    importing.append(path.name)
    assert set(importing) == {"torchvision_import.py"}
