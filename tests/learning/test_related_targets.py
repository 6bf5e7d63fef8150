"""FedCT, DS-FL and IDKD: their targets by hand."""

import numpy as np
import pytest

from p2p_tally.config import Federation
from p2p_tally.learning.related_targets import majority, mean_of_confident, sharpened

SETTINGS = Federation()


def test_the_majority_is_certain() -> None:
    votes = [np.array([0, 2, 1]), np.array([0, 1, 1]), np.array([1, 1, 2])]
    assert majority(votes, 3, SETTINGS).tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]


def test_of_even_classes_the_smallest_and_of_no_votes_none() -> None:
    votes = [np.array([2, 3]), np.array([1, 3])]  # 3 of 3 classes: no opinion
    assert majority(votes, 3, SETTINGS).tolist() == [[0, 1, 0], [0, 0, 0]]


def test_weights_decide_a_majority() -> None:
    votes = [np.array([0]), np.array([1]), np.array([1])]
    assert majority(votes, 2, SETTINGS, np.array([0.6, 0.2, 0.2])).tolist() == [[1, 0]]


def test_sharpened_is_a_softmax_of_the_mean_at_a_tenth() -> None:
    answers = [
        np.array([[0.6, 0.4]], np.float32),
        np.array([[0.4, 0.6]], np.float32),
        np.array([[0.8, 0.2]], np.float32),
    ]
    odds = np.exp((0.6 - 0.4) / 0.1)
    assert sharpened(answers, 2, SETTINGS)[0] == pytest.approx([odds / (odds + 1), 1 / (odds + 1)], rel=1e-4)


def test_only_confident_peers_count() -> None:
    first = np.array([[0.9, 0.1], [0.6, 0.4]], np.float32)
    second = np.array([[0.3, 0.7], [0.2, 0.8]], np.float32)
    third = np.array([[0.0, 1.0], [0.5, 0.5]], np.float32)
    # The first and the third are surer of the first probe, the second of the second.
    target = mean_of_confident([first, second, third], 2, SETTINGS)
    np.testing.assert_allclose(target, [[0.45, 0.55], [0.2, 0.8]], rtol=1e-6)
    by_weight = mean_of_confident([first, second, third], 2, SETTINGS, np.array([0.75, 0.1, 0.15]))
    np.testing.assert_allclose(by_weight[0], [0.9 * 5 / 6, 1 - 0.9 * 5 / 6], rtol=1e-6)


def test_a_single_probe_is_everybodys() -> None:
    answers = [np.array([[0.9, 0.1]], np.float32), np.array([[0.5, 0.5]], np.float32)]
    np.testing.assert_allclose(mean_of_confident(answers, 2, SETTINGS), [[0.7, 0.3]], rtol=1e-6)
