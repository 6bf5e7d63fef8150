"""A trained model, ready for use: `p2p_tally.load(path)`."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning import models
from p2p_tally.learning.data import Normalise
from p2p_tally.learning.saved.about import OWN, About
from p2p_tally.learning.saved.file import ModelFile

OwnModel = str | Callable[..., object] | nn.Module


class TrainedModel(nn.Module):
    """From inputs as they are stored (images as uint8, text as tokens) to logits, in evaluation mode."""

    def __init__(self, model: nn.Module, about: About, normalise: Normalise | None) -> None:
        super().__init__()
        self.model = model  # the architecture alone, as its own code makes it: for inputs that are normalised
        self.about = about
        self.normalise = normalise
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x if self.normalise is None else self.normalise(x))  # [B, C] or [B, T, C]
        return logits


def load(path: str | Path, *, model: OwnModel | None = None, normalise: Normalise | None = None) -> TrainedModel:
    """The model in a file that a run has saved.

    `model`: your own function, its import path, or a module that it has made. It must be given for a model of your own:
    a file from somebody else names code, and none of it runs unless you say so. `normalise`: likewise the function of
    your own data source, where it has one.
    """
    return loaded(ModelFile.read(Path(path)), model=model, normalise=normalise)


def loaded(file: ModelFile, *, model: OwnModel | None = None, normalise: Normalise | None = None) -> TrainedModel:
    """The same from a file that has been read."""
    about, source = file.about, file.source
    made = model if isinstance(model, nn.Module) else _construct(about, model, source)
    fit(made, file.tensors, source)
    if about.normalise == OWN:
        if normalise is None:
            raise ConfigError(
                f"{source}: its inputs are normalised by a function of its data source's own; name the source with "
                "--data, or in Python give the function as normalise=..."
            )
    elif normalise is None:
        normalise = about.normalise if callable(about.normalise) else None
    return TrainedModel(made, about, normalise)


def _construct(about: About, own: str | Callable[..., object] | None, source: str) -> nn.Module:
    if about.is_own and own is None:
        hint = f"--model {about.model}" if ":" in about.model else "--model package.module:function"
        raise ConfigError(
            f"{source}: its model is {about.model}, a function of the user's own; say that it may run with {hint}, or "
            "in Python model=..."
        )
    if own is not None and not about.is_own:
        raise ConfigError(f"{source}: its model is {about.model}; --model is accepted for a model of your own only")
    federation = Federation.parse({"model": own or about.model, "width": about.width, "depth": about.depth})
    return models.construct(federation, about.model, about.input_shape, about.classes, about.seed)


def fit(model: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Have these tensors in the model, all of them and no others; or a DataError that names the first that differs."""
    wanted = model.state_dict()
    for key in [*wanted, *tensors]:
        here, there = (shape_of(held.get(key)) for held in (wanted, tensors))
        if here != there:
            raise DataError(f"{source}: {key} is {there} in the file, {here} in the model")
    with torch.no_grad():
        for key, tensor in wanted.items():
            tensor.copy_(tensors[key])


def shape_of(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
