"""A linear model, which is logistic regression: no hidden layer; on digits 64-10, 650 parameters."""

import math

from torch import nn

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.architectures import is_sized


def build(input_shape: tuple[int, ...], classes: int, federation: Federation) -> nn.Module:
    if is_sized(federation.model):
        raise ConfigError(f"--model {federation.model}: linear has one size; accepted is linear")
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))


MODELS = {"linear": build}
