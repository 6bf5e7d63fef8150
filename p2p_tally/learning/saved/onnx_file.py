"""A trained model as ONNX, for programs without torch: stored inputs in, logits out."""

import logging
import warnings
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning.data.images import PerChannel
from p2p_tally.learning.saved.loaded import TrainedModel

NEEDED = ("onnx", "onnxscript")


class Scaled(nn.Module):
    """A model with its normalisation written out: the constants of `PerChannel` as buffers that can be exported."""

    mean: Tensor  # [C, 1, 1]
    std: Tensor

    def __init__(self, model: nn.Module, constants: PerChannel) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.tensor(constants.mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(constants.std).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model((x.to(torch.float32) / 255 - self.mean) / self.std)
        return logits


def export_onnx(model: TrainedModel, path: Path) -> None:
    """Write the file. The number of examples is free; images are uint8, tokens int64, all else float32."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(f"export: needs the package {missing[0]}; install it with: pip install 'p2p-tally[onnx]'")
    about = model.about
    module, kind = model.model, torch.float32
    if isinstance(about.normalise, PerChannel):
        module, kind = Scaled(module, about.normalise), torch.uint8
    elif model.normalise is not None:
        raise ConfigError("export: the inputs are normalised by a function of the data source's own; it has no ONNX")
    elif about.tokenizer is not None:
        kind = torch.int64
    example = torch.zeros(2, *about.input_shape, dtype=kind)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.eval(),
                (example,),
                dynamo=True,
                verbose=False,
                input_names=["inputs"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("examples", min=1)},),
            )
        assert program is not None
        program.save(str(path))
    except OSError as error:
        raise ConfigError(f"--out {path}: {error.strerror}; accepted is a file that can be written") from None
    except Exception as error:  # whatever torch cannot express: it has many classes for that
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"export: torch cannot write this model as ONNX ({type(error).__name__}: {reason})") from None
