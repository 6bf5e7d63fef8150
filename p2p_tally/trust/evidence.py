"""Signed ballots, and the proof that a member has signed two different sets of ballots for the same rounds. Pure.

A member signs its ballots batch by batch: one signature under a digest of all ballots of the batch, which it gives to
all its neighbours. An honest member signs one digest for each batch and each start of its program. So two valid
signatures under two digests, for one member, one batch and one start, are a proof that needs nothing else: neither the
ballots, nor the word of whoever shows it. Nobody but the owner of the key can make one.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from p2p_tally.errors import TrustError
from p2p_tally.trust.keys import KEY_BYTES, check_signature, fingerprint, read_base64

# Rounds in a batch. A signature takes about 100 bytes to each neighbour, and what is echoed 20 for each member.
BATCH_ROUNDS = 32
_ROOT_BYTES = 16
_LABEL = b"p2p-tally ballots 1"


def batch_of(round: int) -> int:
    return (round - 1) // BATCH_ROUNDS


def rounds_of(batch: int) -> tuple[int, int]:
    """The first and the last round of a batch."""
    return batch * BATCH_ROUNDS + 1, (batch + 1) * BATCH_ROUNDS


def ballot_digest(ballot: bytes) -> bytes:
    return hashlib.sha256(ballot).digest()


def root_of(ballots: Mapping[int, bytes]) -> bytes:
    """A digest of the ballots of a batch, given by their own digests, by round."""
    found = hashlib.sha256()
    for round in sorted(ballots):
        found.update(round.to_bytes(4, "big") + ballots[round])
    return found.digest()[:_ROOT_BYTES]


@dataclass(frozen=True)
class Statement:
    """What a member signs about its ballots of one batch."""

    federation: str
    member: str
    batch: int
    start: int
    count: int
    root: bytes

    @property
    def signed_part(self) -> bytes:
        fields = [self.federation, self.member, self.batch, self.start, self.count, self.root.hex()]
        return _LABEL + json.dumps(fields).encode()


@dataclass(frozen=True)
class Proof:
    """Two signed statements that cannot both be an honest member's."""

    key: bytes
    first: Statement
    second: Statement
    signatures: tuple[bytes, bytes]

    def check(self) -> None:
        """Raise a TrustError unless this proves it, by the key in it."""
        same = ("federation", "member", "batch", "start")
        differs = next((name for name in same if getattr(self.first, name) != getattr(self.second, name)), None)
        if differs is not None:
            raise TrustError(f"no proof: the two statements are of another {differs} each", reason="evidence")
        if (self.first.root, self.first.count) == (self.second.root, self.second.count):
            raise TrustError("no proof: the two statements say the same", reason="evidence")
        for statement, signature in zip((self.first, self.second), self.signatures, strict=True):
            check_signature(self.key, statement.signed_part, signature, f"a statement of {self.first.member:.80}")

    @property
    def rounds(self) -> tuple[int, int]:
        return rounds_of(self.first.batch)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key)

    @property
    def file(self) -> str:
        """The name of its file: the same proof, found twice, is kept once."""
        named = hashlib.sha256(self.first.member.encode()).hexdigest()[:8]
        return f"{named}-{self.first.batch}-{self.first.start}.json"

    def text(self) -> str:
        def written(statement: Statement, signature: bytes) -> dict[str, Any]:
            return {**asdict(statement), "root": statement.root.hex(), "signature": _base64(signature)}

        both = zip((self.first, self.second), self.signatures, strict=True)
        return json.dumps({"key": _base64(self.key), "statements": [written(*one) for one in both]}, indent=1) + "\n"


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()


def read_proof(text: str | bytes) -> Proof:
    """A proof from its file, not checked yet. A TrustError if it is none."""
    try:
        found = json.loads(text)
        first, second = found["statements"]
        statements = _statement(first), _statement(second)
        key = read_base64(found["key"], "the key")
        signatures = (
            read_base64(first["signature"], "a signature"),
            read_base64(second["signature"], "a signature"),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise TrustError(
            "this is no evidence: accepted is a file that p2p-tally has written", reason="evidence"
        ) from None
    if len(key) != KEY_BYTES:
        raise TrustError("its key is no key", reason="evidence")
    return Proof(key, *statements, signatures)


def _statement(found: Any) -> Statement:
    federation, member = str(found["federation"]), str(found["member"])
    batch, start, count = int(found["batch"]), int(found["start"]), int(found["count"])
    return Statement(federation, member, batch, start, count, bytes.fromhex(found["root"]))
