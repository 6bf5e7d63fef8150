"""Frames of long runs of parameters: the same bytes as msgpack's, without its copies. Pure.

msgpack copies the parameters three times to write a frame, and once to read it. Here they are copied once to write it.
From a memoryview, whose bytes nobody changes any more, they are not copied at all.
"""

import struct
from typing import Any

import msgpack

from p2p_tally.protocol.kinds import Kind, Stage

# A shorter frame is left to msgpack.
LONG = 4096
# Bytes of a frame after its parameters: the head of a field of four bytes, and the checksum.
TAIL = 6

_ARRAY_OF_6 = b"\x96"
_TAIL_HEAD = b"\xc4\x04"
_BIN_16, _BIN_32 = 0xC5, 0xC6
_WIDTHS = {0xCC: 1, 0xCD: 2, 0xCE: 4}  # of numbers above 127
_MOST_HEAD = 24
_PARAMETERS = (Stage.VECTOR, Stage.SCATTER, Stage.GATHER)


def is_long(size: int) -> bool:
    """Whether the frame of so many bytes of parameters is written here."""
    return size >= LONG


def encode_parameters(numbers: tuple[int, int, int, int], data: bytes | memoryview, check: bytes) -> bytes:
    """A frame of a Shard whose data `is_long`. `numbers`: its fields before the data."""
    size = len(data)
    binary = struct.pack(">BH", _BIN_16, size) if size < 1 << 16 else struct.pack(">BI", _BIN_32, size)
    return b"".join((_ARRAY_OF_6, msgpack.packb(numbers)[1:], binary, data, _TAIL_HEAD, check))


def parameter_fields(frame: bytes | memoryview) -> tuple[Any, ...] | None:
    """The fields of such a frame, as msgpack would read them; None: it is for msgpack to say what it is."""
    if len(frame) < LONG or frame[0] != _ARRAY_OF_6[0] or frame[1] != Kind.SHARD:
        return None
    head, at, numbers = bytes(frame[:_MOST_HEAD]), 1, []
    for _ in range(4):
        width = _WIDTHS.get(head[at], 0)
        if not width and head[at] > 0x7F:
            return None
        numbers.append(int.from_bytes(head[at + 1 : at + 1 + width], "big") if width else head[at])
        at += 1 + width
    width = {_BIN_16: 2, _BIN_32: 4}.get(head[at], 0)
    start = at + 1 + width
    stop = start + int.from_bytes(head[at + 1 : start], "big")
    if not width or stop != len(frame) - TAIL or frame[stop : stop + 2] != _TAIL_HEAD:
        return None
    data = frame[start:stop]
    # What members say about a merge is taken apart further on, as bytes.
    return *numbers, data if numbers[2] in _PARAMETERS else bytes(data), bytes(frame[stop + 2 :])
