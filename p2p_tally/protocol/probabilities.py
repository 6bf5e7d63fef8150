"""Rows of probabilities as bytes: float32, float16 (IEEE half precision), or int8 (8 bits each).

Every machine decodes the same bytes to the same bits: sums are exact in any order, and only one division rounds. A
sender tallies its answer as others decode it (`rounded`), not as it was before encoding.
"""

from typing import Literal

import numpy as np

from p2p_tally.errors import BallotError

Precision = Literal["float32", "float16", "int8"]

TYPES: dict[Precision, str] = {"float32": "<f4", "float16": "<f2", "int8": "u1"}

# The sum of a row, as it is written, may differ from 1 by this much. With int8 any sum but 0 is accepted.
SLACK: dict[Precision, float] = {"float32": 1e-3, "float16": 4e-3}

MOST_PARTS = 255
# How many probabilities are apportioned at a time, so that the working set stays in the processor's cache.
BLOCK = 1 << 17


def width(precision: Precision) -> int:
    """Bytes for one probability."""
    return np.dtype(TYPES[precision]).itemsize


def write(rows: np.ndarray, precision: Precision) -> bytes:
    """Distributions [..., C]."""
    return _written(rows, precision).tobytes()


def read(data: bytes, precision: Precision, classes: int) -> np.ndarray:
    """Distributions [P, C] as float32, or a BallotError. The length has been checked."""
    written = np.frombuffer(data, TYPES[precision]).reshape(-1, classes)
    if not _sane(written, precision):
        raise BallotError("rows that are no probabilities", reason="ballot-probability")
    return _read(written, precision)


def rounded(rows: np.ndarray, precision: Precision) -> np.ndarray:
    """Rows [..., C] as receivers decode them; rows that a receiver would refuse are NaN."""
    return _read(_written(rows, precision), precision)


def _written(rows: np.ndarray, precision: Precision) -> np.ndarray:
    if precision != "int8":
        return rows.astype(TYPES[precision], copy=False)
    flat = rows.reshape(-1, rows.shape[-1])
    parts = np.empty(flat.shape, np.uint8)
    step = max(1, BLOCK // flat.shape[1])
    for start in range(0, len(flat), step):
        parts[start : start + step] = _apportioned(flat[start : start + step])
    return parts.reshape(rows.shape)


def _read(written: np.ndarray, precision: Precision) -> np.ndarray:
    if precision == "float32":
        return written
    rows = written.astype(np.float32)
    # float16 values are multiples of 2^-24, and parts are integers: float64 adds both without rounding. The sum is then
    # rounded to float32 once, which changes it only where more than 65,536 parts of 255 are added.
    sums = rows.sum(-1, dtype=np.float64, keepdims=True).astype(np.float32)
    with np.errstate(invalid="ignore"):
        rows /= sums
    return rows


def _sane(written: np.ndarray, precision: Precision) -> bool:
    """Whether each row is a distribution, or parts of one. NaN fails both comparisons."""
    if precision == "int8":
        return bool(written.any(-1).all())
    if not (written >= 0).all():
        return False
    return bool((np.abs(written.sum(-1, dtype=np.float64) - 1) <= _slack(precision, written.shape[-1])).all())


def _slack(precision: Precision, classes: int) -> float:
    """With float16 a sum differs by at most 2^-11 for the normal numbers, and 2^-25 for each subnormal one: with 2^24
    classes by little more than a half."""
    return max(SLACK[precision], 2**-10 + classes * 2**-25) if precision == "float16" else SLACK[precision]


def _apportioned(rows: np.ndarray) -> np.ndarray:
    """Distributions [P, C] as integer parts 0 to 255 of a total, by the method of largest remainders.

    The total is the largest for which the most likely class gets at most 255 parts. The parts add up to the total, so
    that many small probabilities are not all rounded to zero. Each class is off by less than one part, and a more
    likely class never gets fewer parts. Rows that are no distributions become zeros, which receivers refuse.
    """
    with np.errstate(invalid="ignore"):
        shares = rows / rows.sum(-1, dtype=np.float64, keepdims=True)  # [P, C], float64
        total = np.floor(MOST_PARTS / shares.max(-1, keepdims=True))  # [P, 1]
        quotas = np.minimum(shares * total, MOST_PARTS)
        parts = np.floor(quotas)
        sane = np.isfinite(total)
    left = np.where(sane, total - parts.sum(-1, keepdims=True), 0).astype(np.int64)  # parts left, fewer than C
    remainders = quotas - parts
    last = np.take_along_axis(np.sort(remainders, -1), np.minimum(rows.shape[-1] - left, rows.shape[-1] - 1), -1)
    above, equal = remainders > last, remainders == last
    first = np.cumsum(equal, -1) <= left - above.sum(-1, keepdims=True)  # of equal remainders the smaller classes
    return np.where(sane, parts + (above | (equal & first)), 0).astype(np.uint8)
