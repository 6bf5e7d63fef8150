"""Runs of parameters, or of their changes since the last merge, as bytes and back.

Precision: float32, bfloat16, or int8 in blocks. Either all values are sent or only the largest. All arithmetic is
element by element, so the same run gives the same bytes on every machine, and the same bytes the same values. What
`decode` returns is always finite.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Self

import numpy as np

from p2p_tally.errors import ParameterError
from p2p_tally.protocol import indices

Precision = Literal["float32", "bfloat16", "int8"]

# int8 values that share a scale. Half as many would reduce the rounding error by a tenth and cost another 0.8 % of the
# float32 bytes.
BLOCK = 256
LEVELS = 127  # steps on either side of 0

# Training could not continue from a larger parameter; with smaller ones nothing here can overflow.
LARGEST = np.float32(2.0**120)
# A block whose largest value is smaller is sent as zeros: its scale would lose precision or become 0.
SMALLEST = np.float32(2.0**-100)


def fits(values: np.ndarray) -> bool:
    """Whether all values can be coded: none is NaN, infinite or absurdly large."""
    return not values.size or bool(values.max() <= LARGEST and values.min() >= -LARGEST)


@dataclass(frozen=True)
class ChangeFormat:
    """How the peers of a federation write the runs of a merge. Both sides know how many values a run has."""

    precision: Precision = "float32"
    top_k: float = 0.0  # the share of a run's values that is sent, the largest ones; 0: all values

    @property
    def plain(self) -> bool:
        """Whether parameters are sent as they are: nothing is rounded or left out."""
        return self.precision == "float32" and not self.top_k

    @property
    def dense(self) -> Self:
        """The same with every value sent: for parameters, which are not changes."""
        return replace(self, top_k=0.0)

    def chosen(self, count: int) -> int:
        """How many values of a run are sent. All of them, if sending some with their positions would not be shorter."""
        return _chosen(self, count)

    def size(self, count: int) -> int:
        """Bytes of a run of `count` values."""
        k = self.chosen(count)
        return self._values_size(k) + (indices.size(count, k) if k < count else 0)

    def _values_size(self, count: int) -> int:
        match self.precision:
            case "float32":
                return 4 * count
            case "bfloat16":
                return 2 * count
            case "int8":
                return count + 4 * -(-count // BLOCK)

    def encode(self, values: np.ndarray) -> bytes:
        """A run [n] of float32 that `fits`."""
        k = self.chosen(len(values))
        if k == len(values):
            return self._encode_values(values)
        places = np.flatnonzero(_largest(values, k))
        return indices.encode(places, len(values)) + self._encode_values(values[places])

    def decode(self, data: bytes, count: int) -> np.ndarray:
        """The run [n] that was sent, as rounded, with 0 for values not sent; or a ParameterError."""
        if len(data) != self.size(count):
            raise ParameterError(
                f"{len(data)} bytes instead of {self.size(count)} for {count} parameters", reason="shape"
            )
        k = self.chosen(count)
        if k == count:
            return self._decode_values(data, count)
        named = indices.size(count, k)
        places = indices.decode(data[:named], count, k)
        values = np.zeros(count, np.float32)
        values[places] = self._decode_values(data[named:], k)
        return values

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """The runs [..., n] as receivers decode them, without making the bytes."""
        k = self.chosen(values.shape[-1])
        if k == values.shape[-1]:
            return self._rounded_values(values)
        chosen = _largest(values, k)
        restored = np.zeros_like(values)
        restored[chosen] = self._rounded_values(values[chosen].reshape(*values.shape[:-1], k)).ravel()
        return restored

    # --- the chosen values

    def _encode_values(self, values: np.ndarray) -> bytes:
        match self.precision:
            case "float32":
                return values.astype("<f4", copy=False).tobytes()
            case "bfloat16":
                return _to_bfloat16(values).astype("<u2", copy=False).tobytes()
            case "int8":
                steps, scales = _to_int8(values)
                return scales.astype("<f4", copy=False).tobytes() + steps.tobytes()

    def _decode_values(self, data: bytes, count: int) -> np.ndarray:
        match self.precision:
            case "float32":
                values = np.frombuffer(data, "<f4").astype(np.float32, copy=False)
            case "bfloat16":
                values = _from_bfloat16(np.frombuffer(data, "<u2"))
            case "int8":
                blocks = -(-count // BLOCK)
                scales = np.frombuffer(data, "<f4", blocks).astype(np.float32, copy=False)
                if not ((scales >= 0) & (scales <= LARGEST / LEVELS)).all():  # NaN is neither
                    raise ParameterError("a scale that is negative, too large or not finite", reason="not-finite")
                return _from_int8(np.frombuffer(data, np.int8, offset=4 * blocks), scales)
        if not fits(values):
            raise ParameterError("NaN, infinity or an absurdly large value", reason="not-finite")
        return values

    def _rounded_values(self, values: np.ndarray) -> np.ndarray:
        match self.precision:
            case "float32":
                return values.copy()
            case "bfloat16":
                return _from_bfloat16(_to_bfloat16(values))
            case "int8":
                return _from_int8(*_to_int8(values))


@lru_cache(maxsize=256)  # a merge has runs of two or three lengths only
def _chosen(coding: ChangeFormat, count: int) -> int:
    if not coding.top_k or not count:
        return count
    k = math.ceil(coding.top_k * count)
    return k if indices.size(count, k) + coding._values_size(k) < coding._values_size(count) else count


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    """Which k of each row [..., n] are largest in absolute value; of equal ones the first."""
    sizes = np.abs(values)
    least = np.partition(sizes, -k, axis=-1)[..., -k, None]  # the size of the k-th
    above = sizes > least
    ties = sizes == least
    ties &= np.cumsum(ties, axis=-1) <= k - above.sum(-1, keepdims=True)
    largest: np.ndarray = above | ties
    return largest


def _to_bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 [..., n], rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    upper = bits >> 16
    upper &= 1
    upper += 0x7FFF
    upper += bits
    upper >>= 16
    return upper.astype(np.uint16)


def _from_bfloat16(upper: np.ndarray) -> np.ndarray:
    bits = upper.astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


def _to_int8(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Integers [..., n] and the scale of each block [..., blocks]."""
    count = values.shape[-1]
    cut = _blocks(values)  # [..., blocks, BLOCK]
    peaks = np.abs(cut).max(-1)  # [..., blocks]
    peaks[peaks < SMALLEST] = 0
    inverse = np.divide(np.float32(LEVELS), peaks, out=np.zeros_like(peaks), where=peaks > 0)
    steps = cut * inverse[..., None]
    np.rint(steps, out=steps)
    flat = steps.astype(np.int8).reshape(*values.shape[:-1], -1)
    return flat[..., :count], peaks / np.float32(LEVELS)


def _from_int8(steps: np.ndarray, scales: np.ndarray) -> np.ndarray:
    values = _blocks(steps.astype(np.float32))
    values *= scales[..., None]
    return values.reshape(*steps.shape[:-1], -1)[..., : steps.shape[-1]]


def _blocks(values: np.ndarray) -> np.ndarray:
    """Rows [..., n] as [..., blocks, BLOCK], padded with zeros."""
    count = values.shape[-1]
    blocks = -(-count // BLOCK)
    if count % BLOCK:
        padded = np.zeros((*values.shape[:-1], blocks * BLOCK), np.float32)
        padded[..., :count] = values
        values = padded
    return values.reshape(*values.shape[:-1], blocks, BLOCK)
