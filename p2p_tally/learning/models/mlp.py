"""A multi-layer perceptron; on digits 64-64-10, 4,810 parameters."""

import math

from torch import nn

from p2p_tally.config import Federation

WIDTH = 64
DEPTH = 1  # hidden layers


def build(input_shape: tuple[int, ...], classes: int, federation: Federation) -> nn.Module:
    width, depth = federation.width or WIDTH, federation.depth or DEPTH
    layers: list[nn.Module] = [nn.Flatten()]
    size = math.prod(input_shape)
    for _ in range(depth):
        layers += [nn.Linear(size, width), nn.ReLU()]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, classes))


MODELS = {"mlp": build}
