"""What members agree on in a robust merge: who takes part, and whether its result is adopted. Pure.

Members are numbered in order of name. Every member gets the same values (agreement.py), and so decides the same.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from p2p_tally.defence.agreement import majority
from p2p_tally.defence.disputes import left_out

DIGEST = 16  # bytes
REFUSED = bytes(DIGEST)  # in place of the digest of a result that a member does not accept


def mask_bytes(members: int) -> int:
    return -(-members // 8)


def to_bits(chosen: Collection[int], members: int) -> bytes:
    return np.packbits([member in chosen for member in range(members)]).tobytes()


def from_bits(bits: bytes, members: int) -> set[int]:
    return {place for place, bit in enumerate(np.unpackbits(np.frombuffer(bits, np.uint8))[:members]) if bit}


def taking_part(rolls: Sequence[bytes]) -> list[int]:
    """From the members that each one heard: those that more than half of them heard. Two of these that did not hear
    each other cannot exchange parameters: that is a dispute. An empty roll: that member is not there."""
    members = len(rolls)
    heard = {member: from_bits(roll, members) for member, roll in enumerate(rolls) if roll}
    there = [member for member in heard if 2 * sum(member in roll for roll in heard.values()) > len(heard)]
    out = left_out((one, other) for one in there for other in there if other not in heard[one])
    return [member for member in there if member not in out]


@dataclass(frozen=True)
class Verdict:
    """What one member says about a result: its digest, or REFUSED; and whom it accuses."""

    digest: bytes
    accused: frozenset[int] = frozenset()

    def encode(self, members: int) -> bytes:
        return self.digest + to_bits(self.accused, members)

    @classmethod
    def decode(cls, data: bytes, members: int) -> "Verdict | None":
        """None: it said nothing that can be understood."""
        if len(data) != DIGEST + mask_bytes(members):
            return None
        return cls(data[:DIGEST], frozenset(from_bits(data[DIGEST:], members)))


@dataclass(frozen=True)
class Outcome:
    adopted: bytes | None  # the digest of the result that all take
    rest: list[int]  # with whom it is tried again, if none was adopted
    out: list[int]  # who is left out then


def outcome(verdicts: Sequence[Verdict | None]) -> Outcome:
    """A result is adopted if more than half of the members accept it and nobody refuses it. Otherwise those in dispute
    are left out, and those that say nothing; and, if more than half accept one result, those that do not and accuse
    nobody. So each time somebody lies, at least one liar goes."""
    members = len(verdicts)
    said = {member: verdict for member, verdict in enumerate(verdicts) if verdict is not None}
    digests = [verdict.digest for verdict in said.values()]
    usual = majority(digests, members) or REFUSED
    if usual != REFUSED and len(set(digests)) == 1:
        return Outcome(usual, [], [])
    accusing = {member for member, verdict in said.items() if verdict.digest == REFUSED and verdict.accused}
    out = left_out((member, other) for member in accusing for other in said[member].accused)
    if usual != REFUSED:
        out |= {member for member, verdict in said.items() if verdict.digest != usual and member not in accusing}
    out |= set(range(members)) - said.keys()
    return Outcome(None, [member for member in range(members) if member not in out], sorted(out))
