"""A user's own arrays in one .npz file: x_train, y_train, x_test, y_test; a file of probes: x and optionally y.

Images of type uint8 stay so, are mapped and are normalised on the model's device; all else becomes float32 as it is.
"""

import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from p2p_tally.config import MAX_CLASSES
from p2p_tally.errors import DataError
from p2p_tally.learning.data import Arrays, DataOptions, Source
from p2p_tally.learning.data.files import mapped_archive
from p2p_tally.learning.data.images import PerChannel

# Without --probe-count a tenth of the training examples becomes the probe pool.
HOLDOUT_SHARE = 10

# Pixels 0 to 255 become about -2 to 2. Constants, not the file's own mean: peers with other files must scale the same.
CHANNELS = {channels: PerChannel((0.5,) * channels, (0.25,) * channels) for channels in (1, 3)}


def load(argument: str, options: DataOptions) -> Source:
    flag = f"--{'probes' if options.for_probes else 'data'} npz:{argument}"
    arrays = _read(Path(argument), flag)
    if (options.for_probes or options.for_use) and "x" in arrays:
        return _inputs_alone(arrays, flag)
    missing = [name for name in ("x_train", "y_train", "x_test", "y_test") if name not in arrays]
    if missing:
        raise DataError(f"{flag}: has no array {missing[0]!r}; found {', '.join(sorted(arrays)) or 'none'}")
    x_train, y_train = _inputs(arrays, "x_train", flag), _labels(arrays, "y_train", flag)
    x_test, y_test = _inputs(arrays, "x_test", flag), _labels(arrays, "y_test", flag)
    for x, y, split in ((x_train, y_train, "train"), (x_test, y_test, "test")):
        _same_length(x, y, split, flag)
    if x_train.shape[1:] != x_test.shape[1:]:
        raise DataError(
            f"{flag}: x_train has shape {tuple(x_train.shape[1:])} an example, x_test {tuple(x_test.shape[1:])}"
        )
    classes = int(max(y_train.max(), y_test.max())) + 1
    return Source(
        train=Arrays(x_train, y_train),
        test=Arrays(x_test, y_test),
        classes=classes,
        input_shape=tuple(x_train.shape[1:]),
        holdout=max(1, len(x_train) // HOLDOUT_SHARE),
        default_model="cnn" if x_train.ndim == 4 else "mlp",
        normalise=_normalise(x_train),
    )


def _inputs_alone(arrays: dict[str, np.ndarray], flag: str) -> Source:
    x = _inputs(arrays, "x", flag)
    y = _labels(arrays, "y", flag) if "y" in arrays else None
    if y is not None:
        _same_length(x, y, "probes", flag)
    classes = 0 if y is None else int(y.max()) + 1
    return Source(Arrays(x, y), None, classes, tuple(x.shape[1:]), holdout=len(x), normalise=_normalise(x))


def _read(path: Path, flag: str) -> dict[str, np.ndarray]:
    try:
        return mapped_archive(path)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(f"{flag}: {error.strerror}") from None
    except (ValueError, BadZipFile, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{flag}: not an .npz file of plain arrays ({error})") from None


def _inputs(arrays: dict[str, np.ndarray], name: str, flag: str) -> torch.Tensor:
    array = arrays[name]
    if array.ndim < 2 or array.size == 0:
        raise DataError(
            f"{flag}: {name} has shape {array.shape}; accepted is [examples, ...] with an example and a value at least"
        )
    if not np.issubdtype(array.dtype, np.number) or np.issubdtype(array.dtype, np.complexfloating):
        raise DataError(f"{flag}: {name} is of type {array.dtype}; accepted are real numbers")
    if array.dtype == np.uint8 and array.ndim == 4:
        if array.shape[1] in CHANNELS:
            return torch.from_numpy(array)
        if array.shape[3] in CHANNELS:  # [N, H, W, C], as most image files are read: seen as [N, C, H, W]
            return torch.from_numpy(array).permute(0, 3, 1, 2)
    x = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    if not bool(torch.isfinite(x).all()):
        raise DataError(f"{flag}: {name} has values that are not finite")
    return x


def _normalise(x: torch.Tensor) -> PerChannel | None:
    return CHANNELS[x.shape[1]] if x.dtype == torch.uint8 else None


def _labels(arrays: dict[str, np.ndarray], name: str, flag: str) -> torch.Tensor:
    array = arrays[name]
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{flag}: {name} is {array.dtype} {array.shape}; accepted are whole numbers, one an example")
    if len(array) and int(array.min()) < 0:
        raise DataError(f"{flag}: {name} has a negative class index {int(array.min())}; classes count from 0")
    _few_enough(int(array.max(initial=0)) + 1, flag)  # before the cast: past int64 a label would wrap around
    return torch.from_numpy(array.astype(np.int64))


def _same_length(x: torch.Tensor, y: torch.Tensor, split: str, flag: str) -> None:
    if len(x) != len(y):
        raise DataError(f"{flag}: {split} has {len(x)} examples and {len(y)} labels")


def _few_enough(classes: int, flag: str) -> None:
    if classes > MAX_CLASSES:
        raise DataError(f"{flag}: {classes} classes; accepted is at most {MAX_CLASSES} (a vote is at most three bytes)")


SOURCES = {"npz:FILE": load}
