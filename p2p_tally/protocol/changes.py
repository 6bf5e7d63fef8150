"""A run of parameters, or of their change since the last merge, <-> bytes: float32, bfloat16, or int8 in blocks.

Every precision is arithmetic on single elements, so that one run gives the same bytes, and those bytes the same
values, on any machine. Nothing gets past `decode` that could not be added up.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from p2p_tally.errors import ParameterError

Precision = Literal["float32", "bfloat16", "int8"]

# Values of int8 that share a scale. Half as many would gain a tenth of the rounding error and cost another 0.8 % of
# the float32 bytes.
BLOCK = 256
LEVELS = 127  # steps on either side of 0

# What is larger is no parameter that training could go on from; below this nothing here can overflow.
LARGEST = np.float32(2.0**120)
# A block whose largest value is smaller is sent as zeros: its scale would have lost digits, or be 0 itself.
SMALLEST = np.float32(2.0**-100)


def fits(values: np.ndarray) -> bool:
    """Whether all values can be coded: none is NaN, infinite or absurdly large."""
    return not values.size or bool(values.max() <= LARGEST and values.min() >= -LARGEST)


@dataclass(frozen=True)
class ChangeFormat:
    """How the peers of a federation write the runs of a merge. Both sides know how many values a run has."""

    precision: Precision = "float32"

    @property
    def plain(self) -> bool:
        """Whether parameters go as they are: nothing is rounded or left out."""
        return self.precision == "float32"

    def size(self, count: int) -> int:
        """Bytes of a run of `count` values."""
        match self.precision:
            case "float32":
                return 4 * count
            case "bfloat16":
                return 2 * count
            case "int8":
                return count + 4 * -(-count // BLOCK)

    def encode(self, values: np.ndarray) -> bytes:
        """A run [n] of float32 that `fits`."""
        match self.precision:
            case "float32":
                return values.astype("<f4", copy=False).tobytes()
            case "bfloat16":
                return _to_bfloat16(values).astype("<u2", copy=False).tobytes()
            case "int8":
                steps, scales = _to_int8(values)
                return scales.astype("<f4", copy=False).tobytes() + steps.tobytes()

    def decode(self, data: bytes, count: int) -> np.ndarray:
        """The run [n] that was sent, up to rounding; or a ParameterError."""
        if len(data) != self.size(count):
            raise ParameterError(
                f"{len(data)} bytes instead of {self.size(count)} for {count} parameters in {self.precision}",
                reason="shape",
            )
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

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """What receivers make of the runs [..., n], without the bytes between."""
        match self.precision:
            case "float32":
                return values.copy()
            case "bfloat16":
                return _from_bfloat16(_to_bfloat16(values))
            case "int8":
                return _from_int8(*_to_int8(values))


def _to_bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 [..., n], rounded to the nearest and, in the middle, to the even one."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    upper = bits >> 16
    lift = upper & 1
    lift += 0x7FFF
    lift += bits
    lift >>= 16
    return lift.astype(np.uint16)


def _from_bfloat16(upper: np.ndarray) -> np.ndarray:
    bits = upper.astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


def _to_int8(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps [..., n] and the scale of each block [..., blocks]."""
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
    """Rows [..., n] as [..., blocks, BLOCK], filled up with zeros."""
    count = values.shape[-1]
    blocks = -(-count // BLOCK)
    if count % BLOCK:
        padded = np.zeros((*values.shape[:-1], blocks * BLOCK), np.float32)
        padded[..., :count] = values
        values = padded
    return values.reshape(*values.shape[:-1], blocks, BLOCK)
