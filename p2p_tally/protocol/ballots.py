"""A node's answer for the probes of a round as bytes: votes, byte-aligned or bit-packed; top-k; soft labels.

The decoder trusts nothing: exact length, every index below C, padding zero, probabilities that are probabilities.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from p2p_tally.errors import BallotError

Form = Literal["byte", "packed", "top-k", "soft"]
Answer = np.ndarray | tuple[np.ndarray, np.ndarray]

# Sums of a peer's float32 probabilities may stray this far from 1.
PROBABILITY_SLACK = 1e-3


def index_bytes(classes: int) -> int:
    """b_C: bytes that name one of C classes."""
    return 1 if classes <= 256 else 2


def index_bits(classes: int) -> int:
    """ceil(log2 C), at least 1."""
    return max(1, (classes - 1).bit_length())


@dataclass(frozen=True)
class BallotFormat:
    """How a federation writes its ballots: `count` probes of `classes` classes."""

    form: Form
    count: int
    classes: int
    k: int = 1

    @property
    def largest(self) -> int:
        """The length of every ballot in this form."""
        match self.form:
            case "byte":
                return self.count * index_bytes(self.classes)
            case "packed":
                return (self.count * index_bits(self.classes) + 7) // 8
            case "top-k":
                # A single class is certain once its distribution sums to 1: no probability is sent for it.
                return self.count * self.k * (index_bytes(self.classes) + (4 if self.k > 1 else 0))
            case "soft":
                return self.count * self.classes * 4

    def encode(self, answer: Answer) -> bytes:
        if isinstance(answer, tuple):
            indices, probabilities = answer
            tail = probabilities.astype("<f4", copy=False).tobytes() if self.k > 1 else b""
            return self._indices(indices) + tail
        match self.form:
            case "soft":
                return answer.astype("<f4", copy=False).tobytes()
            case "packed":
                return pack(answer, index_bits(self.classes))
            case _:
                return self._indices(answer)

    def decode(self, ballot: bytes) -> Answer:
        """The answer, or a BallotError."""
        if len(ballot) != self.largest:
            raise BallotError(f"{len(ballot)} bytes instead of {self.largest}", reason="ballot-length")
        match self.form:
            case "byte":
                return self._below_classes(np.frombuffer(ballot, self._index_type))
            case "packed":
                return self._below_classes(unpack(ballot, self.count, index_bits(self.classes)))
            case "top-k":
                return self._top_k(ballot)
            case "soft":
                soft = np.frombuffer(ballot, "<f4").reshape(self.count, self.classes)
                _check_probabilities(soft)
                return soft

    @property
    def _index_type(self) -> str:
        return "<u1" if index_bytes(self.classes) == 1 else "<u2"

    def _indices(self, indices: np.ndarray) -> bytes:
        return indices.astype(self._index_type).tobytes()

    def _below_classes(self, votes: np.ndarray) -> np.ndarray:
        if votes.size and int(votes.max()) >= self.classes:
            raise BallotError(f"class {int(votes.max())} of {self.classes}", reason="ballot-class")
        return votes

    def _top_k(self, ballot: bytes) -> Answer:
        split = self.count * self.k * index_bytes(self.classes)
        indices = self._below_classes(np.frombuffer(ballot[:split], self._index_type)).reshape(self.count, self.k)
        if self.k == 1:
            return indices, np.ones((self.count, 1), np.float32)
        ordered = np.sort(indices, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            raise BallotError("a class twice for one probe", reason="ballot-class")
        probabilities = np.frombuffer(ballot[split:], "<f4").reshape(self.count, self.k)
        _check_probabilities(probabilities)
        return indices, probabilities


def _check_probabilities(rows: np.ndarray) -> None:
    """Each row is a distribution. NaN fails both comparisons."""
    if not (rows >= 0).all() or not (np.abs(rows.sum(1, dtype=np.float64) - 1) <= PROBABILITY_SLACK).all():
        raise BallotError("rows that are no probabilities", reason="ballot-probability")


def pack(votes: np.ndarray, bits: int) -> bytes:
    """Votes at `bits` bits each, most significant first; the last byte is filled up with zero bits."""
    shifts = np.arange(bits - 1, -1, -1, dtype=np.uint32)
    digits = (votes.astype(np.uint32)[:, None] >> shifts) & 1  # [P, bits]
    return np.packbits(digits.astype(np.uint8)).tobytes()


def unpack(ballot: bytes, count: int, bits: int) -> np.ndarray:
    """The inverse of `pack`; the length has been checked."""
    digits = np.unpackbits(np.frombuffer(ballot, np.uint8))
    if digits[count * bits :].any():
        raise BallotError("padding bits that are not zero", reason="ballot-padding")
    weights = 1 << np.arange(bits - 1, -1, -1, dtype=np.uint32)
    votes: np.ndarray = digits[: count * bits].reshape(count, bits) @ weights
    return votes
