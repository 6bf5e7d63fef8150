"""Frozen features of an image source: `features:cifar10`, `features:npz:FILE`.

They are computed at the first use and kept in the data cache under a digest of the images and of all that decides the
features; later uses map them. Probes are embedded with the task's own extractor, so that a model sees both alike.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.ids import Digest, digest
from p2p_tally.learning.data import Arrays, DataOptions, Examples, Source
from p2p_tally.learning.data import load as load_source
from p2p_tally.learning.data.files import cached_folder, mapped
from p2p_tally.learning.features import (
    Display,
    Parts,
    Recipe,
    embed,
    learn,
    read_extractor,
    write_extractor,
)

# Changes when what the cache holds changes.
CACHE_FORMAT = b"features 1"
EXTRACTOR = "extractor.npz"
HASHED_AT_ONCE = 4096  # images


@dataclass(frozen=True, eq=False)
class FeatureSource(Source):
    """Features, and the file of the extractor that probes of another source must be embedded with."""

    extractor: Path = Path()


def load(argument: str, options: DataOptions) -> Source:
    if not argument:
        raise ConfigError(f"{options.flag} features: accepted is features:SOURCE, a source of images such as cifar10")
    parts = Parts(torch.get_num_threads(), Display(live=False))
    if not options.for_probes:
        return load_features(argument, options, Recipe(), parts)
    if not isinstance(options.task, FeatureSource):
        raise DataError(
            f"--probes features:{argument}: needs --data features:SOURCE, whose extractor embeds the probes; for other "
            "data write them to a file with `p2p-tally features --like`"
        )
    return load_alike(argument, options, options.task.extractor, f"--probes features:{argument}", parts)


def load_features(spec: str, options: DataOptions, recipe: Recipe, parts: Parts) -> FeatureSource:
    """The features of the source `spec`, with an extractor learned from its training images."""
    source = images_of(spec, options)
    if source.test is None:
        raise DataError(f"{options.flag} features:{spec}: {spec} has no test set")
    recipe.check(len(source.train), source.input_shape, f"{options.flag} features:{spec}")
    test = source.test

    def build(folder: Path) -> None:
        extractor, train = learn(source.train, recipe, parts)
        write_extractor(folder / EXTRACTOR, extractor)
        np.save(folder / "train.npy", train.numpy())
        np.save(folder / "test.npy", embed(extractor, test, parts, "test images").numpy())

    key = digest(CACHE_FORMAT, repr(recipe).encode(), _content(source.train), _content(test))
    folder = cached_folder(_home(spec, options), f"features-{key[:16]}", build)
    train = torch.from_numpy(mapped(folder / "train.npy"))  # [N, D]
    return FeatureSource(
        train=Arrays(train, source.train.labels),
        test=Arrays(torch.from_numpy(mapped(folder / "test.npy")), test.labels),
        classes=source.classes,
        input_shape=(train.shape[1],),
        holdout=source.holdout,
        extractor=folder / EXTRACTOR,
    )


def load_alike(spec: str, options: DataOptions, like: Path, flag: str, parts: Parts) -> Source:
    """A source's images as a pool of probes, embedded with the extractor in the file `like`.

    Labels stay where the source is a pool with labels of the task. A whole data set's labels are those of another task.
    """
    extractor = read_extractor(like, flag)
    source = images_of(spec, replace(options, for_probes=True, task=None))
    extractor.check(source.input_shape, flag)

    def build(folder: Path) -> None:
        np.save(folder / "probes.npy", embed(extractor, source.train, parts, "probes").numpy())

    key = digest(CACHE_FORMAT, extractor.digest().encode(), _content(source.train))
    folder = cached_folder(_home(spec, options), f"features-probes-{key[:16]}", build)
    x = torch.from_numpy(mapped(folder / "probes.npy"))
    own = source.test is None
    return Source(
        Arrays(x, source.train.labels if own else None),
        None,
        source.classes if own else 0,
        (x.shape[1],),
        holdout=len(x),
    )


def with_inputs(source: Source, embedding: Callable[[Examples, str], Tensor]) -> Source:
    """The source with vectors in the place of its images: `embedding` of examples, and what to call them."""
    train = Arrays(embedding(source.train, "training images"), source.train.labels)
    test = None if source.test is None else Arrays(embedding(source.test, "test images"), source.test.labels)
    return Source(train, test, source.classes, (train.x.shape[1],), source.holdout)


def images_of(spec: str, options: DataOptions) -> Source:
    """The source, where it is one of images as bytes."""
    source = load_source(spec, options, flag=options.flag)
    first = source.train.take(torch.zeros(1, dtype=torch.int64))[0]
    if first.dtype != torch.uint8 or first.ndim != 4:
        raise DataError(
            f"{options.flag} {spec}: inputs of type {first.dtype} and shape {tuple(first.shape[1:])}; features are "
            "made of images [channels, height, width] of type uint8"
        )
    return source


def _home(spec: str, options: DataOptions) -> Path:
    """The cache lives in the folder of data sets, or beside the file that has the images."""
    name, _, argument = spec.partition(":")
    return options.root or (Path(argument).parent if name == "npz" else Path())


def _content(images: Examples) -> bytes:
    """A digest of all images, of which a few are held at a time."""
    return digest(*(part.encode() for part in _digests(images))).encode()


def _digests(images: Examples) -> Iterator[Digest]:
    for start in range(0, len(images), HASHED_AT_ONCE):
        x = images.take(torch.arange(start, min(start + HASHED_AT_ONCE, len(images))))[0]
        yield digest(repr(tuple(x.shape)).encode(), x.numpy().tobytes())


SOURCES = {"features:IMAGES": load}
