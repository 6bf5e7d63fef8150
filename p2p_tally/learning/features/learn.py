"""How an extractor is learned: from images alone, without labels."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.ids import derive_seed
from p2p_tally.learning.data import Examples
from p2p_tally.learning.features.extractor import IMAGES_A_PART, Dictionary, Extractor, equal_contrast
from p2p_tally.learning.features.parts import Parts, one_thread_each

PATCHES_A_PART = 2_000
ITERATIONS = 20  # of k-means; the distances change by less than a part in 500 after that
SMOOTHING = 0.1  # added to the variances that whitening divides by
ROWS_AT_ONCE = 2_000
LEAST_VARIANCE = 1e-6  # of a sum of activations: a smaller one carries nothing and stays small


@dataclass(frozen=True)
class Recipe:
    """What decides an extractor besides the images."""

    centroids: int = 512
    dimensions: int = 256
    patch: int = 6  # rows and columns
    patches: int = 200_000  # that whitening and centroids are learned from
    seed: int = 0

    def check(self, images: int, shape: tuple[int, ...], flag: str) -> None:
        """Refuse numbers that do not fit each other or the training images."""
        least = self.patch + 1
        if min(shape[1:]) < least:
            raise DataError(f"{flag}: images of {shape[1]} x {shape[2]}; accepted is {least} x {least} or larger")
        patches = min(self.patches, images * (shape[1] - self.patch + 1) * (shape[2] - self.patch + 1))
        if not 2 <= self.centroids <= patches:
            raise ConfigError(f"--centroids {self.centroids}: accepted is 2 to {patches}, the patches to learn from")
        most = min(4 * self.centroids, images)
        if not 1 <= self.dimensions <= most:
            raise ConfigError(
                f"--dimensions {self.dimensions}: accepted is 1 to {most}, with {images} training images and "
                f"{self.centroids} centroids"
            )


def learn(images: Examples, recipe: Recipe, parts: Parts) -> tuple[Extractor, Tensor]:
    """An extractor from training images, and the features of those images [N, D]."""
    with one_thread_each():
        dictionary = learn_dictionary(images, recipe, parts)
        sums = pool(dictionary, images, parts, "training images")
        extractor = principal(dictionary, sums, recipe.dimensions, parts)
        return extractor, extractor.project(sums)


def embed(extractor: Extractor, images: Examples, parts: Parts, what: str) -> Tensor:
    """The features of images [N, D]."""
    with one_thread_each():
        return extractor.project(pool(extractor.dictionary, images, parts, what))


def pool(dictionary: Dictionary, images: Examples, parts: Parts, what: str) -> Tensor:
    def work(rows: slice) -> Tensor:
        return dictionary.pooled(images.take(torch.arange(rows.start, rows.stop))[0])

    sums = torch.empty(len(images), 4 * len(dictionary.centroids))
    done = 0
    for some in parts.each(what, len(images), IMAGES_A_PART, work):
        sums[done : done + len(some)] = some
        done += len(some)
    return sums


def learn_dictionary(images: Examples, recipe: Recipe, parts: Parts) -> Dictionary:
    generator = torch.Generator().manual_seed(derive_seed(recipe.seed, "features"))
    patches = equal_contrast(_some_patches(images, recipe, generator), 1)  # [n, P]
    exact = patches.double()
    mean = exact.mean(0)
    variances, axes = torch.linalg.eigh((exact - mean).T @ (exact - mean) / len(exact))
    whitening = (axes * (variances.clamp(min=0) + SMOOTHING).rsqrt()) @ axes.T
    white = ((exact - mean) @ whitening).float()
    start = white[torch.randperm(len(white), generator=generator)[: recipe.centroids]]
    channels, height, width = images.take(torch.zeros(1, dtype=torch.int64))[0].shape[1:]
    return Dictionary(
        image=(channels, height, width),
        side=recipe.patch,
        whitening=whitening.float(),
        centre=(mean @ whitening).float(),
        centroids=_k_means(white, start, parts),
    )


def _some_patches(images: Examples, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Patches at random places of random images [n, P], as numbers from 0 to 255."""
    side = recipe.patch
    rows, columns = (length - side + 1 for length in images.take(torch.zeros(1, dtype=torch.int64))[0].shape[2:])
    count = min(recipe.patches, len(images) * rows * columns)
    of = torch.randint(len(images), (count,), generator=generator).sort().values
    top = torch.randint(rows, (count, 1), generator=generator)
    left = torch.randint(columns, (count, 1), generator=generator)
    within = torch.arange(side)
    found = []
    for start in range(0, count, PATCHES_A_PART):
        part = slice(start, start + PATCHES_A_PART)
        some = images.take(of[part])[0]  # [n, C, H, W]
        down, across = (top[part] + within)[:, None, :, None], (left[part] + within)[:, None, None, :]
        image, channel = torch.arange(len(some))[:, None, None, None], torch.arange(some.shape[1])[None, :, None, None]
        found.append(some[image, channel, down, across].reshape(len(some), -1).float())
    return torch.cat(found)


