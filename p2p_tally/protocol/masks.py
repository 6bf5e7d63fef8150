"""A set of members as bytes: one bit for each member, in order of name."""

from collections.abc import Iterable, Sequence

import numpy as np

from p2p_tally.ids import NodeName


def to_mask(present: Iterable[NodeName], members: Sequence[NodeName]) -> bytes:
    bits = np.isin(np.array(members), np.array(list(present)))
    return np.packbits(bits).tobytes()


def mask_of_all(members: int) -> bytes:
    """The mask in which every bit of so many members is set."""
    return np.packbits(np.ones(members, bool)).tobytes()


def from_mask(mask: bytes, members: Sequence[NodeName]) -> set[NodeName]:
    """The members whose bit is set; bits past the last member are ignored."""
    bits = np.unpackbits(np.frombuffer(mask, np.uint8))
    return {member for member, bit in zip(members, bits, strict=False) if bit}
