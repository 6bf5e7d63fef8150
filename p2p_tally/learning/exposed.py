"""The features of a model: what goes into its last linear layer."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from p2p_tally.errors import ConfigError
from p2p_tally.learning.data import Examples
from p2p_tally.learning.methods import Sends


def outputs_of(model: nn.Module, *, features: bool) -> Callable[[Tensor], Tensor]:
    """A function from inputs to the logits [P, C], or to features and logits [P, D + C]."""

    def logits(x: Tensor) -> Tensor:
        found: Tensor = model(x)
        return found.flatten(0, -2)

    def both(x: Tensor) -> Tensor:
        seen: list[Tensor] = []
        handle = last_layer(model).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        try:
            found = logits(x)
        finally:
            handle.remove()
        return torch.cat([seen[-1].flatten(0, -2), found], -1)

    return both if features else logits


def last_layer(model: nn.Module) -> nn.Linear:
    """Its last linear layer, or a ConfigError."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise ConfigError(
            f"--model {type(model).__name__}: its features are asked for, and it has no linear layer that they go into"
        )
    return layers[-1]


def row_width(sends: Sends, model: nn.Module, private: Examples) -> int:
    """How many values a row of a ballot has, where that depends on the model or on the data; else 0."""
    if sends is Sends.ANCHORS:
        return private.take(torch.zeros(1, dtype=torch.int64))[0].numel()
    return feature_width(model) if sends.features else 0


def feature_width(model: nn.Module) -> int:
    """D: how many features it has."""
    return last_layer(model).in_features
