"""The messages of a hand-over: a node that joins gets the state of a member."""

from dataclasses import dataclass
from typing import ClassVar

from p2p_tally.errors import FrameError
from p2p_tally.protocol.kinds import Kind, Stage, check_bytes, check_number

# Bytes of a SHA-256.
DIGEST_BYTES = 32

# Bytes of a state: more than any model has.
MAX_STATE = 2**48


@dataclass(frozen=True, slots=True)
class Fetch:
    """The sender asks for the receiver's state after this round, or after a later one: it has missed merges."""

    kind: ClassVar[Kind] = Kind.FETCH
    stage: ClassVar[Stage] = Stage.HANDOVER
    payload: ClassVar[int] = 0
    round: int

    def __post_init__(self) -> None:
        check_number(self.round, "round")


@dataclass(frozen=True, slots=True)
class State:
    """What the sender has after a round, for a peer that joins: here all but the tensors, which follow in pieces."""

    kind: ClassVar[Kind] = Kind.STATE
    stage: ClassVar[Stage] = Stage.HANDOVER
    payload: ClassVar[int] = 0
    round: int
    warmup: int | None  # the round after which the channel opened; None: an automatic warm-up still lasts
    merged_at: int  # the round of the last merge
    size: int  # bytes of all pieces
    digest: bytes  # of these bytes

    def __post_init__(self) -> None:
        check_number(self.round, "round")
        if self.warmup is not None:
            check_number(self.warmup, "warm-up")
        check_number(self.merged_at, "last merge")
        if type(self.size) is not int or not 0 <= self.size <= MAX_STATE:
            raise FrameError(f"size is {self.size!r:.40}, not a number from 0 to {MAX_STATE}", reason="field")
        check_bytes(self.digest, "digest")
        if len(self.digest) != DIGEST_BYTES:
            raise FrameError(f"a digest of {len(self.digest)} bytes, not {DIGEST_BYTES}", reason="field")


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of the tensors that a State announced: number `part`, from 0."""

    kind: ClassVar[Kind] = Kind.PIECE
    stage: ClassVar[Stage] = Stage.HANDOVER
    part: int
    data: bytes

    def __post_init__(self) -> None:
        check_number(self.part, "part")
        check_bytes(self.data, "data")
        if not self.data:
            raise FrameError("an empty piece", reason="field")

    @property
    def payload(self) -> int:
        return len(self.data)


Handed = Fetch | State | Piece
