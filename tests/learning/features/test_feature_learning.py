"""What is learned from images: the same bits for any number of threads, centred, in order of variance, of use."""

import numpy as np
import pytest
import torch

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.features.learn import PATCHES_A_PART, Recipe, _k_means, embed, learn
from p2p_tally.learning.features.parts import Parts

RECIPE = Recipe(centroids=12, dimensions=8, patch=4, patches=3_000)


def images(count: int, seed: int = 0) -> Arrays:
    """Noise of a few scales, so that patches differ in more than contrast."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 200, size=(count, 3, 3, 3)).repeat(4, 2).repeat(4, 3)
    pixels = (coarse + generator.integers(0, 56, size=(count, 3, 12, 12))).astype(np.uint8)
    return Arrays(torch.from_numpy(pixels), None)


def test_the_same_bits_for_any_number_of_threads() -> None:
    data = images(250)
    results = []
    for threads, torch_threads in ((1, 1), (2, 1), (3, 2)):
        torch.set_num_threads(torch_threads)
        extractor, features = learn(data, RECIPE, Parts(threads))
        results.append((extractor.digest(), features))
    torch.set_num_threads(1)
    assert len({digest for digest, _ in results}) == 1
    assert all(torch.equal(features, results[0][1]) for _, features in results)


def test_training_images_embedded_again_give_their_features() -> None:
    data = images(130)
    extractor, features = learn(data, RECIPE, Parts())
    assert torch.equal(embed(extractor, data, Parts(2), "again"), features)
    part = data.subset(torch.arange(100, 130))
    assert torch.allclose(embed(extractor, part, Parts(), "some"), features[100:], atol=1e-5)


def test_features_are_centred_uncorrelated_in_order_and_of_mean_square_one() -> None:
    features = learn(images(300), RECIPE, Parts())[1].double()
    assert features.shape == (300, 8)
    assert torch.allclose(features.mean(0), torch.zeros(8, dtype=torch.float64), atol=1e-4)
    covariance = features.T @ features / len(features)
    variances = covariance.diagonal()
    assert torch.allclose(covariance, torch.diag(variances), atol=1e-3)
    assert bool((variances[:-1] >= variances[1:]).all())
    assert float(variances.mean()) == pytest.approx(1, abs=1e-4)


def test_another_seed_learns_other_centroids() -> None:
    data = images(60)
    first, second = (
        learn(data, Recipe(centroids=12, dimensions=8, patch=4, patches=3_000, seed=seed), Parts())[0]
        for seed in (0, 1)
    )
    assert first.digest() != second.digest()


def test_flat_images_give_finite_features() -> None:
    flat = Arrays(torch.full((20, 1, 8, 8), 7, dtype=torch.uint8), None)
    features = learn(flat, Recipe(centroids=3, dimensions=2, patch=4), Parts())[1]
    assert bool(torch.isfinite(features).all())


def test_k_means_finds_clusters_and_leaves_a_centroid_without_points_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    points = (centres[:, None] + torch.randn(3, 1_500, 2, generator=generator)).reshape(-1, 2)
    assert len(points) > 2 * PATCHES_A_PART
    start = torch.cat([points[::1_500], torch.tensor([[100.0, 100.0]])])
    found = _k_means(points, start, Parts())
    assert torch.allclose(found[:3], points.reshape(3, 1_500, 2).mean(1), atol=1e-3)
    assert torch.equal(found[3], torch.tensor([100.0, 100.0]))


def test_progress_names_the_stages_and_each_ends() -> None:
    told: dict[str, tuple[int, int]] = {}
    learn(images(60), RECIPE, Parts(1, lambda what, done, of: told.update({what: (done, of)})))
    assert list(told) == ["centroids", "training images", "main directions"]
    assert all(done == of for done, of in told.values())


@pytest.mark.parametrize(
    ("recipe", "shape", "message"),
    [
        (Recipe(), (3, 6, 32), "images of 6 x 32; accepted is 7 x 7 or larger"),
        (Recipe(centroids=1), (3, 32, 32), "--centroids 1: accepted is 2 to 72900"),
        (Recipe(centroids=80_000), (3, 32, 32), "--centroids 80000: accepted is 2 to 72900"),
        (Recipe(dimensions=0), (3, 32, 32), "--dimensions 0: accepted is 1 to 100"),
        (Recipe(dimensions=101), (3, 32, 32), "--dimensions 101: accepted is 1 to 100"),
        (Recipe(centroids=4, dimensions=17), (3, 32, 32), "--dimensions 17: accepted is 1 to 16"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(recipe: Recipe, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        recipe.check(100, shape, "--data features:x")
