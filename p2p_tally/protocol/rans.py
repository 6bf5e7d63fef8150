"""Symbols to bytes by asymmetric numeral systems (rANS), with integer frequencies.

A symbol is an index into a frequency table; the caller knows what it means. Both sides compute the table from the same
integers with integer arithmetic, so every machine has the same table.
"""

from collections.abc import Sequence

import numpy as np

from p2p_tally.errors import BallotError
from p2p_tally.protocol.bits import BitReader, BitWriter, Ints, steps

EXACT_UP_TO = 32  # a table with at most this many entries sends exact counts, a longer one powers of two
LARGEST_POWER = 31
MOST_SYMBOLS = 1 << 16  # a table has no more: whatever a peer sends, its slots fit in 128 KiB
MOST_LISTED = 1 << 12  # a longer table is indexed as an array, which is slower than a list, and a tenth of its size


class Table:
    """Frequencies whose sum is a power of two, from any positive weights."""

    def __init__(self, weights: Ints) -> None:
        if len(weights) > MOST_SYMBOLS:
            raise ValueError(f"a table of {len(weights)} symbols; at most {MOST_SYMBOLS} are possible")
        # Few symbols need less precision, and a smaller final state takes one byte less.
        self.precision = 12 if len(weights) <= 64 else 16
        spare = (1 << self.precision) - len(weights)
        # In place: a peer's few bytes may ask for the longest table.
        frequencies = weights * spare
        frequencies //= int(weights.sum())
        frequencies += 1
        frequencies[int(np.argmax(weights))] += (1 << self.precision) - int(frequencies.sum())
        starts = np.cumsum(frequencies, dtype=np.uint32)
        np.subtract(starts, frequencies, out=starts, casting="unsafe")
        self._frequencies = frequencies
        self.frequencies = _to_index(frequencies)
        self.starts = _to_index(starts)

    @property
    def lowest_state(self) -> int:
        """The encoder starts in this state. Between symbols the state is from this to below 256 times this."""
        return 1 << (self.precision + 4)

    @property
    def state_bytes(self) -> int:
        return (self.precision + 4 + 8 + 7) // 8

    def by_slot(self) -> Sequence[int]:
        """For each slot, the symbol that it belongs to."""
        slots = np.repeat(np.arange(len(self._frequencies), dtype=np.uint16), self._frequencies)
        return slots.data  # a memoryview: faster to index than an array, and faster to make than a list


def _to_index(values: np.ndarray) -> Sequence[int]:
    return values.tolist() if len(values) <= MOST_LISTED else values.data


def even_table(size: int) -> Table:
    return Table(np.broadcast_to(np.int64(1), size))


def write_table(bits: BitWriter, counts: Ints, classes: int) -> Table:
    """Write how often each class occurs: the classes that do, as gaps, then their counts or the nearest powers of two.
    A power takes half the bits of a count, and makes each symbol 0.03 bits longer."""
    used = np.flatnonzero(counts)
    counts = counts[used]
    bits.number(len(used), classes.bit_length())
    bits.rice(steps(used, -1) - 1)
    exact = len(used) <= EXACT_UP_TO
    bits.number(exact, 1)
    powers = np.frexp(2 * counts // 3)[1].astype(np.int64)
    bits.rice(counts - 1 if exact else powers)
    return Table(counts if exact else 1 << powers)


def read_table(bits: BitReader, classes: int) -> tuple[Ints, Table]:
    """The used classes in order, and their table."""
    size = bits.number(classes.bit_length())
    if not 0 < size <= min(classes, MOST_SYMBOLS):
        raise BallotError(f"a table of {size} of {classes} classes", reason="ballot-code")
    used = np.cumsum(bits.rice(size, below=classes) + 1) - 1
    if int(used[-1]) >= classes:
        raise BallotError(f"class {int(used[-1])} of {classes}", reason="ballot-class")
    if bits.number(1):
        return used, Table(bits.rice(size, below=1 << LARGEST_POWER) + 1)
    return used, Table(1 << bits.rice(size, below=LARGEST_POWER))


def encode_symbols(table: Table, symbols: Ints) -> bytes:
    """The decoder reads the bytes from the last to the first."""
    state, total = table.lowest_state, 1 << table.precision
    frequencies, starts = table.frequencies, table.starts
    out = bytearray()
    append = out.append
    for symbol in reversed(symbols.tolist()):
        frequency = frequencies[symbol]
        while state >= frequency << 12:
            append(state & 255)
            state >>= 8
        # state // frequency * total + starts[symbol] + state % frequency, with one division
        state += state // frequency * (total - frequency) + starts[symbol]
    return bytes(out) + state.to_bytes(table.state_bytes, "little")


class SymbolReader:
    """Symbols from the end of `data` towards its start."""

    def __init__(self, table: Table, data: bytes) -> None:
        if len(data) < table.state_bytes:
            raise BallotError("coded ballot ends too soon", reason="ballot-length")
        self._table = table
        self._slots = table.by_slot()
        self._state = int.from_bytes(data[-table.state_bytes :], "little")
        self._unread = bytearray(data[: -table.state_bytes])
        if not table.lowest_state <= self._state < table.lowest_state << 8:
            raise BallotError("a state that no encoder ends in", reason="ballot-code")

    def take(self, count: int) -> Ints:
        # This loop takes most of the time of decoding: it uses local names and as few calls as possible.
        slots, frequencies, starts = self._slots, self._table.frequencies, self._table.starts
        precision, lowest, state = self._table.precision, self._table.lowest_state, self._state
        mask = (1 << precision) - 1
        next_byte = self._unread.pop
        symbols: list[int] = []
        append = symbols.append
        try:
            for _ in range(count):
                slot = state & mask
                symbol = slots[slot]
                append(symbol)
                state = frequencies[symbol] * (state >> precision) + slot - starts[symbol]
                while state < lowest:
                    state = state << 8 | next_byte()
        except IndexError:
            raise BallotError("coded ballot ends too soon", reason="ballot-length") from None
        self._state = state
        return np.array(symbols, dtype=np.int64)

    def finish(self) -> int:
        """The number of bytes at the front that were not read. The state must be the encoder's first one."""
        if self._state != self._table.lowest_state:
            raise BallotError("symbols that do not end where encoders begin", reason="ballot-code")
        return len(self._unread)
