"""What a node carries between two others that cannot reach each other: bytes that only those two can read.

The names are in the message, and not places in the list of members: the three may know lists of different length.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import msgpack

from p2p_tally.errors import FrameError
from p2p_tally.protocol.messages import MAX_NUMBER, Kind, Stage

# The most bytes in one frame, so that a vote of the carrier's own does not wait long behind it.
CARRIED_BYTES = 32 * 1024
# Bytes that may be on their way from one end to the other and are not read there yet.
WINDOW = 256 * 1024

NAME_BYTES = 64
_MOST = CARRIED_BYTES + 2 * NAME_BYTES + 64
_ITEMS = 7


class Step(IntEnum):
    OPEN = 0  # the origin asks the target for a connection; data: its credential, where these are exchanged
    ACCEPT = 1  # the answer, with its own
    DATA = 2
    TAKEN = 3  # the origin has read so many bytes more
    END = 4  # by either end; or by the carrier, if it cannot carry this


@dataclass(frozen=True, slots=True)
class Carried:
    stage: ClassVar[Stage] = Stage.CARRIED
    origin: str
    target: str
    session: int  # chosen by who opens: which of several connections between the two
    step: Step
    count: int = 0
    data: bytes = b""

    @property
    def payload(self) -> int:
        return len(self.data)

    def encode(self) -> bytes:
        names = self.origin.encode(), self.target.encode()
        packed: bytes = msgpack.packb(
            (Kind.CARRIED.value, *names, self.session, self.step.value, self.count, self.data)
        )
        return packed


def is_carried(frame: bytes) -> bool:
    return frame[:2] == bytes([0x90 + _ITEMS, Kind.CARRIED])


def decode_carried(frame: bytes) -> Carried:
    """The message, or a FrameError."""
    if len(frame) > _MOST:
        raise FrameError(f"{len(frame)} bytes, the limit is {_MOST}", reason="oversized")
    try:
        fields = msgpack.unpackb(
            frame, use_list=False, max_array_len=_ITEMS, max_map_len=0, max_ext_len=0, max_str_len=0, max_bin_len=_MOST
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise FrameError(f"not msgpack within the limits: {error!s:.80}", reason="garbage") from None
    match fields:
        case (Kind.CARRIED.value, bytes(origin), bytes(target), int(session), int(step), int(count), bytes(data)):
            numbers = (session, step, count)
            in_range = all(type(number) is int and 0 <= number <= MAX_NUMBER for number in numbers)
            if in_range and step in Step.__members__.values() and max(len(origin), len(target)) <= NAME_BYTES:
                return Carried(_name(origin), _name(target), session, Step(step), count, data)
    raise FrameError("a carried frame with a field that is none", reason="field")


def _name(raw: bytes) -> str:
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError:
        raise FrameError("a name that is none", reason="field") from None
