"""The coded ballot of peers that may abstain: which votes were cast, and those votes as a coded ballot of their own.

Which were cast is one bit a vote. For more than SHORT votes a first byte says whether it is that, or the gaps between
the rarer kind, whichever is shorter. If none was cast, nothing follows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2p_tally.errors import BallotError
from p2p_tally.protocol.bits import BitReader, BitWriter, Bools, Ints
from p2p_tally.protocol.coding import decode_coded, encode_coded, known_labels
from p2p_tally.protocol.packed import class_indices, packed_size

SHORT = 64  # votes
BITMAP, GAPS = 0, 1  # the first byte of a longer ballot


def largest_abstaining(count: int, classes: int) -> int:
    """The longest ballot, in bytes."""
    return (count > SHORT) + (count + 7) // 8 + packed_size(count, classes) + 1


def encode_abstaining(votes: NDArray[np.integer[Any]], classes: int, labels: NDArray[np.integer[Any]] | None) -> bytes:
    """Votes of 0 to C, where C is no opinion."""
    votes = class_indices(votes, classes + 1)
    cast = votes < classes
    head = _encode_cast(cast)
    if not cast.any():
        return head
    return head + encode_coded(votes[cast], classes, None if labels is None else labels[cast])


def decode_abstaining(data: bytes, count: int, classes: int, labels: NDArray[np.integer[Any]] | None) -> Ints:
    """The votes, as int64, 0 to C; or BallotError."""
    cast, rest = _decode_cast(data, count)
    votes = np.full(count, classes, dtype=np.int64)
    if not cast.any():
        if rest:
            raise BallotError(f"{len(rest)} bytes of votes, but none was cast", reason="ballot-length")
        return votes
    known = known_labels(labels, count, classes)[cast]
    votes[cast] = decode_coded(rest, int(cast.sum()), classes, known)
    return votes


def _encode_cast(cast: Bools) -> bytes:
    bitmap = np.packbits(cast).tobytes()
    if len(cast) <= SHORT:
        return bitmap
    gaps = BitWriter()
    gaps.flags(cast)
    coded = gaps.to_bytes()
    return bytes([GAPS]) + coded if len(coded) < len(bitmap) else bytes([BITMAP]) + bitmap


def _decode_cast(data: bytes, count: int) -> tuple[Bools, bytes]:
    """Which votes were cast, and what follows."""
    if count > SHORT:
        if data[:1] == bytes([GAPS]):
            reader = BitReader(data[1:])
            cast = reader.flags(count)
            return cast, data[1 + reader.finish() :]
        if data[:1] != bytes([BITMAP]):
            raise BallotError(f"first byte {data[:1].hex() or 'missing'}", reason="ballot-code")
        data = data[1:]
    size = (count + 7) // 8
    if len(data) < size:
        raise BallotError(f"{len(data)} bytes for {count} votes", reason="ballot-length")
    bits = np.unpackbits(np.frombuffer(data[:size], np.uint8))
    if bits[count:].any():
        raise BallotError("padding bits that are not zero", reason="ballot-padding")
    return bits[:count].astype(np.bool_), data[size:]
