"""Means of distributions without the extremes."""

import numpy as np
import pytest
from conftest import small
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.defence.soft import trimmed_distributions
from p2p_tally.learning.consensus import mean_soft_label, mean_top_k
from p2p_tally.learning.related_targets import mean_of_confident, sharpened


def distributions(voters: int, seed: int = 0, probes: int = 4, classes: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(classes), (voters, probes)).astype(np.float32)


@given(st.integers(1, 9), st.integers(0, 5), st.integers(0, 99))
def test_rows_sum_to_one_and_lie_between_the_answers(voters: int, liars: int, seed: int) -> None:
    rows = trimmed_distributions(distributions(voters, seed), None, liars)
    assert np.allclose(rows.sum(-1), 1, atol=1e-5) and (rows >= 0).all()


def test_trimming_nobody_is_the_mean() -> None:
    answers = distributions(5)
    np.testing.assert_allclose(trimmed_distributions(answers, None, 0), answers.mean(0), atol=1e-6)


def test_liars_within_the_bound_move_it_no_further_than_the_honest_lie_apart() -> None:
    honest = np.tile(np.array([0.7, 0.2, 0.1], np.float32), (4, 1, 1)).reshape(4, 1, 3)
    liar = np.array([[[0.0, 0.0, 1.0]]], np.float32)
    np.testing.assert_allclose(trimmed_distributions(np.concatenate([honest, liar]), None, 1), honest[0], atol=1e-6)


def test_who_has_no_weight_is_not_counted() -> None:
    answers = distributions(5)
    weights = np.array([1, 1, 1, 0, 0]) / 3
    np.testing.assert_allclose(
        trimmed_distributions(answers, weights, 1), trimmed_distributions(answers[:3], None, 1), atol=1e-6
    )


def test_a_probe_without_voters_teaches_nothing() -> None:
    weights = np.ones((3, 4)) / 3
    weights[:, 2] = 0
    rows = trimmed_distributions(distributions(3), weights, 1)
    assert not rows[2].any() and rows[[0, 1, 3]].any(-1).all()


@pytest.mark.parametrize("target", [mean_soft_label, sharpened, mean_of_confident])
def test_targets_of_soft_labels_bear_a_liar(target) -> None:
    rows = np.array([[0.8, 0.15, 0.05], [0.1, 0.2, 0.7]], np.float32)
    answers = [rows, rows, rows, rows, np.roll(rows, 1, -1)]
    wanted = target(answers[:4], 3, small())
    np.testing.assert_allclose(target(answers, 3, small(robust_soft="trim:1")), wanted, atol=1e-5)
    assert np.abs(target(answers, 3, small()) - wanted).max() > 0.01


def test_top_k_answers_are_trimmed_as_whole_distributions() -> None:
    answers = [(np.array([[0, 1]]), np.array([[0.8, 0.2]], np.float32))] * 3
    answers.append((np.array([[2, 1]]), np.array([[0.9, 0.1]], np.float32)))
    target = mean_top_k(answers, 3, small(robust_soft="trim:1"))
    np.testing.assert_allclose(target, [[0.8, 0.2, 0.0]], atol=0.05)
