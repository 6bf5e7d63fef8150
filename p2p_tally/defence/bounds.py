"""Which contributions to a merge are absurd, so that they do not count at all."""

from collections.abc import Sequence

import numpy as np

# A contribution may be so many times as long as the judge's own, or as the members' median, whichever is longer. Honest
# members were at most 1.6 times as long (docs/decisions/0032-merges-that-bear-liars.md).
TIMES = 8.0
# Shorter runs are not judged: a few values of an honest member may well be many times another's. The rule bears them.
LEAST = 64


def length(values: np.ndarray) -> float:
    """The norm of a run; of values so large that it overflows, infinite."""
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.dot(values, values)))


def absurd(lengths: Sequence[float], own: float) -> list[int]:
    """The places of those that are too long, compared with the judge's `own` and with the median of all."""
    usual = max(own, sorted(lengths)[(len(lengths) - 1) // 2])
    if not usual:
        return []  # nothing to compare with
    return [place for place, found in enumerate(lengths) if not found <= TIMES * usual]  # NaN is not


def counting(parts: Sequence[np.ndarray], judge: int) -> list[int]:
    """The places of those contributions to a run that count, for the member at the place `judge`, which sums it."""
    lengths = [length(values) for values in parts]
    out = absurd(lengths, lengths[judge]) if len(parts[judge]) >= LEAST else []
    return [place for place in range(len(parts)) if place == judge or place not in out]
