"""The predictive ballot: flags say which guesses were right, and a vote is written in full only where none was.

Both sides know the labels, so they can group votes by a context: the probe's own label, or the label of the probe
before it (in text this is the token that the model has just read, and the vote mostly depends on it). For each group
the sender names the most common vote, and flags say which votes are equal to it. The other votes are grouped and
guessed again. `visit_votes` defines this order once; a GuessWriter follows it to write, a GuessReader to read.
"""

from enum import IntEnum
from typing import Protocol

import numpy as np

from p2p_tally.errors import BallotError
from p2p_tally.protocol.bits import BitReader, BitWriter, Bools, Ints, runs
from p2p_tally.protocol.rans import (
    MOST_SYMBOLS,
    SymbolReader,
    encode_symbols,
    even_table,
    read_table,
    write_table,
)

VOTE_BITS = 32  # more than a class index has: group and vote together are one integer, which can be sorted
HIGHEST_VOTE = (1 << VOTE_BITS) - 1
CONTEXT_PASSES = 4  # guesses by context; for the votes of a language model a fifth pass saves nothing


class Scheme(IntEnum):
    """What is guessed. The value is the first byte of the ballot: append only.

    Votes in full are coded with a table of class frequencies, except with LABEL_EVEN.
    """

    PLAIN = 1  # no guess: all votes in full
    LABEL_EVEN = 2  # guess the label; in the other votes all classes are equally likely
    LABEL = 3  # guess the label
    OWN_LABEL = 4  # guess by context, the probe's label; then guess the label itself
    LABEL_BEFORE = 5  # guess by context, the label of the probe before; then guess the label itself


def context_of(scheme: Scheme, labels: Ints) -> Ints | None:
    if scheme == Scheme.OWN_LABEL:
        return labels
    if scheme == Scheme.LABEL_BEFORE:
        return np.concatenate([np.full(1, -1), labels[:-1]])
    return None


def encode_predictive(scheme: Scheme, votes: Ints, classes: int, labels: Ints) -> bytes:
    """Bits are read from the front and symbols from the back, so that no lengths are needed.

    Not for a ballot that agrees with every label: it has no symbols, and as a ranked ballot it is one byte. Nor for
    votes that `fits_tables` or `is_possible` exclude.
    """
    writer = GuessWriter(votes, classes, _first_class(scheme, labels))
    visit_votes(writer, scheme, labels)
    symbols = np.concatenate(writer.symbols)
    bits = BitWriter()
    if scheme == Scheme.LABEL_EVEN:
        table = even_table(_even_symbols(labels, classes))
    else:
        counts = np.bincount(symbols)
        table = write_table(bits, counts, classes)
        symbols = (np.cumsum(counts > 0) - 1)[symbols]
    for flags in writer.flags:
        bits.flags(flags)
    return bytes([scheme]) + bits.to_bytes() + encode_symbols(table, symbols)


def decode_predictive(data: bytes, classes: int, labels: Ints) -> Ints:
    try:
        scheme = Scheme(data[0])
    except ValueError:
        raise BallotError(f"first byte {data[0]}", reason="ballot-code") from None
    if not is_possible(scheme, labels, classes):
        raise BallotError(f"scheme {scheme} for {classes} classes", reason="ballot-code")
    bits = BitReader(data[1:])
    if scheme == Scheme.LABEL_EVEN:
        table = even_table(_even_symbols(labels, classes))
        used: np.ndarray = np.arange(len(table.frequencies), dtype=np.uint16)
    else:
        used, table = read_table(bits, classes)
    symbols = SymbolReader(table, data[1:])
    reader = GuessReader(bits, symbols, used, classes, _first_class(scheme, labels))
    visit_votes(reader, scheme, labels)
    if bits.finish() != symbols.finish():
        raise BallotError("bits and symbols that do not meet", reason="ballot-length")
    return reader.votes


def _first_class(scheme: Scheme, labels: Ints) -> Ints:
    """The class that has number 0 when a vote is written in full. With LABEL_EVEN it is the class after the label, so
    that the label has the last number, which is never needed."""
    if scheme == Scheme.LABEL_EVEN:
        return np.where(labels >= 0, labels + 1, 0)
    return np.zeros_like(labels)


def _even_symbols(labels: Ints, classes: int) -> int:
    return classes - 1 if bool((labels >= 0).all()) else classes


def is_possible(scheme: Scheme, labels: Ints, classes: int) -> bool:
    """LABEL_EVEN has a symbol for every class, and a table may not hold so many."""
    return scheme != Scheme.LABEL_EVEN or _even_symbols(labels, classes) <= MOST_SYMBOLS


