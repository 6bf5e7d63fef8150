"""The guessed ballot: flags for guesses that hold or fail, and a vote in full only where no guess held.

Both sides know the labels, so they can group votes by a context: the probe's own label, or the label before
it (in text that is the token the model has just read, and a vote mostly follows from it). The sender names
each group's commonest vote; flags say which votes it was; those left over are grouped and guessed again.
`walk` is the one description of this order; a Recorder walks it to write, a Player to read.
"""

from enum import IntEnum
from typing import Protocol

import numpy as np

from p2p_tally.errors import BallotError
from p2p_tally.protocol.bits import BitReader, BitWriter, Bools, Ints, runs
from p2p_tally.protocol.rans import SymbolReader, Table, encode_symbols, even_table, read_table, write_table

VOTE_BITS = 16  # hold any class index, so that a group and a vote make one integer to sort by
HIGHEST_VOTE = (1 << VOTE_BITS) - 1
TURNS = 4  # of guessing by context; on the votes of a language model a fifth gains nothing


class Scheme(IntEnum):
    """What is guessed. The value is the ballot's first byte: append only."""

    PLAIN = 1  # nothing: all votes in full, from a table of how often each class comes
    LABEL_EVEN = 2  # the label; votes against it are taken as equally likely
    LABEL = 3  # the label; the others from a table
    OWN_LABEL = 4  # by the probe's label as context, then the label itself; the others from a table
    LABEL_BEFORE = 5  # by the label of the probe before, then the label itself; the others from a table


def context_of(scheme: Scheme, labels: Ints) -> Ints | None:
    if scheme == Scheme.OWN_LABEL:
        return labels
    if scheme == Scheme.LABEL_BEFORE:
        return np.concatenate([np.full(1, -1), labels[:-1]])
    return None


def encode_guessed(scheme: Scheme, votes: Ints, classes: int, labels: Ints) -> bytes:
    """Bits from the front and symbols from the back, so that neither needs a length.

    Not for a ballot that agrees with every label: it has no symbols, and ranks as a single byte.
    """
    pen = Recorder(votes, classes, _origin(scheme, labels))
    walk(pen, scheme, labels)
    symbols = np.concatenate(pen.symbols)
    bits = BitWriter()
    if scheme == Scheme.LABEL_EVEN:
        table = _even_odds(labels, classes)
    else:
        counts = np.bincount(symbols)
        table = write_table(bits, counts, classes)
        symbols = (np.cumsum(counts > 0) - 1)[symbols]
    for flags in pen.flags:
        bits.flags(flags)
    return bytes([scheme]) + bits.to_bytes() + encode_symbols(table, symbols)


def decode_guessed(data: bytes, classes: int, labels: Ints) -> Ints:
    try:
        scheme = Scheme(data[0])
    except ValueError:
        raise BallotError(f"first byte {data[0]}", reason="ballot-code") from None
    bits = BitReader(data[1:])
    if scheme == Scheme.LABEL_EVEN:
        table = _even_odds(labels, classes)
        used = np.arange(len(table.frequencies))
    else:
        used, table = read_table(bits, classes)
    symbols = SymbolReader(table, data[1:])
    pen = Player(bits, symbols, used, classes, _origin(scheme, labels))
    walk(pen, scheme, labels)
    if bits.finish() != symbols.finish():
        raise BallotError("bits and symbols that do not meet", reason="ballot-length")
    return pen.votes


def _origin(scheme: Scheme, labels: Ints) -> Ints:
    """The class that votes told in full count from. Even odds count from the class after the label around to
    the one before it, which leaves the label out."""
    if scheme == Scheme.LABEL_EVEN:
        return np.where(labels >= 0, labels + 1, 0)
    return np.zeros_like(labels)


def _even_odds(labels: Ints, classes: int) -> Table:
    return even_table(classes - 1 if bool((labels >= 0).all()) else classes)


class Pen(Protocol):
    """What `walk` asks of whoever follows it. `where` is places in the ballot, ascending."""

    def agree(self, where: Ints, guess: Ints) -> Bools:
        """Which of the votes at `where` are as guessed."""

    def commonest(self, where: Ints, group: Ints, groups: int) -> Ints:
        """A guess for each of the groups, where `group` is the group of each vote at `where`."""

    def spell(self, where: Ints) -> None:
        """The votes at `where`, in full."""


def walk(pen: Pen, scheme: Scheme, labels: Ints) -> None:
    """Visit every vote, and leave it when a guess holds."""
    left = np.arange(len(labels))
    untried = labels >= 0  # votes that may still agree with their label
    if scheme == Scheme.PLAIN:
        untried[:] = False
    context = context_of(scheme, labels)
    if context is not None:
        for _ in range(TURNS):
            left = _turn(pen, left, untried, labels, context)
    tried = left[untried[left]]
    held = np.zeros(len(labels), dtype=np.bool_)
    held[tried] = pen.agree(tried, labels[tried])
    pen.spell(left[~held[left]])


def _turn(pen: Pen, left: Ints, untried: Bools, labels: Ints, context: Ints) -> Ints:
    """One guess for each context that two or more votes share; returns the votes still left."""
    key = context[left] + 1  # no label is a context too
    shared = np.bincount(key) > 1  # a guess for a single vote would be that vote
    in_group = shared[key]
    where = left[in_group]
    group = (np.cumsum(shared) - 1)[key[in_group]]
    guess = pen.commonest(where, group, int(np.count_nonzero(shared)))[group]
    # A guess that is also the label holds far more often: the two kinds have flags of their own.
    likely = guess == labels[where]
    held = np.zeros(len(where), dtype=np.bool_)
    for kind in (likely, ~likely):
        held[kind] = pen.agree(where[kind], guess[kind])
    untried[where[likely]] = False
    done = np.zeros(len(left), dtype=np.bool_)
    done[in_group] = held
    return left[~done]


class Recorder:
    """The sender's pen: knows the votes, keeps the flags and symbols they come to."""

    def __init__(self, votes: Ints, classes: int, origin: Ints) -> None:
        self._votes, self._classes, self._origin = votes, classes, origin
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
        # One number that orders by tally, then by lower class: a group's maximum names its vote.
        best = np.maximum.reduceat(tally << VOTE_BITS | ~pairs & HIGHEST_VOTE, runs(pairs >> VOTE_BITS)[0])
        chosen: Ints = ~best & HIGHEST_VOTE
        self.symbols.append(chosen)
        return chosen

    def spell(self, where: Ints) -> None:
        self.symbols.append((self._votes[where] - self._origin[where]) % self._classes)


class Player:
    """The receiver's pen: reads flags and symbols, fills in the votes."""

    def __init__(self, bits: BitReader, symbols: SymbolReader, used: Ints, classes: int, origin: Ints) -> None:
        self._bits, self._symbols, self._used = bits, symbols, used
        self._classes, self._origin = classes, origin
        self.votes = np.zeros(len(origin), dtype=np.int64)

    def agree(self, where: Ints, guess: Ints) -> Bools:
        held = self._bits.flags(len(where))
        self.votes[where[held]] = guess[held]
        return held

    def commonest(self, where: Ints, group: Ints, groups: int) -> Ints:  # noqa: ARG002
        return self._used[self._symbols.take(groups)]

    def spell(self, where: Ints) -> None:
        symbols = self._used[self._symbols.take(len(where))]
        self.votes[where] = (symbols + self._origin[where]) % self._classes
