"""The coded ballot: as few bytes as the votes need, lossless, each one decodable by itself.

Owns the first byte, which says how the rest is written, and the rule that the smallest form is sent. The
forms are packed.py, enumerative.py (exact, for few votes or few mistakes) and guesses.py (the rest).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2p_tally.errors import BallotError
from p2p_tally.protocol.bits import Ints
from p2p_tally.protocol.enumerative import FIRST_BYTE, decode_ranked, encode_ranked
from p2p_tally.protocol.packed import class_indices, decode_packed, encode_packed, packed_size
from p2p_tally.protocol.predictive import decode_guessed, encode_guessed
from p2p_tally.protocol.predictive_choice import likely_smallest

PACKED = 0  # the first byte of a packed ballot; 1 to 7 are guesses.Scheme, the rest are ranks
SHORT = 12  # bytes; a guessed ballot is hardly ever shorter


def encode_coded(votes: NDArray[np.integer[Any]], classes: int, labels: NDArray[np.integer[Any]] | None) -> bytes:
    """The votes in at most one byte more than packed. `labels` has a class a vote, -1 where none is known."""
    votes = class_indices(votes, classes)
    labels = _known(labels, len(votes), classes)
    ballots = [bytes([PACKED]) + encode_packed(votes, classes)]
    ranked = encode_ranked(votes, classes, labels)
    if ranked is not None:
        ballots.append(ranked)
    if min(map(len, ballots)) > SHORT:
        ballots.append(encode_guessed(likely_smallest(votes, classes, labels), votes, classes, labels))
    return min(ballots, key=len)


def decode_coded(data: bytes, count: int, classes: int, labels: NDArray[np.integer[Any]] | None) -> Ints:
    """The votes, as int64, each below `classes`; or BallotError.

    Only `data` is the peer's; the rest is the receiver's own. Whatever the bytes say, time and memory stay in
    proportion to count + classes.
    """
    labels = _known(labels, count, classes)
    if not 0 < len(data) <= 1 + packed_size(count, classes):
        raise BallotError(f"{len(data)} bytes for {count} votes of {classes} classes", reason="ballot-length")
    if data[0] == PACKED:
        return decode_packed(data[1:], count, classes)
    if data[0] >= FIRST_BYTE:
        return decode_ranked(data, classes, labels)
    return decode_guessed(data, classes, labels)


def _known(labels: NDArray[np.integer[Any]] | None, count: int, classes: int) -> Ints:
    if labels is None:
        return np.full(count, -1, dtype=np.int64)
    if len(labels) != count:
        raise ValueError(f"{len(labels)} labels for {count} votes")
    return class_indices(labels, classes, lowest=-1)
