"""Cronus: the filter's arithmetic on paper, and what a liar cannot do to it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.config import Federation
from p2p_tally.learning.consensus import mean_soft_label
from p2p_tally.learning.knowledge.cronus import filtered_mean

ONE_OUT = Federation(robust_soft="trim:1")


def said(*rows: list[float]) -> list[np.ndarray]:
    """Each peer's answer for one probe."""
    return [np.array([row], np.float32) for row in rows]


def test_three_peers_on_paper() -> None:
    """Mean (0.6, 0.4). Deviations (0.2, -0.2), (0.3, -0.3), (-0.5, 0.5): all on the line (1, -1), where the three stand
    at 0.28, 0.42 and -0.71. The median is the first's; the third is furthest from it, so the other two are averaged."""
    answers = said([0.8, 0.2], [0.9, 0.1], [0.1, 0.9])
    np.testing.assert_allclose(filtered_mean(answers, 2, ONE_OUT), [[0.85, 0.15]], rtol=1e-6)


def test_a_minority_class_is_found_that_no_coordinate_shows_first() -> None:
    """Six peers, one in five of which is left out: one. Most variance is along (1, -1, 0) / sqrt 2, where the last one
    stands alone; the mean of the five others is (0.7, 0.2, 0.1)."""
    answers = said(*[[0.7, 0.2, 0.1]] * 5, [0.0, 0.9, 0.1])
    np.testing.assert_allclose(filtered_mean(answers, 3, Federation()), [[0.7, 0.2, 0.1]], rtol=1e-6)


def test_each_probe_is_filtered_for_itself() -> None:
    answers = [
        np.array([[1.0, 0.0], [0.0, 1.0]], np.float32),
        np.array([[0.9, 0.1], [0.9, 0.1]], np.float32),
        np.array([[0.2, 0.8], [0.9, 0.1]], np.float32),
    ]
    # Of the first probe the third peer is out, of the second the first.
    np.testing.assert_allclose(filtered_mean(answers, 2, ONE_OUT), [[0.95, 0.05], [0.9, 0.1]], rtol=1e-6)


def test_weights_count_among_those_who_are_left() -> None:
    answers = said([0.8, 0.2], [0.9, 0.1], [0.1, 0.9])
    target = filtered_mean(answers, 2, ONE_OUT, np.array([0.6, 0.2, 0.2]))
    np.testing.assert_allclose(target, [[(0.6 * 0.8 + 0.2 * 0.9) / 0.8, (0.6 * 0.2 + 0.2 * 0.1) / 0.8]], rtol=1e-6)
    by_vote = filtered_mean(answers, 2, ONE_OUT, np.array([[1.0], [0.0], [0.0]]))
    np.testing.assert_allclose(by_vote, [[0.8, 0.2]], rtol=1e-6)
    assert not filtered_mean(answers, 2, ONE_OUT, np.zeros((3, 1))).any()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
def test_a_distribution_in_any_order_and_the_plain_mean_where_nobody_is_left_out(seed: int, voters: int) -> None:
    drawn = np.random.default_rng(seed)
    answers = [drawn.dirichlet(np.ones(4), 3).astype(np.float32) for _ in range(voters)]
    target = filtered_mean(answers, 4, Federation())
    np.testing.assert_allclose(target.sum(1), 1, rtol=1e-5)
    order = drawn.permutation(voters)
    np.testing.assert_allclose(filtered_mean([answers[place] for place in order], 4, Federation()), target, atol=1e-5)
    if voters < 5:
        np.testing.assert_allclose(target, mean_soft_label(answers, 4, Federation()), atol=1e-6)


@pytest.mark.parametrize("loud", [1, 2])
def test_liars_that_shout_move_it_less_than_the_mean(loud: int) -> None:
    drawn = np.random.default_rng(0)
    honest = [drawn.dirichlet([20, 5, 5], 8).astype(np.float32) for _ in range(10 - loud)]
    lies = [np.tile(np.array([0, 0, 1], np.float32), (8, 1))] * loud
    truth = mean_soft_label(honest, 3, Federation())
    robust, plain = (rule([*honest, *lies], 3, Federation()) for rule in (filtered_mean, mean_soft_label))
    assert np.abs(robust - truth).max() < np.abs(plain - truth).max() / 2


def test_many_classes_and_few_voters_give_the_same_direction() -> None:
    """With fewer voters than classes another product is decomposed: empty classes change nothing."""
    drawn = np.random.default_rng(1)
    few = [drawn.dirichlet(np.ones(3), 5).astype(np.float32) for _ in range(6)]
    wide = [np.pad(answer, ((0, 0), (0, 9))) for answer in few]
    np.testing.assert_allclose(filtered_mean(wide, 12, ONE_OUT)[:, :3], filtered_mean(few, 3, ONE_OUT), atol=1e-6)
