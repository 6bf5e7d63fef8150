"""A node's answer for the probes of a round as bytes: votes (byte-aligned, packed or coded), top-k, soft labels. Or its
answer for the classes: a table of means.

The decoder checks everything: the exact length, every class below C, zero padding, rows that are probabilities.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from p2p_tally.errors import BallotError
from p2p_tally.protocol.abstaining import decode_abstaining, encode_abstaining, largest_abstaining
from p2p_tally.protocol.aligned import from_bytes, to_bytes
from p2p_tally.protocol.anchor_ballots import answers_size, examples_size, read_anchors, write_anchors
from p2p_tally.protocol.class_tables import read_table, table_size, write_table
from p2p_tally.protocol.coded_lengths import coded_lengths
from p2p_tally.protocol.coding import decode_coded, encode_coded
from p2p_tally.protocol.packed import decode_packed, encode_packed, packed_size, vote_width
from p2p_tally.protocol.probabilities import Precision, read, rounded, width, write

Form = Literal["byte", "packed", "coded", "top-k", "soft", "soft-by-class", "features-by-class", "anchors"]
Answer = np.ndarray | tuple[np.ndarray, np.ndarray]


def index_bytes(classes: int) -> int:
    """b_C: bytes for the index of one of C classes."""
    return max(1, (vote_width(classes) + 7) // 8)


@dataclass(frozen=True)
class BallotFormat:
    """How a federation writes its ballots. A ballot answers `count` probes, or `count` classes, each with `classes`
    classes."""

    form: Form
    count: int
    classes: int
    k: int = 1
    precision: Precision = "float32"  # of the probabilities
    abstains: bool = False  # a vote may be C: no opinion
    features: int = 0  # how many values a row has: features of a class, or the input of an example

    @property
    def symbols(self) -> int:
        """How many different votes there are."""
        return self.classes + self.abstains

    @property
    def largest(self) -> int:
        """The length of a ballot in bytes; the coded form varies, and this is its maximum."""
        match self.form:
            case "byte":
                return self.count * index_bytes(self.symbols)
            case "packed":
                return packed_size(self.count, self.symbols)
            case "coded" if self.abstains:
                return largest_abstaining(self.count, self.classes)
            case "coded":
                return packed_size(self.count, self.classes) + 1
            case "top-k":
                # With k = 1 the one probability must be 1, so it is not sent.
                each = index_bytes(self.classes) + (width(self.precision) if self.k > 1 else 0)
                return self.count * self.k * each
            case "soft":
                return self.count * self.classes * width(self.precision)
            case "soft-by-class":
                return table_size(self.count, self.classes)
            case "features-by-class":
                return table_size(self.count, self.features)
            case "anchors":
                return max(self.first, self.later)

    @property
    def first(self) -> int:
        """The length of a node's first ballot, where that differs: it has the examples that the others are about."""
        return examples_size(self.count, self.features) if self.form == "anchors" else self.largest

    @property
    def later(self) -> int:
        """The length of its others."""
        return answers_size(self.count, self.classes) if self.form == "anchors" else self.largest

    @property
    def needs_labels(self) -> bool:
        """Whether encoding and decoding use the probes' labels. All peers know them, so they make ballots shorter."""
        return self.form == "coded"

    @staticmethod
    def can_encode(answer: Answer) -> bool:
        """Whether this answer has a ballot: it has none if the model diverged and its outputs are not finite."""
        probabilities = answer[1] if isinstance(answer, tuple) else answer
        return bool(np.isfinite(probabilities).all())

    def encode(self, answer: Answer, labels: np.ndarray | None = None) -> bytes:
        """`labels`: those of the probes, -1 for a probe without one. Only the coded form uses them."""
        if isinstance(answer, tuple):
            indices, probabilities = answer
            tail = write(probabilities, self.precision) if self.k > 1 else b""
            return self._indices(indices) + tail
        match self.form:
            case "soft":
                return write(answer, self.precision)
            case "soft-by-class" | "features-by-class":
                return write_table(answer)
            case "anchors":
                return write_anchors(answer, self.classes)
            case "packed":
                return encode_packed(answer, self.symbols)
            case "coded" if self.abstains:
                return encode_abstaining(answer, self.classes, labels)
            case "coded":
                return encode_coded(answer, self.classes, labels)
            case _:
                return self._indices(answer)

    def lengths(self, votes: np.ndarray, labels: np.ndarray | None) -> np.ndarray:
        """How many bytes each of these rows of votes [N, P] would take [N]."""
        if self.form != "coded":
            return np.full(len(votes), self.largest)
        if self.abstains:
            return np.array([len(self.encode(row, labels)) for row in votes], np.int64)
        return coded_lengths(votes, self.classes, labels)

    def decode(self, ballot: bytes, labels: np.ndarray | None = None) -> Answer:
        """The answer, or a BallotError."""
        if self.form == "coded":
            if self.abstains:
                return decode_abstaining(ballot, self.count, self.classes, labels)
            return decode_coded(ballot, self.count, self.classes, labels)
        if self.form == "anchors":
            return read_anchors(ballot, self.count, self.classes, self.features)
        if len(ballot) != self.largest:
            raise BallotError(f"{len(ballot)} bytes instead of {self.largest}", reason="ballot-length")
        match self.form:
            case "byte":
                return self._below(self.symbols, from_bytes(ballot, index_bytes(self.symbols)))
            case "packed":
                return decode_packed(ballot, self.count, self.symbols)
            case "top-k":
                return self._top_k(ballot)
            case "soft":
                return read(ballot, self.precision, self.classes)
            case "soft-by-class":
                return read_table(ballot, self.classes, probabilities=True)
            case "features-by-class":
                return read_table(ballot, self.features, probabilities=False)

    def as_decoded(self, answer: Answer) -> Answer:
        """This answer after encoding and decoding. The sender tallies this one too, so that all tallies are equal."""
        if self.precision == "float32":
            return answer
        if isinstance(answer, tuple):
            return answer[0], rounded(answer[1], self.precision)
        return rounded(answer, self.precision) if self.form == "soft" else answer

    def _indices(self, indices: np.ndarray) -> bytes:
        return to_bytes(indices, index_bytes(self.symbols))

    def _below(self, bound: int, votes: np.ndarray) -> np.ndarray:
        if votes.size and int(votes.max()) >= bound:
            raise BallotError(f"class {int(votes.max())} of {self.classes}", reason="ballot-class")
        return votes

    def _top_k(self, ballot: bytes) -> Answer:
        each = index_bytes(self.classes)
        split = self.count * self.k * each
        indices = self._below(self.classes, from_bytes(ballot[:split], each)).reshape(self.count, self.k)
        if self.k == 1:
            return indices, np.ones((self.count, 1), np.float32)
        ordered = np.sort(indices, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            raise BallotError("a class twice for one probe", reason="ballot-class")
        return indices, read(ballot[split:], self.precision, self.k)
