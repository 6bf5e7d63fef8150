"""Points in bounded memory."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.page.series import Series

steps = st.lists(st.integers(1, 5), min_size=1, max_size=400)


def filled(gaps: list[int], most: int) -> tuple[Series, list[int]]:
    series, rounds, at = Series(most), [], 0
    for serial, gap in enumerate(gaps, 1):
        at += gap
        rounds.append(at)
        series.add(serial, [at, serial])
    return series, rounds


@given(steps, st.integers(2, 40))
def test_memory_is_bounded_and_the_ends_stay(gaps: list[int], most: int) -> None:
    series, rounds = filled(gaps, most)
    kept = [row[0] for row in series.since(0)]
    assert len(series) == len(kept) <= most
    assert kept == sorted(set(kept)) and set(kept) <= set(rounds)
    assert kept[-1] == rounds[-1]
    if len(rounds) <= most:
        assert kept == rounds


@given(steps, st.integers(2, 40))
def test_what_is_new_is_what_was_added_since(gaps: list[int], most: int) -> None:
    series, _ = filled(gaps, most)
    for serial in (0, len(gaps) // 2, len(gaps)):
        assert [row[1] for row in series.since(serial)] == [row[1] for row in series.since(0) if row[1] > serial]
    assert series.since(len(gaps)) == []


def test_a_node_that_resumes_takes_its_later_rounds_back() -> None:
    series = Series()
    for serial, round in enumerate([1, 2, 3, 4, 3], 1):
        series.add(serial, [round, serial])
    assert series.since(0) == [[1, 1], [2, 2], [3, 5]]
    assert series.since(4) == [[3, 5]]


def test_a_hundred_thousand_rounds_stay_spread_out() -> None:
    series = Series(512)
    for round in range(1, 100_001):
        series.add(round, [round])
    kept = [row[0] for row in series.since(0)]
    assert len(kept) > 256 and kept[-1] == 100_000
    gaps = [later - earlier for earlier, later in pairwise([0, *kept])]
    assert max(gaps) <= 2 * 100_000 / len(kept)  # also at the beginning
