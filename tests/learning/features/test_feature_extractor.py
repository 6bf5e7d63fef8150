"""The extractor against the definition, written out patch by patch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import DataError
from p2p_tally.learning.features.extractor import Dictionary, Extractor, _quadrants, equal_contrast


def random_dictionary(image: tuple[int, int, int], side: int, centroids: int) -> Dictionary:
    values = image[0] * side**2
    generator = torch.Generator().manual_seed(0)
    return Dictionary(
        image,
        side,
        torch.randn(values, values, generator=generator) / values**0.5,
        torch.randn(values, generator=generator) / 10,
        torch.randn(centroids, values, generator=generator),
    )


def by_definition(dictionary: Dictionary, image: np.ndarray) -> np.ndarray:
    whitening, centre, centroids = (
        array.numpy().astype(np.float64) for array in (dictionary.whitening, dictionary.centre, dictionary.centroids)
    )
    side, (_, height, width) = dictionary.side, image.shape
    rows, columns = height - side + 1, width - side + 1
    sums = np.zeros((len(centroids), 4))
    for top in range(rows):
        for left in range(columns):
            patch = image[:, top : top + side, left : left + side].reshape(-1).astype(np.float64)
            patch = (patch - patch.mean()) / np.sqrt(patch.var() + 10)
            distance = np.sqrt(((whitening @ patch - centre - centroids) ** 2).sum(1))
            quadrant = 2 * (top >= rows // 2) + (left >= columns // 2)
            sums[:, quadrant] += np.maximum(0, distance.mean() - distance)
    return sums.reshape(-1)


@pytest.mark.parametrize("image", [(3, 9, 8), (1, 7, 7)])
def test_sums_are_those_of_the_definition(image: tuple[int, int, int]) -> None:
    dictionary = random_dictionary(image, 3, 5)
    images = np.random.default_rng(1).integers(256, size=(6, *image)).astype(np.uint8)
    expected = np.stack([by_definition(dictionary, one) for one in images])
    assert np.allclose(dictionary.pooled(torch.from_numpy(images)).numpy(), expected, rtol=1e-4, atol=1e-3)


@given(st.integers(2, 30), st.integers(2, 30))
def test_every_position_is_in_one_quadrant_and_each_quadrant_has_some(rows: int, columns: int) -> None:
    quadrants = _quadrants(rows, columns)
    assert torch.equal(quadrants.sum(1), torch.ones(rows * columns))
    assert bool((quadrants.sum(0) > 0).all())


@given(shift=st.integers(-100, 100), seed=st.integers(0, 100))
def test_a_brighter_patch_is_the_same_patch(shift: int, seed: int) -> None:
    patches = torch.randint(100, 156, (4, 27), generator=torch.Generator().manual_seed(seed)).float()
    assert torch.allclose(equal_contrast(patches + shift, 1), equal_contrast(patches, 1), atol=1e-4)


def test_images_of_another_shape_are_refused() -> None:
    extractor = Extractor(random_dictionary((3, 9, 9), 3, 5), torch.zeros(20, 2), torch.zeros(2))
    extractor.check((3, 9, 9), "--like F")
    with pytest.raises(DataError, match=r"--like F: images of shape \(1, 9, 9\).*\(3, 9, 9\)"):
        extractor.check((1, 9, 9), "--like F")


def test_the_digest_is_of_every_array() -> None:
    dictionary = random_dictionary((3, 9, 9), 3, 5)
    one = Extractor(dictionary, torch.zeros(20, 2), torch.zeros(2))
    assert one.digest() == Extractor(dictionary, torch.zeros(20, 2), torch.zeros(2)).digest()
    assert one.digest() != Extractor(dictionary, torch.zeros(20, 2), torch.ones(2)).digest()
    assert one.digest() != Extractor(dictionary, torch.ones(20, 2), torch.zeros(2)).digest()
    assert one.digest() != Extractor(random_dictionary((3, 9, 9), 3, 4), torch.zeros(20, 2), torch.zeros(2)).digest()
