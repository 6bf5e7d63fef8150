"""The messages about signed ballots: a signature over many of them, what others were told, and what they were given.

A batch is a run of rounds; `start` tells one start of a node from the next, because a node that comes back from a
checkpoint may vote otherwise.
"""

from dataclasses import dataclass
from typing import ClassVar

from p2p_tally.errors import FrameError
from p2p_tally.protocol.kinds import Kind, Stage, check_bytes, check_number

ROOT_BYTES = 16
SIGNATURE_BYTES = 64
START_BYTES = 4
# What is said of each member in an Echoed: the start, and the root.
SAID_BYTES = START_BYTES + ROOT_BYTES


def _of_length(value: object, length: int, what: str) -> None:
    check_bytes(value, what)
    assert isinstance(value, bytes)
    if len(value) != length:
        raise FrameError(f"{what} of {len(value)} bytes; accepted is {length}", reason="field")


def _check_statement(message: "Signed | Passed") -> None:
    for value, what in ((message.batch, "batch"), (message.start, "start"), (message.count, "count")):
        check_number(value, what)
    _of_length(message.root, ROOT_BYTES, "a root")
    _of_length(message.signature, SIGNATURE_BYTES, "a signature")


@dataclass(frozen=True, slots=True)
class Signed:
    """The sender's signature under its ballots of a batch."""

    kind: ClassVar[Kind] = Kind.SIGNED
    stage: ClassVar[Stage] = Stage.EVIDENCE
    payload: ClassVar[int] = 0
    batch: int
    start: int
    count: int  # of ballots
    root: bytes  # a digest of them all
    signature: bytes

    def __post_init__(self) -> None:
        _check_statement(self)


@dataclass(frozen=True, slots=True)
class Echoed:
    """What the sender was given by others for a batch. `members`: a bit for each of whom it speaks; `said`: for each of
    them, in order, the start and the root."""

    kind: ClassVar[Kind] = Kind.ECHOED
    stage: ClassVar[Stage] = Stage.EVIDENCE
    payload: ClassVar[int] = 0
    batch: int
    members: bytes
    said: bytes

    def __post_init__(self) -> None:
        check_number(self.batch, "batch")
        check_bytes(self.members, "members")
        check_bytes(self.said, "said")
        if len(self.said) != SAID_BYTES * int.from_bytes(self.members, "big").bit_count():
            raise FrameError(f"{len(self.said)} bytes for the members in its mask", reason="field")


@dataclass(frozen=True, slots=True)
class Passed:
    """A Signed of another member, passed on because the receiver has another one."""

    kind: ClassVar[Kind] = Kind.PASSED
    stage: ClassVar[Stage] = Stage.EVIDENCE
    payload: ClassVar[int] = 0
    origin: int  # its place among the members
    batch: int
    start: int
    count: int
    root: bytes
    signature: bytes

    def __post_init__(self) -> None:
        check_number(self.origin, "origin")
        _check_statement(self)


Witnessed = Signed | Echoed | Passed
