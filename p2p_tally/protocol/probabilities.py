"""Rows of probabilities as bytes: float32 as they are, IEEE halves, or eight bits each.

What is read is the same bits on every machine: the sums it takes are exact in any order, and one division rounds.
A sender tallies what it wrote as others read it (`rounded`), not what it thought.
"""

from typing import Literal

import numpy as np

from p2p_tally.errors import BallotError

Precision = Literal["float32", "float16", "int8"]

TYPES: dict[Precision, str] = {"float32": "<f4", "float16": "<f2", "int8": "u1"}

# The sum of a row, as it is written, may stray this far from 1. Halves of up to 65,536 classes stray by 2^-11 of what
# is a normal number and 2^-25 for each that is not: 0.0025 in all. Parts of a whole may have any sum but 0.
SLACK: dict[Precision, float] = {"float32": 1e-3, "float16": 4e-3}

MOST_PARTS = 255
# Probabilities that are apportioned at a time: what is needed for it stays in a processor's cache.
BLOCK = 1 << 17


def width(precision: Precision) -> int:
    """Bytes a probability."""
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
    """Rows [..., C] as their readers have them; those that a reader would refuse are NaN."""
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
    # Halves are whole multiples of 2^-24, parts are whole: float64 adds either without rounding. 65,536 x 255 parts
    # are still a float32.
    sums = rows.sum(-1, dtype=np.float64, keepdims=True).astype(np.float32)
    with np.errstate(invalid="ignore"):
        rows /= sums
    return rows


def _sane(written: np.ndarray, precision: Precision) -> bool:
    """Each row is a distribution, or stands for one. NaN fails both comparisons."""
    if precision == "int8":
        return bool(written.any(-1).all())
    if not (written >= 0).all():
        return False
    return bool((np.abs(written.sum(-1, dtype=np.float64) - 1) <= SLACK[precision]).all())


def _apportioned(rows: np.ndarray) -> np.ndarray:
    """Distributions [P, C] as whole parts 0 to 255 of a total, by the largest remainder.

    The total is the largest of which the likeliest class has no more than 255, and the parts add up to it: what small
    classes have together is not rounded away, however many they are. No class is off by a whole part, and of two
    classes the likelier never has fewer. Rows that are no distributions become zeros, which readers refuse.
    """
    with np.errstate(invalid="ignore"):
        shares = rows / rows.sum(-1, dtype=np.float64, keepdims=True)  # [P, C], float64
        total = np.floor(MOST_PARTS / shares.max(-1, keepdims=True))  # [P, 1]
        quotas = np.minimum(shares * total, MOST_PARTS)
        parts = np.floor(quotas)
        sane = np.isfinite(total)
    left = np.where(sane, total - parts.sum(-1, keepdims=True), 0).astype(np.int64)  # parts still to give, below C
    remainders = quotas - parts
    last = np.take_along_axis(np.sort(remainders, -1), np.minimum(rows.shape[-1] - left, rows.shape[-1] - 1), -1)
    above, equal = remainders > last, remainders == last
    first = np.cumsum(equal, -1) <= left - above.sum(-1, keepdims=True)  # of equals, the smaller classes
    return np.where(sane, parts + (above | (equal & first)), 0).astype(np.uint8)
