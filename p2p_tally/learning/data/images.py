"""Pixels on their way into a model: per-channel normalisation, random crops and flips, for a whole batch at once.

Images are stored as uint8 [N, C, H, W] and stay so until they are on the model's device: a quarter of the bytes to
hold, to share between processes and to copy.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

PADDING = 4  # pixels on every side before a crop
PLACES = 2 * PADDING + 1  # where a crop may begin, along each side


@dataclass(frozen=True)
class PerChannel:
    """Stored pixels as floats of about zero mean and unit spread: mean and std of each channel, of pixels in 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, x: Tensor) -> Tensor:
        if x.dtype != torch.uint8:
            return x
        channels, height, width = x.shape[1:]
        scale, shift = _constants(self, width, x.device)
        # Channels last: what the convolutions and poolings of a CPU are fastest at. Turned while they are bytes, and
        # scaled by whole rows: broadcasting three constants over the innermost three values takes four times as long.
        pixels = torch.stack(x.unbind(1), -1).to(torch.float32)  # [B, H, W, C]
        pixels.view(-1, height, width * channels).mul_(scale).add_(shift)
        return pixels.permute(0, 3, 1, 2)  # [B, C, H, W]


@cache
def _constants(constants: PerChannel, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(x / 255 - mean) / std as x * scale + shift, each for a row of pixels with its channels last [W C]."""
    mean = torch.tensor(constants.mean, dtype=torch.float64)
    std = torch.tensor(constants.std, dtype=torch.float64)
    return (1 / (255 * std)).float().repeat(width).to(device), (-mean / std).float().repeat(width).to(device)


def crop_and_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each image [B, C, H, W] cropped to its own size out of a black border of 4 pixels, and mirrored every other time.

    One draw an image holds its row, its column and whether it is mirrored. The pixels are then one gather.
    """
    batch, channels, height, width = x.shape
    drawn = torch.randint(PLACES * PLACES * 2, (batch, 1), generator=generator).to(x.device)
    down, right, mirrored = drawn % PLACES, drawn // PLACES % PLACES, drawn >= PLACES * PLACES  # [B, 1] each
    along = torch.arange(width, device=x.device)
    rows = down + torch.arange(height, device=x.device)  # [B, H]
    columns = right + torch.where(mirrored, width - 1 - along, along)  # [B, W]
    places = rows[:, :, None] * (width + 2 * PADDING) + columns[:, None, :]  # [B, H, W], in a flat padded channel
    padded = F.pad(x, (PADDING,) * 4).flatten(2)  # [B, C, (H + 8) (W + 8)]
    places = places.view(batch, 1, -1).expand(-1, channels, -1)
    return padded.gather(2, places).view_as(x)
