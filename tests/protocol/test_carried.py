"""Frames that a third node carries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import FrameError
from p2p_tally.protocol import frames
from p2p_tally.protocol.carried import CARRIED_BYTES, Carried, Step, decode_carried, is_carried
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.messages import MAX_NUMBER, Here, Vote

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-:[]._", min_size=1, max_size=64)
numbers = st.integers(0, MAX_NUMBER)
messages = st.builds(Carried, names, names, numbers, st.sampled_from(Step), numbers, st.binary(max_size=300))


@given(messages)
def test_there_and_back(message: Carried) -> None:
    frame = message.encode()
    assert is_carried(frame)
    assert decode_carried(frame) == message
    assert message.payload == len(message.data)


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda rest: b"\x97\x14" + rest))
def test_any_bytes_are_a_message_or_a_frame_error(frame: bytes) -> None:
    try:
        decode_carried(frame)
    except FrameError as error:
        assert error.reason in ("garbage", "field", "oversized")


@given(messages, st.integers(0, 400), st.integers(0, 255))
def test_one_wrong_byte_raises_nothing_else(message: Carried, place: int, value: int) -> None:
    frame = bytearray(message.encode())
    frame[place % len(frame)] = value
    try:
        decode_carried(bytes(frame))
    except FrameError:
        return


def test_the_largest_fits_and_a_larger_one_does_not() -> None:
    most = Carried("a" * 64, "b" * 64, MAX_NUMBER, Step.DATA, MAX_NUMBER, bytes(CARRIED_BYTES))
    assert decode_carried(most.encode()) == most
    with pytest.raises(FrameError) as caught:
        decode_carried(Carried("a", "b", 1, Step.DATA, 0, bytes(CARRIED_BYTES + 256)).encode())
    assert caught.value.reason == "oversized"


def test_other_messages_are_none_and_this_is_none_of_them() -> None:
    assert not is_carried(frames.encode(Here(0))) and not is_carried(frames.encode(Vote(31, bytes(16))))
    with pytest.raises(FrameError) as caught:
        frames.decode(Carried("a", "b", 1, Step.END).encode(), Limits(1 << 20))
    assert caught.value.reason == "unknown-kind"
