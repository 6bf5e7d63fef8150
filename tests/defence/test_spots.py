"""Whether a mean can be right, from claims of which a few may be lies."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.defence import spots
from p2p_tally.defence.means import trimmed_mean

NONE = np.zeros(30, np.float32)


def claims(seed: int, count: int = 10) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(count, 30)).astype(np.float32))


@given(st.integers(0, 1000), st.integers(5, 12), st.integers(0, 2))
def test_a_true_mean_is_possible_whatever_so_many_liars_claim(seed: int, count: int, lies: int) -> None:
    sent = claims(seed, count)
    found = trimmed_mean(sent, 2)
    said = [row * np.float32(-1e6) if place < lies else row for place, row in enumerate(sent)]
    assert spots.possible_trimmed(found, said, count, 2, 2, NONE)
    if lies < 2:
        assert spots.possible_trimmed(found, said[:-1], count, 2, 2, NONE)  # one does not claim anything
    assert spots.possible(trimmed_mean(sent, 0), sent, NONE)


def test_a_false_mean_is_not() -> None:
    sent = claims(0)
    found = trimmed_mean(sent, 2)
    assert not spots.possible_trimmed(-10 * found, sent, 10, 2, 2, NONE)
    assert not spots.possible_trimmed(found + 2, sent, 10, 2, 2, NONE)
    assert spots.possible_trimmed(found + 2, sent, 10, 2, 2, NONE + 3)  # rounding may have moved it
    one = found.copy()
    one[7] = 100
    assert not spots.possible_trimmed(one, sent, 10, 2, 2, NONE)
    assert not spots.possible(one, sent, NONE)


def test_places_follow_from_the_seed() -> None:
    first, again, other = (spots.places(10_000, digest) for digest in (b"a" * 16, b"a" * 16, b"b" * 16))
    assert (first == again).all() and (first != other).any()
    assert len(first) == spots.spots(10_000) == 79
    assert first.min() >= 0 and first.max() < 10_000
    assert len(spots.places(0, b"x")) == 0
    assert spots.spots(10**9) == spots.MOST
