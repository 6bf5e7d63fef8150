"""Features of images without labels, after Coates, Lee and Ng, "An Analysis of Single-Layer Networks in Unsupervised
Feature Learning" (2011).

Small patches are brought to equal contrast and whitened, and k-means finds centroids among them. For every patch of an
image, each centroid's activation is how much nearer than the average centroid it is, or zero. The activations are
summed over each quadrant of the image. The main directions of those sums are the features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from p2p_tally.errors import DataError
from p2p_tally.ids import Digest, digest

IMAGES_AT_ONCE = 4  # their activations stay in a processor's cache
IMAGES_A_PART = 100
CONTRAST = 10.0  # added to a patch's variance, of pixels from 0 to 255: flat patches stay nearly flat


@dataclass(frozen=True, eq=False)
class Dictionary:
    """Patches of images -> activations. A patch has P values: C channels, `side` rows and columns."""

    image: tuple[int, int, int]  # shape of the images: C, H, W
    side: int
    whitening: Tensor  # [P, P]
    centre: Tensor  # [P]: the mean patch, whitened
    centroids: Tensor  # [K, P], of whitened patches

    def pooled(self, images: Tensor) -> Tensor:
        """Images [N, C, H, W] -> activations summed over quadrants [N, 4 K]."""
        return torch.cat([self._pooled(some) for some in torch.split(images, IMAGES_AT_ONCE)])

    def _pooled(self, images: Tensor) -> Tensor:
        rows, columns = (length - self.side + 1 for length in images.shape[2:])
        patches = equal_contrast(F.unfold(images.float(), self.side), 1)  # [N, P, rows * columns]
        white = torch.matmul(self.whitening, patches).sub_(self.centre[:, None])
        # Squared distances |w|^2 - 2 w c + |c|^2 as one product.
        square, one = white.square().sum(1, keepdim=True), torch.ones(len(white), 1, white.shape[2])
        against = torch.cat([-2 * self.centroids, torch.ones(len(self.centroids), 1), _squares(self.centroids)], 1)
        distance = torch.matmul(against, torch.cat([white, square, one], 1)).clamp_(min=0).sqrt_()
        activation = torch.sub(distance.mean(1, keepdim=True), distance, out=distance).clamp_(min=0)
        sums = activation.reshape(-1, rows * columns) @ _quadrants(rows, columns)
        return sums.reshape(len(images), -1)


@dataclass(frozen=True, eq=False)
class Extractor:
    """Images [N, C, H, W] of pixels from 0 to 255 -> features [N, D]."""

    dictionary: Dictionary
    projection: Tensor  # [4 K, D]
    offset: Tensor  # [D]

    @property
    def dimensions(self) -> int:
        return len(self.offset)

    def digest(self) -> Digest:
        """The same for two extractors only if they give the same features."""
        dictionary = self.dictionary
        arrays = (dictionary.whitening, dictionary.centre, dictionary.centroids, self.projection, self.offset)
        return digest(repr(dictionary.image).encode(), *(array.numpy().tobytes() for array in arrays))

    def check(self, shape: tuple[int, ...], flag: str) -> None:
        """Refuse images of another shape: sums over other numbers of patches would not compare."""
        if shape != self.dictionary.image:
            raise DataError(f"{flag}: images of shape {shape}, but the features are of images {self.dictionary.image}")

    def project(self, pooled: Tensor) -> Tensor:
        return pooled @ self.projection - self.offset


def equal_contrast(patches: Tensor, axis: int) -> Tensor:
    """Patches, each without its mean and divided by its own deviation."""
    centred = patches - patches.mean(axis, keepdim=True)
    return centred / (centred.square().mean(axis, keepdim=True) + CONTRAST).sqrt()


def _squares(rows: Tensor) -> Tensor:
    return rows.square().sum(1, keepdim=True)


def _quadrants(rows: int, columns: int) -> Tensor:
    """Which quadrant each position is in [rows * columns, 4]."""
    below = (torch.arange(rows) >= rows // 2).long()
    right = (torch.arange(columns) >= columns // 2).long()
    return F.one_hot((2 * below[:, None] + right).reshape(-1), 4).float()
