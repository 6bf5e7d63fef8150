"""The file of a model: safetensors that any reader of them can read, with a description among its metadata."""

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor, nn

from p2p_tally.errors import DataError
from p2p_tally.learning.saved.about import About

# The one key of the metadata: safetensors writes several in any order, and equal models should have equal files.
KEY = "p2p_tally"


def model_bytes(model: nn.Module, about: About | None) -> bytes:
    """All tensors of a model by their names in its state_dict, and what it is.

    The caller writes them: safetensors' own writer raises no OSError when the disk is full.
    """
    # The parameters are views of one vector, and safetensors refuses tensors that share storage: hence the copies.
    tensors = {key: value.detach().cpu().clone().contiguous() for key, value in model.state_dict().items()}
    return bytes_of(tensors, None if about is None else {KEY: about.as_json()})


def read_bytes(path: Path, flag: str = "") -> bytes:
    """`flag`: the option that names the file, for messages."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{flag}{path}: {error.strerror}; accepted is a file of a trained model") from None


def read_model(data: bytes, source: str) -> tuple[dict[str, Tensor], About | None]:
    """The tensors, and what they are where the file says so. `source`: what to call the file in messages."""
    try:
        tensors = tensors_of(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError, KeyError) as error:
        raise DataError(f"{source}: not a safetensors file ({' '.join(str(error).split())})") from None
    text = header.get("__metadata__", {}).get(KEY)
    return tensors, None if text is None else About.from_json(text, source)


@dataclass(frozen=True)
class ModelFile:
    """A file that says what it holds."""

    source: str  # what to call it in messages
    tensors: dict[str, Tensor]
    about: About

    @classmethod
    def read(cls, path: Path) -> "ModelFile":
        return cls.parse(read_bytes(path), str(path))

    @classmethod
    def parse(cls, data: bytes, source: str) -> "ModelFile":
        tensors, about = read_model(data, source)
        if about is None:
            raise DataError(f"{source}: does not say what model it is; accepted are files that p2p-tally has saved")
        return cls(source, tensors, about)
