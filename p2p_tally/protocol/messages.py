"""The messages between neighbours: frozen, and valid from the moment they exist.

A kind's number is its identity on the wire and is never given to another message. The sender is not in a message:
the link it came over knows its peer.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from p2p_tally.errors import FrameError

# Rounds and offsets are written as at most 4 bytes.
MAX_NUMBER = 2**32 - 1


class Kind(IntEnum):
    """Append only."""

    VOTE = 2
    READY = 3
    SHARD = 4


class Stage(IntEnum):
    """What a barrier waits for; also the name under which the ledger books it. Append only."""

    VOTE = 1  # ballots for the probes of a round
    READY = 2  # accuracy on the probes, while an automatic warm-up lasts
    VECTOR = 3  # a neighbour's whole parameter vector
    SCATTER = 4  # all-reduce, first half: the segment of a peer's vector that this node sums
    GATHER = 5  # all-reduce, second half: the mean of the segment that a peer summed


def _number(value: object, what: str) -> None:
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise FrameError(f"{what} is {value!r:.40}, not a number from 0 to {MAX_NUMBER}", reason="field")


def _round(value: object) -> None:
    _number(value, "round")
    if value == 0:
        raise FrameError("round is 0; rounds count from 1", reason="field")


def _bytes(value: object, what: str) -> None:
    if type(value) is not bytes:
        raise FrameError(f"{what} is {type(value).__name__}, not bytes", reason="field")


@dataclass(frozen=True, slots=True)
class Vote:
    """A node's ballot for the probes of a round."""

    kind: ClassVar[Kind] = Kind.VOTE
    stage: ClassVar[Stage] = Stage.VOTE
    round: int
    ballot: bytes

    def __post_init__(self) -> None:
        _round(self.round)
        _bytes(self.ballot, "ballot")

    @property
    def payload(self) -> int:
        return len(self.ballot)


@dataclass(frozen=True, slots=True)
class Ready:
    """How many of a round's labelled probes a node had right, while the channel is still closed."""

    kind: ClassVar[Kind] = Kind.READY
    stage: ClassVar[Stage] = Stage.READY
    round: int
    right: int
    of: int

    def __post_init__(self) -> None:
        _round(self.round)
        _number(self.right, "right")
        _number(self.of, "of")
        if self.of == 0 or self.right > self.of:
            raise FrameError(f"{self.right} right of {self.of}", reason="field")

    @property
    def payload(self) -> int:
        return 2  # a count of probes, at the width of a large class index


@dataclass(frozen=True, slots=True)
class Shard:
    """A run of parameters, little-endian float32, from `offset` on in what the stage transfers."""

    kind: ClassVar[Kind] = Kind.SHARD
    round: int
    stage: Stage
    offset: int
    data: bytes

    def __post_init__(self) -> None:
        _round(self.round)
        if self.stage not in (Stage.VECTOR, Stage.SCATTER, Stage.GATHER):
            raise FrameError(f"stage {self.stage!r:.40} carries no parameters", reason="field")
        _number(self.offset, "offset")
        _bytes(self.data, "data")
        if len(self.data) % 4 or not self.data:
            raise FrameError(f"{len(self.data)} bytes are no whole float32 parameters", reason="field")

    @property
    def payload(self) -> int:
        return len(self.data)


Message = Vote | Ready | Shard
