"""The messages by which members pass on their list: signed changes, which are opaque here."""

from dataclasses import dataclass
from typing import ClassVar

from p2p_tally.errors import FrameError
from p2p_tally.protocol.kinds import Kind, Stage, check_bytes, check_number

# Bytes of the changes in one message, and of a request. A change is at most 4096 bytes.
LIST_BYTES = 16 * 1024
REQUEST_BYTES = 4096
DIGEST_BYTES = 32


def _at_most(value: object, most: int, what: str) -> None:
    check_bytes(value, what)
    assert isinstance(value, bytes)
    if not 0 < len(value) <= most:
        raise FrameError(f"{what} of {len(value)} bytes; accepted is 1 to {most}", reason="field")


@dataclass(frozen=True, slots=True)
class ListNumber:
    """How many changes the sender's list has, and the digest of the last."""

    kind: ClassVar[Kind] = Kind.LIST_NUMBER
    stage: ClassVar[Stage] = Stage.LIST
    payload: ClassVar[int] = 0
    number: int
    digest: bytes

    def __post_init__(self) -> None:
        check_number(self.number, "number")
        _at_most(self.digest, DIGEST_BYTES, "a digest")


@dataclass(frozen=True, slots=True)
class ListAsk:
    """The sender asks for the changes from this number on."""

    kind: ClassVar[Kind] = Kind.LIST_ASK
    stage: ClassVar[Stage] = Stage.LIST
    payload: ClassVar[int] = 0
    first: int

    def __post_init__(self) -> None:
        check_number(self.first, "first")
        if not self.first:
            raise FrameError("first is 0; changes count from 1", reason="field")


@dataclass(frozen=True, slots=True)
class ListPart:
    """Changes from number `first` on, a line each."""

    kind: ClassVar[Kind] = Kind.LIST_PART
    stage: ClassVar[Stage] = Stage.LIST
    first: int
    lines: bytes

    def __post_init__(self) -> None:
        check_number(self.first, "first")
        _at_most(self.lines, LIST_BYTES, "changes")

    @property
    def payload(self) -> int:
        return len(self.lines)


@dataclass(frozen=True, slots=True)
class ListRequest:
    """What a member asks who orders changes for, signed by it. It is passed on by whoever is between."""

    kind: ClassVar[Kind] = Kind.LIST_REQUEST
    stage: ClassVar[Stage] = Stage.LIST
    line: bytes

    def __post_init__(self) -> None:
        _at_most(self.line, REQUEST_BYTES, "a request")

    @property
    def payload(self) -> int:
        return len(self.line)


Listed = ListNumber | ListAsk | ListPart | ListRequest
