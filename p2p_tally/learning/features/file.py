"""Features in one .npz file: the arrays that --data npz:FILE reads, and beside them the extractor that made them."""

import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from p2p_tally.errors import DataError
from p2p_tally.files import replacing
from p2p_tally.learning.data.files import mapped_archive
from p2p_tally.learning.features.extractor import Dictionary, Extractor

# Arrays of an extractor begin so; the source npz: passes over them.
PREFIX = "extractor_"


def write_features(path: Path, arrays: Mapping[str, Tensor], extractor: Extractor | None) -> None:
    """Write plainly stored arrays, so that readers can map them. The file is never seen half written."""
    own = {} if extractor is None else _arrays(extractor)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **{name: value.numpy() for name, value in {**arrays, **own}.items()})  # type: ignore[arg-type]


def write_extractor(path: Path, extractor: Extractor) -> None:
    write_features(path, {}, extractor)


def read_extractor(path: Path, flag: str) -> Extractor:
    """The extractor in a file of features, or a DataError that begins with `flag`."""
    try:
        arrays = mapped_archive(path)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(f"{flag}: {error.strerror}") from None
    except (ValueError, BadZipFile, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{flag}: not an .npz file of plain arrays ({error})") from None
    found = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
    if not found:
        raise DataError(
            f"{flag}: holds no extractor; accepted is a file that `p2p-tally features` wrote without --backbone"
        )
    try:
        return _extractor({name: torch.from_numpy(array) for name, array in found.items()})
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"{flag}: its extractor is damaged ({error})") from None


def _arrays(extractor: Extractor) -> dict[str, Tensor]:
    dictionary = extractor.dictionary
    values = {
        "image": torch.tensor(dictionary.image),
        "whitening": dictionary.whitening,
        "centre": dictionary.centre,
        "centroids": dictionary.centroids,
        "projection": extractor.projection,
        "offset": extractor.offset,
    }
    return {PREFIX + name: value for name, value in values.items()}


def _extractor(arrays: dict[str, Tensor]) -> Extractor:
    channels, height, width = (int(length) for length in arrays["image"])
    (count, values), dimensions = arrays["centroids"].shape, len(arrays["offset"])
    side = math.isqrt(values // channels)
    wanted = {"whitening": (values, values), "centre": (values,), "projection": (4 * count, dimensions)}
    if channels * side**2 != values:
        raise ValueError(f"centroids of {values} values do not fit {channels} channels")
    for name, shape in wanted.items():
        if tuple(arrays[name].shape) != shape:
            raise ValueError(f"{name} has shape {tuple(arrays[name].shape)}, not {shape}")
    dictionary = Dictionary((channels, height, width), side, arrays["whitening"], arrays["centre"], arrays["centroids"])
    return Extractor(dictionary, arrays["projection"], arrays["offset"])
