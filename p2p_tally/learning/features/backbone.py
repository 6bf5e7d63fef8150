"""Features from a torch module of the user's own: `package.module:function`, and a file of weights where wanted."""

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning.data import Examples
from p2p_tally.learning.features.parts import Progress
from p2p_tally.own_objects import import_object

IMAGES_AT_ONCE = 256


class Backbone:
    """A module that maps images [N, C, H, W], pixels from 0 to 1, to vectors [N, D]. Its parameters do not change."""

    def __init__(self, spec: str, weights: Path | None, device: str) -> None:
        self._flag = f"--backbone {spec}"
        found = import_object(spec, "--backbone")
        module = found() if callable(found) and not isinstance(found, nn.Module) else found
        if not isinstance(module, nn.Module):
            raise ConfigError(f"{self._flag}: the function must return a torch.nn.Module, not {type(module).__name__}")
        if weights is not None:
            _fill(module, weights)
        self._module = module.to(device).eval()
        self._device = device

    @torch.inference_mode()
    def embed(self, images: Examples, progress: Progress, what: str) -> Tensor:
        """The module's outputs for all images [N, D], float32."""
        found = []
        for start in range(0, len(images), IMAGES_AT_ONCE):
            stop = min(start + IMAGES_AT_ONCE, len(images))
            found.append(self._run(images.take(torch.arange(start, stop))[0]))
            progress(what, stop, len(images))
        return torch.cat(found)

    def _run(self, images: Tensor) -> Tensor:
        pixels = images.to(self._device).float() / 255
        try:
            output = self._module(pixels)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise ConfigError(f"{self._flag}: on images {tuple(images.shape)} it fails: {_one_line(error)}") from None
        if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != len(images):
            given = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise ConfigError(f"{self._flag}: gives {given} for {len(images)} images; accepted is [{len(images)}, D]")
        vectors = output.to("cpu", torch.float32)
        if not bool(torch.isfinite(vectors).all()):
            raise ConfigError(f"{self._flag}: gives values that are not finite")
        return vectors


def _fill(module: nn.Module, path: Path) -> None:
    try:
        module.load_state_dict(_read(path))
    except OSError as error:
        raise DataError(f"--weights {path}: {error.strerror or error}") from None
    except (RuntimeError, TypeError, AttributeError) as error:  # missing, unknown or differently shaped parameters
        raise DataError(f"--weights {path}: does not fit the module: {_one_line(error)}") from None


def _read(path: Path) -> Any:
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError  # noqa: PLC0415 - only where such a file is given
        from safetensors.torch import load_file  # noqa: PLC0415

        try:
            return load_file(path)
        except SafetensorError as error:
            raise DataError(f"--weights {path}: no file of weights ({_one_line(error)})") from None
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise DataError(f"--weights {path}: no file of weights ({_one_line(error)})") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