def fits_tables(votes: Ints, classes: int) -> bool:
    """Whether a table can hold all classes that these votes name."""
    return min(len(votes), classes) <= MOST_SYMBOLS or len(np.unique(votes)) <= MOST_SYMBOLS


class GuessCoder(Protocol):
    """What `visit_votes` calls. `where`: positions in the ballot, ascending."""

    def agree(self, where: Ints, guess: Ints) -> Bools:
        """Which of the votes at `where` are equal to the guess."""

    def commonest(self, where: Ints, group: Ints, groups: int) -> Ints:
        """A guess for each of the groups. `group`: the group of each vote at `where`."""

    def in_full(self, where: Ints) -> None:
        """Write or read the votes at `where` in full."""


def visit_votes(coder: GuessCoder, scheme: Scheme, labels: Ints) -> None:
    """Visit the votes until for each a guess was right or it is written in full."""
    left = np.arange(len(labels))
    untried = labels >= 0  # votes for which the label has not been guessed yet
    if scheme == Scheme.PLAIN:
        untried[:] = False
    context = context_of(scheme, labels)
    if context is not None:
        for _ in range(CONTEXT_PASSES):
            left = _guess_by_context(coder, left, untried, labels, context)
    tried = left[untried[left]]
    held = np.zeros(len(labels), dtype=np.bool_)
    held[tried] = coder.agree(tried, labels[tried])
    coder.in_full(left[~held[left]])


def _guess_by_context(coder: GuessCoder, left: Ints, untried: Bools, labels: Ints, context: Ints) -> Ints:
    """One guess for each context that two or more votes share. Returns the votes that are still left."""
    key = context[left] + 1  # 0 where there is no label: this is a context too
    shared = np.bincount(key) > 1  # a guess for a single vote would be the vote in full
    in_group = shared[key]
    where = left[in_group]
    group = (np.cumsum(shared) - 1)[key[in_group]]
    guess = coder.commonest(where, group, int(np.count_nonzero(shared)))[group]
    # A guess that is also the label is right far more often, so the two kinds have separate flags.
    likely = guess == labels[where]
    held = np.zeros(len(where), dtype=np.bool_)
    for kind in (likely, ~likely):
        held[kind] = coder.agree(where[kind], guess[kind])
    untried[where[likely]] = False
    done = np.zeros(len(left), dtype=np.bool_)
    done[in_group] = held
    return left[~done]


class GuessWriter:
    """The sender's side: from the votes it makes flags and symbols."""

    def __init__(self, votes: Ints, classes: int, first_class: Ints) -> None:
        self._votes, self._classes, self._first_class = votes, classes, first_class
        self.flags: list[Bools] = []
        self.symbols: list[Ints] = []

    def agree(self, where: Ints, guess: Ints) -> Bools:
        held: Bools = self._votes[where] == guess
        self.flags.append(held)
        return held

    def commonest(self, where: Ints, group: Ints, groups: int) -> Ints:
        if not groups:
            return np.zeros(0, dtype=np.int64)
        pairs = np.sort(group << VOTE_BITS | self._votes[where])
        first, tally = runs(pairs)
        pairs = pairs[first]
        # One number that sorts by tally and then by lower class: the maximum of a group gives its vote.
        best = np.maximum.reduceat(tally << VOTE_BITS | ~pairs & HIGHEST_VOTE, runs(pairs >> VOTE_BITS)[0])
        chosen: Ints = ~best & HIGHEST_VOTE
        self.symbols.append(chosen)
        return chosen

    def in_full(self, where: Ints) -> None:
        self.symbols.append((self._votes[where] - self._first_class[where]) % self._classes)


class GuessReader:
    """The receiver's side: from flags and symbols it makes the votes."""

    def __init__(
        self, bits: BitReader, symbols: SymbolReader, used: np.ndarray, classes: int, first_class: Ints
    ) -> None:
        self._bits, self._symbols, self._used = bits, symbols, used
        self._classes, self._first_class = classes, first_class
        self.votes = np.zeros(len(first_class), dtype=np.int64)

    def agree(self, where: Ints, guess: Ints) -> Bools:
        held = self._bits.flags(len(where))
        self.votes[where[held]] = guess[held]
        return held

    def commonest(self, where: Ints, group: Ints, groups: int) -> Ints:  # noqa: ARG002
        return self._used[self._symbols.take(groups)]

    def in_full(self, where: Ints) -> None:
        symbols = self._used[self._symbols.take(len(where))]
        self.votes[where] = (symbols + self._first_class[where]) % self._classes
