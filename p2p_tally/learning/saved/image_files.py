"""Image files as a model's inputs: uint8 [N, C, H, W], each scaled to the size that the model was trained on."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from p2p_tally.errors import DataError

MODES = {1: "L", 3: "RGB"}  # by channels
SUFFIXES = sorted({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})


def image_paths(given: Sequence[Path]) -> list[Path]:
    """The files that are named, and those of image types in folders that are."""
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            found += [file for file in sorted(path.iterdir()) if file.suffix.lower() in SUFFIXES]
        else:
            found.append(path)
    if not found:
        raise DataError(f"--data {given[0]}: no image in that folder; accepted are {', '.join(SUFFIXES)}")
    return found


def read_images(paths: Sequence[Path], shape: tuple[int, ...]) -> Tensor:
    """All images [N, C, H, W] for a model of inputs `shape` [C, H, W]."""
    channels, height, width = shape
    images = np.empty((len(paths), channels, height, width), np.uint8)
    for place, path in enumerate(paths):
        try:
            with Image.open(path) as image:
                scaled = image.convert(MODES[channels]).resize((width, height), Image.Resampling.BILINEAR)
        except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
            reason = getattr(error, "strerror", None) or "not an image that can be read"
            raise DataError(f"--data {path}: {reason}") from None
        pixels = np.asarray(scaled).reshape(height, width, channels)
        images[place] = pixels.transpose(2, 0, 1)
    return torch.from_numpy(images)
