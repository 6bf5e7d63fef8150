"""Means by class as bytes: for each class the number of examples that a row is the mean of, and the row, as float32.

A class without examples has a row of zeros. The decoder checks everything, as that of any ballot.
"""

import numpy as np

from p2p_tally.errors import BallotError
from p2p_tally.option_types import LARGEST_FEATURE
from p2p_tally.protocol.probabilities import SLACK

TYPE = "<f4"
# Up to here float32 counts exactly.
MOST_EXAMPLES = 1 << 24


def table_size(classes: int, columns: int) -> int:
    """Bytes of a table with rows of so many columns."""
    return classes * (1 + columns) * np.dtype(TYPE).itemsize


def write_table(table: np.ndarray) -> bytes:
    """A table [C, 1 + D], the numbers of examples first."""
    return table.astype(TYPE, copy=False).tobytes()


def read_table(data: bytes, columns: int, *, probabilities: bool) -> np.ndarray:
    """The table [C, 1 + D], or a BallotError. The length has been checked. `probabilities`: rows are distributions."""
    table = np.frombuffer(data, TYPE).reshape(-1, 1 + columns)
    counts, rows = table[:, 0], table[:, 1:]
    if not np.isfinite(table).all():
        raise BallotError("values that are not finite", reason="ballot-value")
    if (counts < 0).any() or (counts > MOST_EXAMPLES).any() or (counts % 1).any():
        raise BallotError("a count that is no number of examples", reason="ballot-value")
    if rows[counts == 0].any():
        raise BallotError("a mean of no examples", reason="ballot-value")
    if not probabilities and (np.abs(rows) > LARGEST_FEATURE).any():
        raise BallotError("a feature out of bounds", reason="ballot-value")
    held = rows[counts > 0] if probabilities else rows[:0]
    if (held < 0).any() or (np.abs(held.sum(1, dtype=np.float64) - 1) > SLACK["float32"]).any():
        raise BallotError("rows that are no probabilities", reason="ballot-probability")
    return table.astype(np.float32)
