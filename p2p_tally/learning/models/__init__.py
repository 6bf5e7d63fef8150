"""Models: one file each, with a table MODELS of name -> builder. Adding one is adding a file."""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

import torch
from torch import nn

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.architectures import name_of, shown
from p2p_tally.learning.norms import keep_no_averages
from p2p_tally.own_objects import call_own, import_object

# (shape of one input, classes, federation for width and depth) -> module giving logits [..., C]
Builder = Callable[[tuple[int, ...], int, Federation], nn.Module]


@cache
def models() -> dict[str, Builder]:
    found: dict[str, Builder] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found.update(getattr(module, "MODELS", {}))
    return found


def build(federation: Federation, default: str, input_shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """One node's model with its own initialisation; the global random state is left as it was.

    `federation` as architectures.of_rank gives it: its model is one item.
    """
    model = construct(federation, default, input_shape, classes, seed)
    keep_no_averages(model)
    return model


def construct(federation: Federation, default: str, input_shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """The same as its own code makes it: its BatchNorm layers keep running averages."""
    item = federation.model
    name = name_of(item) if isinstance(item, str) else ""
    name = default if name == "auto" else name
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed every kind of device, and write down where from: a millisecond for each model.
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(seed)
        if not isinstance(item, str):
            model = _users_own(item, shown(item), input_shape, classes)
        elif name in models():
            model = models()[name](input_shape, classes, federation)
        elif ":" in name:
            model = _users_own(import_object(name, "--model"), name, input_shape, classes)
        else:
            accepted = ", ".join(sorted(models()))
            raise ConfigError(f"--model {name}: accepted is auto, {accepted} or package.module:function")
    return model


def _users_own(function: object, name: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The module that a user's function returns. It may take the input shape and the class count, or nothing."""
    if not callable(function) or isinstance(function, nn.Module):
        raise ConfigError(
            f"--model {name}: a {type(function).__name__}; accepted is a function that returns a torch.nn.Module"
        )
    model = call_own(function, f"--model {name}", input_shape=input_shape, classes=classes)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"--model {name}: the function must return a torch.nn.Module, not {type(model).__name__}")
    return model
