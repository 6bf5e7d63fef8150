"""The accuracy of a model that is trained in one place."""

import torch

from p2p_tally.learning.data import Arrays
from p2p_tally.learning.features.check import central_accuracy


def clusters(count: int, seed: int) -> Arrays:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (count,), generator=generator)
    return Arrays(3 * torch.eye(3)[y] + torch.randn(count, 3, generator=generator) / 2, y)


def test_separate_clusters_are_told_apart_and_labels_by_lot_are_not() -> None:
    train, test = clusters(600, 0), clusters(200, 1)
    accuracy = central_accuracy(train, test, 3)
    assert min(accuracy) > 95
    lots = torch.randint(3, (200,), generator=torch.Generator().manual_seed(2))
    assert central_accuracy(train, Arrays(test.x, lots), 3)[1] < 60


def test_the_same_figures_again_whatever_the_global_seed() -> None:
    train, test = clusters(100, 0), clusters(50, 1)
    torch.manual_seed(1)
    first = central_accuracy(train, test, 3)
    torch.manual_seed(2)
    assert central_accuracy(train, test, 3) == first
