"""Bit fields of a ballot, written and read as whole numpy arrays.

There are three codes: fixed width, Rice, and flags. This module knows nothing of votes or labels. The reader checks
everything, and raises a BallotError if bits are missing or a value is out of range.
"""

import numpy as np
from numpy.typing import NDArray

from p2p_tally.errors import BallotError

Bits = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

RICE_WIDTH = 5  # bits for the Rice parameter, the number of low bits: 0 to 31


def to_bits(values: Ints, width: int) -> Bits:
    """Each value as `width` <= 32 bits, highest first."""
    whole = np.unpackbits(values.astype(">u4").view(np.uint8)).reshape(-1, 32)
    return whole[:, 32 - width :].reshape(-1)


def from_bits(bits: Bits, count: int, width: int) -> Ints:
    whole = np.zeros((count, 32), dtype=np.uint8)
    whole[:, 32 - width :] = bits.reshape(count, width)
    return np.packbits(whole).view(">u4").astype(np.int64)


def steps(values: Ints, start: int) -> Ints:
    """Differences between each value and the one before it, for the first `start` (np.diff with prepend is slow)."""
    distances = values.copy()
    distances[1:] -= values[:-1]
    distances[:1] -= start
    return distances


def runs(ordered: Ints) -> tuple[Ints, Ints]:
    """Where each run of equal values starts, and how long it is."""
    last = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=last[:-1])
    ends = np.flatnonzero(last) + 1
    lengths = steps(ends, 0)
    return ends - lengths, lengths


def _rice_size(values: Ints, low: int) -> int:
    return int((values >> low).sum()) + low * len(values)


class BitWriter:
    def __init__(self) -> None:
        self._parts: list[Bits] = []

    def fixed(self, values: Ints, width: int) -> None:
        self._parts.append(to_bits(values, width))

    def number(self, value: int, width: int) -> None:
        self.fixed(np.array([value], dtype=np.int64), width)

    def unary(self, values: Ints) -> None:
        """A value v as v zeros and a one."""
        ends = np.cumsum(values + 1) - 1
        bits = np.zeros(int(ends[-1]) + 1 if len(ends) else 0, dtype=np.uint8)
        bits[ends] = 1
        self._parts.append(bits)

    def rice(self, values: Ints) -> None:
        """Rice code: small values take few bits. Low bits are written as they are, the rest in unary. All unary parts
        come first, then all low bits, so that a reader needs no loop over the values."""
        if not len(values):
            return
        # The best number of low bits is within one of log2 of the mean: compute the exact size of those three.
        near = (int(values.sum()) // len(values)).bit_length()
        low = min(range(max(0, near - 1), near + 2), key=lambda low: _rice_size(values, low))
        self.number(low, RICE_WIDTH)
        self.unary(values >> low)
        self.fixed(values & ((1 << low) - 1), low)

    def flags(self, flags: Bools) -> None:
        """Yes or no for each: which of the two is rarer, how many of it there are, and the gaps between them."""
        if not len(flags):
            return
        rare = bool(2 * np.count_nonzero(flags) <= len(flags))
        where = np.flatnonzero(flags == rare)
        self.number(rare, 1)
        self.number(len(where), len(flags).bit_length())
        self.rice(steps(where, -1) - 1)

    def to_bytes(self) -> bytes:
        """Everything written, padded with zero bits to whole bytes."""
        return np.packbits(np.concatenate([*self._parts, np.zeros(0, np.uint8)])).tobytes()


class BitReader:
    def __init__(self, data: bytes) -> None:
        self._bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
        self._ones = np.flatnonzero(self._bits)
        self._at = 0

    def fixed(self, count: int, width: int) -> Ints:
        end = self._at + count * width
        if end > len(self._bits):
            raise BallotError("coded ballot ends too soon", reason="ballot-length")
        bits = self._bits[self._at : end]
        self._at = end
        return from_bits(bits, count, width)

    def number(self, width: int) -> int:
        return int(self.fixed(1, width)[0])

    def unary(self, count: int) -> Ints:
        first = int(np.searchsorted(self._ones, self._at))
        ends = self._ones[first : first + count]
        if len(ends) < count:
            raise BallotError("coded ballot ends too soon", reason="ballot-length")
        values = steps(ends, self._at - 1) - 1
        if count:
            self._at = int(ends[-1]) + 1
        return values

    def rice(self, count: int, below: int) -> Ints:
        if not count:
            return np.zeros(0, dtype=np.int64)
        low = self.number(RICE_WIDTH)
        values = (self.unary(count) << low) | self.fixed(count, low)
        if int(values.max()) >= below:
            raise BallotError(f"{int(values.max())} where less than {below} is possible", reason="ballot-code")
        return values

    def flags(self, count: int) -> Bools:
        if not count:
            return np.zeros(0, dtype=np.bool_)
        rare = bool(self.number(1))
        events = self.number(count.bit_length())
        if events > count // 2:
            raise BallotError("the commoner flag called the rarer", reason="ballot-code")
        where = np.cumsum(self.rice(events, below=count) + 1) - 1
        if events and int(where[-1]) >= count:
            raise BallotError("flags past the last vote", reason="ballot-code")
        flags = np.full(count, not rare)
        flags[where] = rare
        return flags

    def finish(self) -> int:
        """The number of bytes read. Padding bits in the last one must be zero."""
        end = -(-self._at // 8) * 8
        if self._bits[self._at : end].any():
            raise BallotError("padding bits that are not zero", reason="ballot-padding")
        return end // 8
