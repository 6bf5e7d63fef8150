"""How long to wait, and how many votes are enough: tables."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.protocol.deadlines import (
    ENOUGH,
    FIRST_TIMEOUT,
    LEAST_TIMEOUT,
    REMEMBERED,
    Deadlines,
    automatic_timeout,
)


@pytest.mark.parametrize(
    ("waits", "seconds"),
    [
        ([], 60.0),  # nothing seen yet
        ([0.1] * 4, 60.0),
        ([0.1] * 5, 10.0),  # quick peers: never less than ten seconds
        ([0.0] * 5, 10.0),
        ([2.5] * 5, 10.0),
        ([5.0] * 5, 20.0),  # even waits: four medians
        ([100.0] * 64, 400.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 13.0),  # median 3, spread 1: 3 + 10
        ([10.0, 20.0, 30.0, 40.0, 50.0], 130.0),
        ([5.0, 5.0, 5.0, 5.0, 1000.0], 20.0),  # one slow round moves nothing
        ([5.0, 5.0, 5.0, 1000.0, 1000.0], 20.0),
        ([5.0, 5.0, 1000.0, 1000.0, 1000.0], 4000.0),  # most are slow
    ],
)
def test_the_automatic_timeout(waits: list[float], seconds: float) -> None:
    assert automatic_timeout(waits) == seconds
    assert automatic_timeout(waits[::-1]) == seconds


def test_the_constants_of_the_table() -> None:
    assert (FIRST_TIMEOUT, LEAST_TIMEOUT, ENOUGH) == (60.0, 10.0, 5)


@given(st.lists(st.floats(0, 1e6), min_size=ENOUGH, max_size=20))
def test_most_of_the_waits_seen_would_have_been_in_time(waits: list[float]) -> None:
    timeout = automatic_timeout(waits)
    assert timeout >= LEAST_TIMEOUT
    assert sum(wait <= timeout for wait in waits) > len(waits) / 2


def test_a_fixed_timeout_stays() -> None:
    deadlines = Deadlines(3.0)
    for _ in range(10):
        deadlines.observe(100.0)
    assert deadlines.timeout() == 3.0


def test_a_simulation_waits_for_ever() -> None:
    assert Deadlines().timeout() is None


def test_an_automatic_one_follows_what_was_seen() -> None:
    deadlines = Deadlines(automatic=True)
    assert deadlines.timeout() == FIRST_TIMEOUT
    for _ in range(ENOUGH - 1):
        deadlines.observe(100.0)
    assert deadlines.timeout() == FIRST_TIMEOUT
    deadlines.observe(100.0)
    assert deadlines.timeout() == 400.0
    for _ in range(REMEMBERED):
        deadlines.observe(5.0)
    assert deadlines.timeout() == 20.0  # the old ones are forgotten


def test_no_timeout_is_longer_than_the_longest_wait() -> None:
    deadlines = Deadlines(automatic=True, longest=30.0)
    assert deadlines.timeout() == 30.0
    for _ in range(ENOUGH):
        deadlines.observe(5.0)
    assert deadlines.timeout() == 20.0
    for _ in range(REMEMBERED):
        deadlines.observe(29.0)
    assert deadlines.timeout() == 30.0
    assert Deadlines(60.0, longest=30.0).timeout() == 30.0
    assert Deadlines(longest=30.0).timeout() is None


def test_its_size_does_not_follow_the_rounds() -> None:
    deadlines = Deadlines(automatic=True)
    sizes = []
    for _ in range(3):
        for _ in range(REMEMBERED):
            deadlines.observe(5.0)
        sizes.append(len(pickle.dumps(deadlines)))
    assert sizes[0] == sizes[1] == sizes[2]


def test_each_has_waits_of_its_own() -> None:
    first, second = Deadlines(automatic=True), Deadlines(automatic=True)
    for _ in range(ENOUGH):
        first.observe(100.0)
    assert second.timeout() == FIRST_TIMEOUT
