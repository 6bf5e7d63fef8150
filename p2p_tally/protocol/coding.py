"""The coded ballot: lossless, as few bytes as possible, and each ballot can be decoded by itself.

The first byte says which code the rest uses; the shortest is sent. The codes: packed.py, enumerative.py (optimal, for
few votes or few wrong votes) and predictive.py (for the rest).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2p_tally.errors import BallotError
from p2p_tally.protocol.bits import Ints
from p2p_tally.protocol.enumerative import FIRST_BYTE, decode_ranked, encode_ranked
from p2p_tally.protocol.packed import class_indices, decode_packed, encode_packed, packed_size
from p2p_tally.protocol.predictive import decode_predictive, encode_predictive, fits_tables
from p2p_tally.protocol.predictive_choice import likely_smallest

PACKED = 0  # the first byte of a packed ballot; 1 to 7 are for predictive.Scheme, 8 to 255 for ranked ballots
SHORT = 12  # bytes; a predictive ballot is hardly ever shorter


def encode_coded(votes: NDArray[np.integer[Any]], classes: int, labels: NDArray[np.integer[Any]] | None) -> bytes:
    """The votes, in at most one byte more than packed. `labels`: a class for each vote, -1 if it is unknown."""
    votes = class_indices(votes, classes)
    labels = known_labels(labels, len(votes), classes)
    ballots = [bytes([PACKED]) + encode_packed(votes, classes)]
    ranked = encode_ranked(votes, classes, labels)
    if ranked is not None:
        ballots.append(ranked)
    if min(map(len, ballots)) > SHORT and fits_tables(votes, classes):
        ballots.append(encode_predictive(likely_smallest(votes, classes, labels), votes, classes, labels))
    return min(ballots, key=len)


def decode_coded(data: bytes, count: int, classes: int, labels: NDArray[np.integer[Any]] | None) -> Ints:
    """The votes, as int64, each below `classes`; or BallotError.

    Only `data` comes from the peer; the receiver knows the rest. Whatever the bytes are, time and memory are
    proportional to count + classes.
    """
    labels = known_labels(labels, count, classes)
    if not 0 < len(data) <= 1 + packed_size(count, classes):
        raise BallotError(f"{len(data)} bytes for {count} votes of {classes} classes", reason="ballot-length")
    if data[0] == PACKED:
        return decode_packed(data[1:], count, classes)
    if data[0] >= FIRST_BYTE:
        return decode_ranked(data, classes, labels)
    return decode_predictive(data, classes, labels)


def known_labels(labels: NDArray[np.integer[Any]] | None, count: int, classes: int) -> Ints:
    """A label for each vote, -1 if it is unknown."""
    if labels is None:
        return np.full(count, -1, dtype=np.int64)
    if len(labels) != count:
        raise ValueError(f"{len(labels)} labels for {count} votes")
    return class_indices(labels, classes, lowest=-1)
