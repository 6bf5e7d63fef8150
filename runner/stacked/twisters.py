"""Many random generators as one array: each gives the numbers that torch's own CPU generator gives for the same seed.

torch draws from a Mersenne Twister (MT19937). A call of torch for each of thousands of peers costs more than their
numbers; here one numpy operation serves all of them. Knows no peer and no batch. n generators.
"""

from collections.abc import Sequence

import numpy as np

WORDS, AHEAD = 624, 397  # words of a state, and how far ahead the recurrence looks
LEAD = WORDS - AHEAD
UPPER, LOWER = np.uint32(0x80000000), np.uint32(0x7FFFFFFF)
MATRIX = np.uint32(0x9908B0DF)
FRACTION_BITS = 24  # of a random float of 32 bits

# torch draws from ranges below this by one word of 32 bits, in all versions; from larger ones by two.
LARGEST_RANGE = 1 << 28


class Twisters:
    """Generators side by side: a column each."""

    def __init__(self, state: np.ndarray, used: np.ndarray) -> None:
        self._state = state  # [624, n] uint32
        self._used = used  # [n], how many words of its state each has given

    @classmethod
    def seeded(cls, seeds: Sequence[int]) -> "Twisters":
        """As torch.Generator().manual_seed for each of these seeds, of which it reads the lower 32 bits."""
        state = np.empty((WORDS, len(seeds)), np.uint32)
        state[0] = np.array(seeds, np.uint64) & np.uint64(0xFFFFFFFF)
        for place in range(1, WORDS):
            before = state[place - 1]
            state[place] = np.uint32(1812433253) * (before ^ (before >> np.uint32(30))) + np.uint32(place)
        return cls(state, np.full(len(seeds), WORDS))

    def __len__(self) -> int:
        return len(self._used)

    def part(self, own: slice) -> "Twisters":
        """Some of them, as a copy."""
        return Twisters(self._state[:, own].copy(), self._used[own].copy())

    # --- numbers

    def words(self, count: int, rows: Sequence[int] | None = None) -> np.ndarray:
        """The next `count` words of every generator [count, n], or of those in `rows`."""
        used = self._used.copy() if rows is None else self._used[list(rows)]
        positions = np.unique(used).tolist()
        if rows is None and len(positions) == 1:
            drawn = np.empty((count, len(used)), np.uint32)
            self._used[:] = _draw(self._state, positions[0], drawn)
            return drawn
        # Generators that have given the same number of words take their next ones together.
        chosen = np.arange(len(used)) if rows is None else np.array(rows)
        drawn = np.empty((count, len(chosen)), np.uint32)
        for position in positions:
            alike = used == position
            state, part = self._state[:, chosen[alike]], np.empty((count, int(alike.sum())), np.uint32)
            self._used[chosen[alike]] = _draw(state, position, part)
            self._state[:, chosen[alike]], drawn[:, alike] = state, part
        return drawn

    def below(self, limits: np.ndarray, count: int, rows: Sequence[int] | None = None) -> np.ndarray:
        """`count` whole numbers from 0 for each, below its limit [n]: torch's random_(0, limit). [n, count]"""
        return np.ascontiguousarray((self.words(count, rows) % limits.astype(np.uint32)).T, np.int64)

    def uniform(self, bounds: np.ndarray) -> np.ndarray:
        """A number between -b and b for each of the bounds [W], at each generator: torch's uniform_. [n, W]

        torch computes it with one rounding. In 64 bits product and sum are exact, so the last step is the one rounding.
        """
        fraction = (self.words(len(bounds)).T & np.uint32((1 << FRACTION_BITS) - 1)) * 2.0**-FRACTION_BITS
        high = bounds.astype(np.float32)
        width = (high - -high).astype(np.float64)
        drawn: np.ndarray = (fraction * width - high).astype(np.float32)
        return drawn

    # --- state

    def state(self) -> np.ndarray:
        """Everything that the next number depends on [n, 625]."""
        return np.concatenate([self._state.T, self._used[:, None]], 1).astype(np.int64)

    def restore(self, state: np.ndarray) -> None:
        self._state = np.ascontiguousarray(state[:, :WORDS].T).astype(np.uint32)
        self._used = state[:, WORDS].copy()


def _draw(state: np.ndarray, used: int, drawn: np.ndarray) -> int:
    """Fill `drawn` [count, n] from states [624, n] that have given `used` words. Returns what they have given then."""
    filled = 0
    while filled < len(drawn):
        if used == WORDS:
            _twist(state)
            used = 0
        more = min(WORDS - used, len(drawn) - filled)
        drawn[filled : filled + more] = _tempered(state[used : used + more])
        filled += more
        used += more
    return used


def _twist(state: np.ndarray) -> None:
    """The next 624 words in place, in runs of words that do not depend on each other."""

    def mixed(first: int, last: int) -> np.ndarray:
        own, after = state[first:last], state[first + 1 : last + 1]
        joined: np.ndarray = ((own & UPPER) | (after & LOWER)) >> np.uint32(1)
        joined ^= (after & np.uint32(1)) * MATRIX
        return joined

    state[:LEAD] = state[AHEAD:] ^ mixed(0, LEAD)
    state[LEAD : 2 * LEAD] = state[:LEAD] ^ mixed(LEAD, 2 * LEAD)
    state[2 * LEAD : -1] = state[LEAD : AHEAD - 1] ^ mixed(2 * LEAD, WORDS - 1)
    last = ((state[-1] & UPPER) | (state[0] & LOWER)) >> np.uint32(1)
    state[-1] = state[AHEAD - 1] ^ last ^ ((state[0] & np.uint32(1)) * MATRIX)


def _tempered(words: np.ndarray) -> np.ndarray:
    words = words ^ (words >> np.uint32(11))
    words ^= (words << np.uint32(7)) & np.uint32(0x9D2C5680)
    words ^= (words << np.uint32(15)) & np.uint32(0xEFC60000)
    words ^= words >> np.uint32(18)
    return words
