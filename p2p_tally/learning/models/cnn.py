"""A small convolutional network with GroupNorm: an image model that a laptop's cores train in minutes.

`cnn-half` is the same network on images averaged down to half their sides, for experiments with hundreds of peers: on
CIFAR-10 a step takes less than half the time. `cnn-grid` sees images of half the sides too and has two wider blocks;
its last layer sees every position that is left (4 x 4 on CIFAR-10), where the others see the mean of all positions:
it gets more images right after the same seconds.
"""

import math

from torch import nn

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.architectures import size_flag

WIDTH = 16  # channels of the first block; each further block has twice as many
DEPTH = 3  # blocks; each halves the image's sides


def build(input_shape: tuple[int, ...], classes: int, federation: Federation) -> nn.Module:
    return _network(input_shape, classes, federation, halved=False)


def build_half(input_shape: tuple[int, ...], classes: int, federation: Federation) -> nn.Module:
    return _network(input_shape, classes, federation, halved=True)


def build_grid(input_shape: tuple[int, ...], classes: int, federation: Federation) -> nn.Module:
    return _network(input_shape, classes, federation, halved=True, width=24, depth=2, positions=True)


def _network(
    input_shape: tuple[int, ...],
    classes: int,
    federation: Federation,
    halved: bool,
    width: int = WIDTH,
    depth: int = DEPTH,
    positions: bool = False,
) -> nn.Module:
    """`width` and `depth`: where the federation does not say. `positions`: the last layer sees each, not their mean."""
    width, depth = federation.width or width, federation.depth or depth
    channels, height, side = _image(input_shape)
    layers: list[nn.Module] = [nn.Unflatten(1, (channels, height, side))] if len(input_shape) == 1 else []
    if halved:
        layers.append(nn.AvgPool2d(2))
    if min(height, side) >> depth + halved < 1:
        flag, halvings = size_flag(federation, f"--depth {depth}"), int(math.log2(min(height, side)))
        first = ", once before the first block" if halved else ""
        raise ConfigError(f"{flag}: images of {height} x {side} can be halved {halvings} times{first}")
    for block in range(depth):
        out = width << block
        layers += [
            nn.Conv2d(channels, out, 3, padding=1, bias=False),  # [B, out, H, W]
            nn.MaxPool2d(2),  # [B, out, H / 2, W / 2]; before the norm, which then has a quarter to do
            nn.GroupNorm(_groups(out), out),
            nn.ReLU(),
        ]
        channels = out
    if positions:
        left = (height >> depth + halved) * (side >> depth + halved)
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * left, classes))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def _groups(channels: int) -> int:
    """At most 8, of at least 4 channels each: the last block may leave one pixel, and one value has no norm."""
    return math.gcd(8, channels, channels // 4 or 1)


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width; a flat input of a square number is taken for a square grey image."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    side = math.isqrt(shape[0])
    if len(shape) == 1 and side * side == shape[0]:
        return 1, side, side
    raise ConfigError(f"--model cnn: needs inputs [channels, height, width] or a square number of pixels, not {shape}")


MODELS = {"cnn": build, "cnn-half": build_half, "cnn-grid": build_grid}
