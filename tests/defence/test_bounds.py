"""Which contributions are absurd."""

import math

import numpy as np
import pytest

from p2p_tally.defence import bounds
from p2p_tally.defence.bounds import absurd, length


@pytest.mark.parametrize(
    ("lengths", "own", "found"),
    [
        ([1, 1, 1, 100], 1, [3]),
        ([1, 1, 1, 10], 1, [3]),
        ([1, 2, 3, 5], 1, []),
        ([1, 1, 1, math.inf], 1, [3]),
        ([1, 1, 1, math.nan], 1, [3]),
        ([100, 100, 100, 1], 1, []),  # the judge is the small one
        ([0, 0, 0, 5], 0, []),  # nothing to compare with
        ([0, 3, 3, 3], 0, []),
    ],
)
def test_too_long(lengths: list[float], own: float, found: list[int]) -> None:
    assert absurd(lengths, own) == found


def test_a_length_may_overflow() -> None:
    assert length(np.full(100, 1e30, np.float32)) == math.inf
    assert length(np.float32([3, 4])) == 5


def test_the_judge_itself_always_counts_and_short_runs_are_not_judged() -> None:
    usual, huge = np.ones(bounds.LEAST, np.float32), np.full(bounds.LEAST, 100, np.float32)
    assert bounds.counting([usual, huge, usual, usual], 0) == [0, 2, 3]
    assert bounds.counting([usual, huge, usual, usual], 1) == [0, 1, 2, 3]  # by its own length nobody is too long
    assert bounds.counting([usual[:-1], huge[:-1], usual[:-1]], 0) == [0, 1, 2]
