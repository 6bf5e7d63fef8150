"""Ballots about examples that peers made (anchors): the first has the examples themselves, the others answers for them.

Float32, little-endian. Examples are P rows: the label, and the D values of the input. Answers are one number that
names the examples, C or more, and P rows of C probabilities. So the first number says which of the two a ballot is.
The decoder checks everything, as that of any ballot.
"""

import numpy as np

from p2p_tally.errors import BallotError
from p2p_tally.option_types import ANCHOR_NAMES, LARGEST_FEATURE
from p2p_tally.protocol.probabilities import SLACK

TYPE = "<f4"


def examples_size(count: int, values: int) -> int:
    return 4 * count * (1 + values)


def answers_size(count: int, classes: int) -> int:
    return 4 * (1 + count * classes)


def write_anchors(table: np.ndarray, classes: int) -> bytes:
    """Examples [P, 1 + D], or answers [P, 1 + C] with the name and C in each row's first place."""
    if table[0, 0] < classes:
        return table.astype(TYPE, copy=False).tobytes()
    return table[0, :1].astype(TYPE).tobytes() + table[:, 1:].astype(TYPE).tobytes()


def read_anchors(data: bytes, count: int, classes: int, values: int) -> np.ndarray:
    """The table that was written, or a BallotError."""
    if len(data) not in (examples_size(count, values), answers_size(count, classes)):
        raise BallotError(f"{len(data)} bytes are neither examples nor answers", reason="ballot-length")
    numbers = np.frombuffer(data, TYPE).astype(np.float32)
    if not np.isfinite(numbers).all():
        raise BallotError("values that are not finite", reason="ballot-value")
    first = float(numbers[0])
    wanted = examples_size(count, values) if first < classes else answers_size(count, classes)
    if len(data) != wanted:
        raise BallotError(f"{len(data)} bytes instead of {wanted}", reason="ballot-length")
    return _examples(numbers.reshape(count, -1), classes) if first < classes else _answers(numbers, classes)


def _examples(table: np.ndarray, classes: int) -> np.ndarray:
    labels, inputs = table[:, 0], table[:, 1:]
    if (labels < 0).any() or (labels >= classes).any() or (labels % 1).any():
        raise BallotError("a label that is no class", reason="ballot-value")
    if (np.abs(inputs) > LARGEST_FEATURE).any():
        raise BallotError("an input out of bounds", reason="ballot-value")
    return table


def _answers(numbers: np.ndarray, classes: int) -> np.ndarray:
    name, rows = numbers[:1], numbers[1:].reshape(-1, classes)
    if name[0] % 1 or name[0] >= classes + ANCHOR_NAMES:
        raise BallotError("a name that examples cannot have", reason="ballot-value")
    if (rows < 0).any() or (np.abs(rows.sum(1, dtype=np.float64) - 1) > SLACK["float32"]).any():
        raise BallotError("rows that are no probabilities", reason="ballot-probability")
    table: np.ndarray = np.concatenate([np.repeat(name[None], len(rows), 0), rows], 1)
    return table