def _k_means(points: Tensor, centroids: Tensor, parts: Parts) -> Tensor:
    """Lloyd's algorithm from the centroids given. A centroid that is nearest to no point stays where it is."""
    quiet = Parts(parts.threads)
    for done in range(1, ITERATIONS + 1):
        sums, counts = torch.zeros_like(centroids), torch.zeros(len(centroids), 1)
        for some_sums, some_counts in quiet.each("", len(points), PATCHES_A_PART, _assignment(points, centroids)):
            sums += some_sums
            counts += some_counts
        centroids = torch.where(counts > 0, sums / counts.clamp(min=1), centroids)
        parts.progress("centroids", done, ITERATIONS)
    return centroids


def _assignment(points: Tensor, centroids: Tensor) -> Callable[[slice], tuple[Tensor, Tensor]]:
    """A function of some points: for each centroid, the sum [K, P] and the number [K, 1] of those nearest to it."""
    squares = centroids.square().sum(1)

    def assign(rows: slice) -> tuple[Tensor, Tensor]:
        some = points[rows]
        nearest = (some @ centroids.T).mul_(-2).add_(squares).argmin(1)
        sums = torch.zeros_like(centroids).index_add_(0, nearest, some)
        return sums, torch.bincount(nearest, minlength=len(centroids))[:, None].float()

    return assign


def principal(dictionary: Dictionary, sums: Tensor, dimensions: int, parts: Parts) -> Extractor:
    """The extractor whose features are the main directions of standardised sums of activations.

    The features keep their proportions: one scale for all gives them a mean square of 1. Dividing each by its own
    deviation would raise the noise of the last ones, and costs two points of accuracy on CIFAR-10.
    """
    mean = torch.stack([some.double().sum(0) for some in torch.split(sums, ROWS_AT_ONCE)]).sum(0) / len(sums)
    covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for done, some in enumerate(torch.split(sums, ROWS_AT_ONCE), 1):
        centred = some - mean.float()
        covariance += centred.T @ centred
        parts.progress("main directions", min(done * ROWS_AT_ONCE, len(sums)), len(sums))
    covariance /= len(sums)
    deviation = covariance.diagonal().clamp(min=LEAST_VARIANCE).sqrt()
    variances, axes = torch.linalg.eigh(covariance / deviation / deviation[:, None])
    kept = axes[:, -dimensions:].flip(1)
    kept = kept * kept.gather(0, kept.abs().argmax(0, keepdim=True)).sign()  # a direction's sign is arbitrary
    scale = variances[-dimensions:].clamp(min=0).mean().clamp(min=LEAST_VARIANCE).rsqrt()
    projection = kept / deviation[:, None] * scale
    return Extractor(dictionary, projection.float(), (mean @ projection).float())
