"""Whether a mean that a member computed can be right, from what the others say that they sent it, in a few places.

Each member draws places of its own, and tells them when all means have been sent. A mean that is false in a share p of
a segment is found with probability 1 - (1 - p)^m, where m places of all members are in that segment. Each claim may be
a lie too. So a mean is false only if no `liars` of the claims could explain it: so many cannot make an honest member
look like a liar, and a mean that passes is one that so many liars could have caused anyway.
"""

from collections.abc import Sequence

import numpy as np

# Places in a whole vector: one in so many parameters, and at most this many. So claims are a small part of a merge.
ONE_IN = 128
MOST = 512
# Share of a value by which sums in another order may differ.
ROUNDING = np.float32(1e-4)


def spots(length: int) -> int:
    """How many places of a vector of this length are looked at."""
    return min(MOST, -(-length // ONE_IN))


def places(length: int, seed: bytes) -> np.ndarray:
    """The places that follow from a seed, ascending."""
    draw = np.random.Generator(np.random.Philox(int.from_bytes(seed, "big")))
    drawn: np.ndarray = np.sort(draw.integers(0, max(length, 1), spots(length)))
    return drawn


def possible_trimmed(
    found: np.ndarray, claims: Sequence[np.ndarray], count: int, cut: int, liars: int, slack: np.ndarray
) -> bool:
    """Whether these values [m] can be the means of `count` contributions without the `cut` smallest and largest, if up
    to `liars` of the claims [n][m] are false. `slack` [m]: how far rounding may have moved the values."""
    cut = min(cut, (count - 1) // 2)
    spare = cut - max(liars, count - len(claims))  # who claims nothing is a liar
    if spare < 0:
        return True  # so many liars could cause anything
    rows = np.sort(np.stack(claims), axis=0)  # [n, m]
    kept = count - 2 * cut
    low = rows[spare : spare + kept].mean(0)
    high = rows[len(rows) - spare - kept : len(rows) - spare].mean(0)
    return _within(found, low, high, slack)


def possible(found: np.ndarray, claims: Sequence[np.ndarray], slack: np.ndarray) -> bool:
    """Whether these values [m] lie between the smallest and the largest claim [n][m]."""
    if not claims:
        return True
    rows = np.stack(claims)
    return _within(found, rows.min(0), rows.max(0), slack)


def _within(found: np.ndarray, low: np.ndarray, high: np.ndarray, slack: np.ndarray) -> bool:
    slack = slack + ROUNDING * np.maximum(np.abs(low), np.abs(high))
    return bool(((found >= low - slack) & (found <= high + slack)).all())
