"""Which k of n places, as bytes: a bitmap or Elias-Fano, whichever is shorter. The length depends on n and k only.

Elias-Fano splits each place into l low bits and the rest. The low bits are written as they are; the rest is written in
unary, as the difference from the place before. That takes about 2 + log2(n / k) bits for each place, half a bit more
than the least possible.
"""

from functools import lru_cache

import numpy as np

from p2p_tally.errors import ParameterError


@lru_cache(maxsize=256)
def low_bits(count: int, k: int) -> int | None:
    """The l that gives the shortest code for k of `count` places; None if a bitmap is as short or shorter."""
    lengths = {low: k * low + _upper(count, k, low) for low in range(count.bit_length())}
    best = min(lengths, key=lambda low: lengths[low])
    return best if lengths[best] < count else None


def _upper(count: int, k: int, low: int) -> int:
    """Length of the unary part in bits."""
    return k + ((count - 1) >> low)


@lru_cache(maxsize=256)
def size(count: int, k: int) -> int:
    """Length in bytes for k of `count` places."""
    low = low_bits(count, k)
    return -(-(count if low is None else k * low + _upper(count, k, low)) // 8)


def encode(places: np.ndarray, count: int) -> bytes:
    """Places [k], ascending, below `count`."""
    k = len(places)
    low = low_bits(count, k)
    if low is None:
        bits = np.zeros(count, np.uint8)
        bits[places] = 1
        return np.packbits(bits).tobytes()
    lower = (places[:, None] >> np.arange(low)[::-1]) & 1  # [k, l], the highest bit first
    upper = np.zeros(_upper(count, k, low), np.uint8)
    upper[(places >> low) + np.arange(k)] = 1
    return np.packbits(np.concatenate([lower.ravel().astype(np.uint8), upper])).tobytes()


def decode(data: bytes, count: int, k: int) -> np.ndarray:
    """The places [k], ascending; or a ParameterError. The data must be `size(count, k)` bytes long."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    low = low_bits(count, k)
    start = 0 if low is None else k * low
    end = count if low is None else start + _upper(count, k, low)
    set_bits = np.flatnonzero(bits[start:end])
    if bits[end:].any() or len(set_bits) != k:
        raise ParameterError(f"not {k} places, or padding that is not zero", reason="places")
    if low is None:
        return set_bits
    weights = 1 << np.arange(low)[::-1]
    places: np.ndarray = ((set_bits - np.arange(k)) << low) + bits[:start].reshape(k, low) @ weights
    if (places[1:] <= places[:-1]).any() or places[-1] >= count:
        raise ParameterError("places that do not ascend, or past the end", reason="places")
    return places
