"""Which k of n places: every set comes back, as long as n and k say; other bytes are refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import ParameterError
from p2p_tally.protocol import indices


@st.composite
def place_sets(draw: st.DrawFn) -> tuple[int, np.ndarray]:
    count = draw(st.integers(1, 300))
    k = draw(st.integers(1, count))
    chosen = np.random.default_rng(draw(st.integers(0, 2**32))).choice(count, k, replace=False)
    return count, np.sort(chosen)


@given(place_sets())
def test_every_set_of_places_comes_back(case: tuple[int, np.ndarray]) -> None:
    count, places = case
    data = indices.encode(places, count)
    assert len(data) == indices.size(count, len(places))
    assert indices.decode(data, count, len(places)).tolist() == places.tolist()


@pytest.mark.parametrize("places", [[0], [999], [0, 999], [*range(20)], [*range(980, 1000)], [*range(0, 1000, 50)]])
def test_places_at_the_ends_and_in_a_row(places: list[int]) -> None:
    data = indices.encode(np.array(places), 1000)
    assert indices.decode(data, 1000, len(places)).tolist() == places


@given(st.integers(1, 70_000), st.floats(0.0001, 1))
def test_never_longer_than_a_bitmap_and_never_far_from_the_least(count: int, share: float) -> None:
    k = math.ceil(share * count)
    bits = 8 * indices.size(count, k)
    assert bits <= 8 * -(-count // 8)
    least = (math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)) / math.log(2)
    assert least - 1e-6 * count <= bits <= least + k + 16 or bits == 8 * -(-count // 8)


@given(st.binary(min_size=1, max_size=40), st.integers(1, 400), st.data())
def test_any_bytes_are_places_or_the_typed_error(data: bytes, count: int, more: st.DataObject) -> None:
    k = more.draw(st.integers(1, count))
    data = (data * (indices.size(count, k) // len(data) + 1))[: indices.size(count, k)]
    try:
        places = indices.decode(data, count, k)
    except ParameterError as error:
        assert error.reason == "places"
    else:
        assert len(places) == k and places[0] >= 0 and places[-1] < count
        assert (np.diff(places) > 0).all()
        assert indices.encode(places, count) == data  # one way to say it


def test_the_bytes() -> None:
    """3 of 100: l = 4; low bits of 1, 34 and 71, then ones after 0, 2 and 2 zeros more, the rest zeros."""
    assert indices.low_bits(100, 3) == 4
    data = indices.encode(np.array([1, 34, 71]), 100)
    assert "".join(f"{byte:08b}" for byte in data) == "000100100111100100100000"
    assert indices.low_bits(8, 4) is None
    assert indices.encode(np.array([0, 2, 3, 7]), 8) == bytes([0b10110001])
