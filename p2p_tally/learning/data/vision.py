"""CIFAR-10, CIFAR-100 and STL-10 through torchvision's own data set classes, from the folder --data-root.

torchvision reads and verifies the published files once. What it decoded is kept as plain arrays beside them, and
every later start maps those.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.ids import digest
from p2p_tally.learning.data import Arrays, DataOptions, Loader, Source
from p2p_tally.learning.data.download import download_folder
from p2p_tally.learning.data.files import cached_folder, mapped
from p2p_tally.learning.data.images import PerChannel, crop_and_flip
from p2p_tally.learning.torchvision_import import import_torchvision

# All three sets are used at this size, so that each can be the probes of another's task.
SIDE = 32
RESIZED_AT_ONCE = 1000  # images: a few dozen megabytes

# Changes when what the cache holds changes.
CACHE_FORMAT = b"images 2"


@dataclass(frozen=True)
class ImageSet:
    """A data set of torchvision: what it is called there, and what is known of it."""

    class_name: str
    classes: int
    holdout: int  # labelled probes, where the task holds them out: the paper's own counts
    normalise: PerChannel  # of the training images
    splits: dict[str, dict[str, Any]]  # ours -> the arguments that choose it in torchvision
    unlabelled: dict[str, Any] | None = None  # arguments for a split without labels, used where probes are wanted


CIFAR_SPLITS: dict[str, dict[str, Any]] = {"train": {"train": True}, "test": {"train": False}}
STL_SPLITS: dict[str, dict[str, Any]] = {"train": {"split": "train"}, "test": {"split": "test"}}

SETS = {
    "cifar10": ImageSet(
        "CIFAR10", 10, 2_000, PerChannel((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)), CIFAR_SPLITS
    ),
    "cifar100": ImageSet(
        "CIFAR100", 100, 10_000, PerChannel((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)), CIFAR_SPLITS
    ),
    "stl10": ImageSet(
        "STL10",
        10,
        500,
        PerChannel((0.4467, 0.4398, 0.4066), (0.2603, 0.2566, 0.2713)),
        STL_SPLITS,
        unlabelled={"split": "unlabeled"},
    ),
}


def load(name: str, argument: str, options: DataOptions) -> Source:
    if argument:
        raise ConfigError(f"{options.flag} {name}:{argument}: {name} takes no argument")
    known = SETS[name]
    unlabelled = options.for_probes and known.unlabelled is not None
    splits = {"unlabelled": known.unlabelled or {}} if unlabelled else known.splits
    folder = _decoded(name, splits, options)
    pixels = {split: torch.from_numpy(mapped(folder / f"{split}-x.npy")) for split in splits}  # [N, 3, 32, 32]
    shape = (3, SIDE, SIDE)
    if unlabelled:
        pool = Arrays(pixels["unlabelled"], None)
        return Source(pool, None, 0, shape, holdout=len(pool), normalise=known.normalise)
    labels = {split: torch.from_numpy(mapped(folder / f"{split}-y.npy")) for split in splits}  # [N]
    return Source(
        train=Arrays(pixels["train"], labels["train"]),
        test=Arrays(pixels["test"], labels["test"]),
        classes=known.classes,
        input_shape=shape,
        holdout=known.holdout,
        default_model="cnn",
        normalise=known.normalise,
        augment=crop_and_flip,
    )


def _decoded(name: str, splits: dict[str, dict[str, Any]], options: DataOptions) -> Path:
    """The folder with <split>-x.npy and <split>-y.npy, made where it is not there yet."""
    root = options.need_root(name)
    # torchvision accepts the published files only, by their checksums, so a set's name is its content. Its own import
    # takes seconds, so it is imported only where files must be decoded.
    key = digest(CACHE_FORMAT, name.encode(), *(split.encode() for split in splits))[:16]

    def build(folder: Path) -> None:
        make = getattr(import_torchvision(f"{options.flag} {name}").datasets, SETS[name].class_name)
        for split, arguments in splits.items():
            data = _verified(name, make, arguments, options)
            np.save(folder / f"{split}-x.npy", _at_size(np.asarray(data.data)))
            labels = data.targets if hasattr(data, "targets") else data.labels
            np.save(folder / f"{split}-y.npy", np.asarray(labels, dtype=np.int64))

    return cached_folder(root, f"{name}-{key}", build)


def _verified(name: str, make: Any, arguments: dict[str, Any], options: DataOptions) -> Any:
    """torchvision's data set, downloaded first where that is asked for."""
    root = options.need_root(name)
    base: str = make.base_folder

    def opened(where: Path) -> Any | None:
        try:
            return make(where, download=False, **arguments)
        except RuntimeError:  # raised for missing files and for wrong checksums
            return None

    def fetch(aside: Path) -> None:
        make(aside, download=True, **arguments)  # verifies what it has unpacked

    try:
        data = opened(root)
        if data is None and options.download:
            download_folder(root, base, fetch, lambda: opened(root) is not None, f"{options.flag} {name}")
            data = opened(root)
    except OSError as error:
        raise DataError(f"{options.flag} {name}: {error.filename or root}: {error.strerror or error}") from None
    if data is None:
        state = "is incomplete or damaged" if (root / base).exists() else "is missing"
        raise DataError(
            f"{options.flag} {name}: {root / base} {state}; unpack {make.url} into --data-root {root}, "
            "or add --download"
        )
    return data


def _at_size(images: np.ndarray) -> np.ndarray:
    """uint8 images as [N, 3, 32, 32], wherever the channels stood."""
    if images.shape[-1] == 3:
        images = images.transpose(0, 3, 1, 2)
    if images.shape[-1] == SIDE:
        return np.ascontiguousarray(images)
    small = np.empty((len(images), 3, SIDE, SIDE), np.uint8)
    for start in range(0, len(images), RESIZED_AT_ONCE):
        part = torch.from_numpy(np.ascontiguousarray(images[start : start + RESIZED_AT_ONCE]))
        resized = F.interpolate(part.float(), size=(SIDE, SIDE), mode="bilinear", antialias=True)
        small[start : start + len(part)] = resized.round().clamp(0, 255).to(torch.uint8).numpy()
    return small


def _loader(name: str) -> Loader:
    return lambda argument, options: load(name, argument, options)


SOURCES = {"cifar10": _loader("cifar10"), "cifar100": _loader("cifar100"), "stl10": _loader("stl10")}
