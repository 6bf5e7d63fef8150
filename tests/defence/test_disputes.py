"""Who is left out, by who accuses whom."""

import pytest

from p2p_tally.defence.disputes import left_out


@pytest.mark.parametrize(
    ("disputes", "out"),
    [
        ([], set()),
        ([(1, 2)], {1, 2}),
        ([(1, 2), (2, 1)], {1, 2}),
        ([(3, 3)], set()),
        ([(0, 4), (1, 4), (2, 4)], {4}),  # all accuse one
        ([(4, 0), (4, 1), (4, 2)], {4}),  # one accuses all
        ([(0, 4), (1, 4), (4, 2), (3, 2)], {4, 2, 3}),
        ([(0, 1), (2, 3)], {0, 1, 2, 3}),
        ([(0, 1), (0, 2), (3, 4)], {0, 3, 4}),
    ],
)
def test_who_is_left_out(disputes: list[tuple[int, int]], out: set[int]) -> None:
    assert left_out(disputes) == out
