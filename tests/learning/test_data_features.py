"""The source features: computed once, mapped after that, and probes embedded as the task is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from p2p_tally.config import Federation
from p2p_tally.errors import OperatorError
from p2p_tally.learning.data import Arrays, DataOptions, Source, features, load
from p2p_tally.learning.data.features import FeatureSource, load_alike
from p2p_tally.learning.data.files import CACHE
from p2p_tally.learning.features import Parts, Recipe, embed, read_extractor
from p2p_tally.learning.setup import prepare


def pixels(count: int, seed: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(count, channels, 10, 10)).astype(np.uint8)


def write_images(path: Path, seed: int = 0, **changed: Any) -> Path:
    arrays = {"x_train": pixels(300, seed), "x_test": pixels(20, seed + 1)}
    arrays |= {"y_train": np.arange(300) % 3, "y_test": np.arange(20) % 3, **changed}
    np.savez(path, **arrays)
    return path


@pytest.fixture(autouse=True)
def small_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features that take no time: few centroids and dimensions."""
    monkeypatch.setattr(features, "Recipe", lambda: Recipe(centroids=6, dimensions=4, patches=2_000))


def everything(source: Source) -> tuple[torch.Tensor, torch.Tensor | None]:
    return source.train.take(torch.arange(len(source.train)))


def loaded(path: Path, **options: Any) -> FeatureSource:
    source = load(f"features:npz:{path}", DataOptions(**options))
    assert isinstance(source, FeatureSource)
    return source


def test_a_source_of_vectors_with_the_labels_and_the_holdout_of_the_images(tmp_path: Path) -> None:
    path = write_images(tmp_path / "a.npz")
    source = loaded(path)
    x, y = everything(source)
    assert x.dtype == torch.float32 and x.shape == (300, 4)
    assert y is not None and y.tolist() == [i % 3 for i in range(300)]
    assert source.test is not None and len(source.test) == 20
    assert (source.classes, source.input_shape, source.default_model) == (3, (4,), "mlp")
    assert source.holdout == load(f"npz:{path}", DataOptions()).holdout
    assert source.normalise is None and source.augment is None


def test_a_second_start_maps_what_the_first_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_images(tmp_path / "a.npz")
    first = everything(loaded(path))[0]
    monkeypatch.delattr(features, "learn")  # so nothing can be computed again
    again = loaded(path, seed=5)  # the federation's seed decides nothing here
    assert torch.equal(everything(again)[0], first)
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(again.extractor.parent / "train.npy") in maps.read_text(encoding="utf-8")


def test_neither_labels_nor_test_images_decide_the_features(tmp_path: Path) -> None:
    first = loaded(write_images(tmp_path / "a.npz"))
    relabelled = loaded(write_images(tmp_path / "b.npz", y_train=np.zeros(300, np.int64)))
    retested = loaded(write_images(tmp_path / "c.npz", x_test=pixels(20, 9)))
    assert relabelled.extractor == first.extractor  # not computed again
    assert retested.extractor != first.extractor
    assert torch.equal(everything(retested)[0], everything(first)[0])
    other = loaded(write_images(tmp_path / "d.npz", seed=5))
    assert not torch.equal(everything(other)[0], everything(first)[0])


def test_the_cache_is_in_the_data_root_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    path = write_images(tmp_path / "a.npz")
    assert loaded(path, root=tmp_path / "root").extractor.is_relative_to(tmp_path / "root" / CACHE)
    assert not (tmp_path / CACHE).exists()
    assert loaded(path).extractor.is_relative_to(tmp_path / CACHE)


def test_probes_are_embedded_with_the_extractor_of_the_task(tmp_path: Path) -> None:
    task = loaded(write_images(tmp_path / "task.npz"))
    other = write_images(tmp_path / "other.npz", seed=7)
    probes = load(f"features:npz:{other}", DataOptions(for_probes=True, task=task))
    extractor = read_extractor(task.extractor, "a test")
    images = Arrays(torch.from_numpy(pixels(300, 7)), None)
    x, y = everything(probes)
    assert y is None and probes.test is None and probes.classes == 0
    assert torch.equal(x, embed(extractor, images, Parts(), "probes"))
    assert not torch.equal(x, everything(loaded(other))[0])  # what its own extractor gives
    another = loaded(write_images(tmp_path / "another.npz", seed=11))
    assert not torch.equal(everything(load(f"features:npz:{other}", DataOptions(for_probes=True, task=another)))[0], x)


def test_a_pool_of_probes_keeps_its_labels(tmp_path: Path) -> None:
    task = loaded(write_images(tmp_path / "task.npz"))
    np.savez(tmp_path / "pool.npz", x=pixels(30, 3), y=np.arange(30) % 2)
    probes = load(f"features:npz:{tmp_path / 'pool.npz'}", DataOptions(for_probes=True, task=task))
    y = everything(probes)[1]
    assert probes.classes == 2 and y is not None and y.tolist() == [i % 2 for i in range(30)]


def test_a_federation_learns_on_features_with_probes_of_another_source(tmp_path: Path) -> None:
    path, other = write_images(tmp_path / "task.npz"), write_images(tmp_path / "other.npz", seed=7)
    values = {"data": f"features:npz:{path}", "probes": f"features:npz:{other}", "nodes": 2, "partition": "iid"}
    task = prepare(Federation.parse(values))
    assert task.default_model == "mlp" and task.input_shape == (4,)
    assert task.probes.sample(1)[0].shape == (16, 4) and not task.probes.labelled


@pytest.mark.parametrize(
    ("spec", "more", "message"),
    [
        ("features", {}, "--data features: accepted is features:SOURCE"),
        ("features:nothing", {}, "--data nothing: accepted is one of"),
        ("features:digits", {}, r"--data digits: inputs of type torch.float32 and shape \(64,\)"),
        ("features:npz:absent.npz", {}, "--data npz:absent.npz: No such file"),
        ("features:cifar10", {}, "--data cifar10: say which folder holds it with --data-root"),
        ("features:digits", {"for_probes": True}, "--probes features:digits: needs --data features:SOURCE"),
    ],
)
def test_what_cannot_be_embedded_is_refused(spec: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        load(spec, DataOptions(**more))


def test_probes_of_another_shape_are_refused(tmp_path: Path) -> None:
    task = loaded(write_images(tmp_path / "task.npz"))
    np.savez(tmp_path / "grey.npz", x=pixels(30, 3, channels=1))
    with pytest.raises(OperatorError, match=r"--probes it: images of shape \(1, 10, 10\)"):
        load_alike(f"npz:{tmp_path / 'grey.npz'}", DataOptions(for_probes=True), task.extractor, "--probes it", Parts())
