"""The packed ballot: ceil(log2 C) bits for each vote, highest bit first, padded with zero bits to whole bytes.

Also checks that votes and labels are class indices.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2p_tally.errors import BallotError
from p2p_tally.protocol.bits import Ints, from_bits, to_bits


def vote_width(classes: int) -> int:
    """Bits for one class index."""
    return (classes - 1).bit_length()


def packed_size(count: int, classes: int) -> int:
    """Length of a packed ballot in bytes."""
    return (count * vote_width(classes) + 7) // 8


def class_indices(values: NDArray[np.integer[Any]], classes: int, *, lowest: int = 0) -> Ints:
    """`values` as int64. They are this node's own votes and labels: a wrong one is our own error, a ValueError."""
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"class indices are a row of integers, not {values.dtype} of shape {values.shape}")
    if len(values) and not (lowest <= int(values.min()) and int(values.max()) < classes):
        raise ValueError(f"class indices {values.min()} to {values.max()}, not in {lowest} to {classes - 1}")
    return values.astype(np.int64)


def encode_packed(votes: NDArray[np.integer[Any]], classes: int) -> bytes:
    return np.packbits(to_bits(class_indices(votes, classes), vote_width(classes))).tobytes()


def decode_packed(data: bytes, count: int, classes: int) -> Ints:
    """The votes, as int64, each below `classes`."""
    if len(data) != packed_size(count, classes):
        raise BallotError(f"{len(data)} bytes instead of {packed_size(count, classes)}", reason="ballot-length")
    width = vote_width(classes)
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    if bits[count * width :].any():
        raise BallotError("padding bits that are not zero", reason="ballot-padding")
    votes = from_bits(bits[: count * width], count, width)
    if count and int(votes.max()) >= classes:
        raise BallotError(f"class {int(votes.max())} of {classes}", reason="ballot-class")
    return votes
