"""Frames of WebSockets: what is written is read back, however it is cut; what is not allowed is refused."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.node.links.rfc6455 import (
    SHORT_BUFFER,
    FrameReader,
    Opcode,
    Violation,
    accept_key,
    close_payload,
    header,
    read_close,
    unmask,
)
from p2p_tally.protocol.frames import websocket_header

LIMIT = 3 * SHORT_BUFFER
BINARY, TEXT, CLOSE, PING = Opcode.BINARY, Opcode.TEXT, Opcode.CLOSE, Opcode.PING


def frame(opcode: int, payload: bytes, *, key: bytes | None = None, final: bool = True, bits: int = 0) -> bytes:
    """A frame as any implementation may send it."""
    start = bytearray(header(opcode, len(payload), masked=False))
    start[0] = (0x80 if final else 0) | bits | opcode
    if key is None:
        return bytes(start) + payload
    start[1] |= 0x80
    masked = bytes(byte ^ key[place % 4] for place, byte in enumerate(payload))
    return bytes(start) + key + masked


def read(reader: FrameReader, data: bytes, pieces: list[int]) -> list[tuple[int, bytes]]:
    """Give the reader these bytes, in pieces of these lengths, then in the largest that it takes."""
    found, sizes = [], iter(pieces)
    while data:
        space = reader.space()
        count = min(len(space), len(data), next(sizes, len(data)))
        space[:count] = data[:count]
        found += [(opcode, bytes(payload)) for opcode, payload in reader.advance(count)]
        data = data[count:]
    return found


lengths = st.one_of(st.integers(0, 300), st.integers(SHORT_BUFFER - 20, SHORT_BUFFER + 20), st.just(LIMIT - 1))
keys = st.one_of(st.none(), st.just(bytes(4)), st.binary(min_size=4, max_size=4))
parts = st.lists(lengths.map(os.urandom), min_size=1, max_size=3).filter(lambda all_: sum(map(len, all_)) < LIMIT)


@given(st.lists(st.tuples(parts, keys, st.booleans()), max_size=4), st.lists(st.integers(1, 40), max_size=60))
def test_messages_are_read_back_however_they_are_cut(
    messages: list[tuple[list[bytes], bytes | None, bool]], pieces: list[int]
) -> None:
    """In one frame or several, masked or not, with pings in between."""
    sent, expected = b"", []
    for cut, key, pings in messages:
        for place, part in enumerate(cut):
            sent += frame(0 if place else BINARY, part, key=key, final=place == len(cut) - 1)
            if pings:
                sent += frame(PING, b"here", key=key)
        expected += [(PING, b"here")] * ((len(cut) - 1) * pings) + [(BINARY, b"".join(cut))] + [(PING, b"here")] * pings
    reader = FrameReader(LIMIT)
    assert read(reader, sent, pieces) == expected
    assert reader.violation is None


@given(lengths, st.booleans())
def test_own_frames_have_the_length_that_is_booked(length: int, masked: bool) -> None:
    start = header(BINARY, length, masked=masked)
    assert len(start) == websocket_header(length, masked=masked)
    assert read(FrameReader(LIMIT), start + bytes(length), []) == [(BINARY, bytes(length))]


@given(st.binary(max_size=70), st.binary(min_size=4, max_size=4))
def test_masking_twice_changes_nothing(payload: bytes, key: bytes) -> None:
    data = bytearray(payload)
    unmask(data, key)
    assert bytes(data) == bytes(byte ^ key[place % 4] for place, byte in enumerate(payload))
    unmask(data, key)
    assert bytes(data) == payload


@pytest.mark.parametrize(
    "bad, code",
    [
        (frame(BINARY, b"x", bits=0x40), 1002),
        (frame(3, b"x"), 1002),
        (frame(11, b"x"), 1002),
        (frame(PING, bytes(126)), 1002),
        (frame(PING, b"", final=False), 1002),
        (frame(0, b"x"), 1002),
        (frame(BINARY, b"x", final=False) + frame(BINARY, b"y"), 1002),
        (header(BINARY, LIMIT, masked=False), 1009),
        (header(BINARY, 1 << 62, masked=True), 1009),
        (frame(BINARY, bytes(LIMIT - 5), final=False) + frame(0, bytes(5)), 1009),
    ],
    ids=["reserved bits", "opcode 3", "opcode 11", "a long ping", "part of a ping", "a part of nothing",
         "two messages at once", "too long", "far too long", "too long in parts"],
)  # fmt: skip
@pytest.mark.parametrize("pieces", [[], [1] * 40], ids=["at once", "byte by byte"])
def test_what_is_not_allowed_is_refused_and_ends_the_reading(bad: bytes, code: int, pieces: list[int]) -> None:
    reader = FrameReader(LIMIT)
    before = frame(BINARY, b"before")
    assert read(reader, before + bad + frame(BINARY, b"after"), pieces) == [(BINARY, b"before")]
    assert reader.violation is not None and reader.violation.code == code
    assert len(reader.space()) > 0


def test_the_end_of_a_link() -> None:
    assert read_close(b"") == (0, "")
    assert read_close(close_payload(4001, "läuft".encode())) == (4001, "läuft")
    for bad, code in ((b"\x03", 1002), (close_payload(999, b""), 1002), (close_payload(1005, b""), 1002),
                      (close_payload(1000, b"\xff"), 1007)):  # fmt: skip
        with pytest.raises(Violation) as refused:
            read_close(bad)
        assert refused.value.code == code


def test_the_key_of_the_standard() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
