"""Long frames of parameters are those of msgpack, written and read without its copies."""

from collections.abc import Callable

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import FrameError
from p2p_tally.node.links.rfc6455 import FrameReader, Opcode, header
from p2p_tally.protocol import frames
from p2p_tally.protocol.frames import CHUNK_BYTES, Limits
from p2p_tally.protocol.kinds import MAX_NUMBER, Stage
from p2p_tally.protocol.messages import SHARD_STAGES, Shard
from p2p_tally.protocol.parameter_frames import LONG, TAIL, parameter_fields

LIMITS = Limits.of(largest_ballot=0, members=4, merging=True)
EDGES = st.sampled_from([1, 127, 128, 255, 256, 65_535, 65_536, MAX_NUMBER]) | st.integers(1, MAX_NUMBER)
LENGTHS = st.sampled_from([1, LONG - 1, LONG, 65_535, 65_536, CHUNK_BYTES]) | st.integers(1, 2 * LONG)


def packed(shard: Shard) -> bytes:
    made: bytes = msgpack.packb((4, shard.round, shard.stage.value, shard.part, bytes(shard.data), shard.check))
    return made


@given(EDGES, st.sampled_from(SHARD_STAGES), EDGES, LENGTHS)
def test_the_bytes_are_those_of_msgpack(round: int, stage: Stage, part: int, length: int) -> None:
    shard = Shard(round, stage, part, np.random.default_rng(length).bytes(length))
    frame = frames.encode(shard)
    assert frame == packed(shard)
    assert frames.decode(frame, LIMITS) == shard
    assert frames.decode(memoryview(frame), LIMITS) == shard


@given(st.integers(0, 40), st.integers(0, 255), st.booleans())
def test_what_is_read_here_is_what_msgpack_reads(place: int, byte: int, at_end: bool) -> None:
    """A byte of the head or of the tail is another one."""
    frame = bytearray(packed(Shard(70_000, Stage.SCATTER, 300, bytes(range(256)) * 20)))
    frame[-1 - place if at_end else place] = byte
    fields = parameter_fields(bytes(frame))
    assert fields is None or fields == tuple(msgpack.unpackb(bytes(frame)))


@pytest.mark.parametrize("change", [lambda frame: frame[:-1], lambda frame: frame + b"\0", lambda frame: frame[1:]])
def test_a_frame_of_another_length_is_refused(change: Callable[[bytes], bytes]) -> None:
    frame = packed(Shard(1, Stage.GATHER, 0, bytes(LONG)))
    with pytest.raises(FrameError):
        frames.decode(change(frame), LIMITS)


@pytest.mark.parametrize(("round", "part"), [(1, 0), (300, 200), (70_000, 7)])
def test_from_a_socket_parameters_are_not_copied_and_lie_even(round: int, part: int) -> None:
    run = np.arange(CHUNK_BYTES // 4, dtype="<f4")
    frame = frames.encode(Shard(round, Stage.GATHER, part, run.tobytes()))
    reader, sent, came = FrameReader(2 * CHUNK_BYTES), header(Opcode.BINARY, len(frame), masked=True) + frame, []
    while sent:
        space = reader.space()
        count = min(len(space), len(sent))
        space[:count], sent = sent[:count], sent[count:]
        came += reader.advance(count)
    [(_, payload)] = came
    shard = frames.decode(payload, LIMITS)
    assert isinstance(shard, Shard)
    values = np.frombuffer(shard.data, "<f4")
    assert values.flags.aligned
    assert np.shares_memory(values, np.frombuffer(payload, np.uint8))
    assert (values == run).all()
    assert len(payload) - len(shard.data) >= TAIL


def test_what_members_say_is_bytes_even_if_it_is_long() -> None:
    """It is taken apart and compared, which a memoryview does not bear."""
    frame = frames.encode(Shard(1, Stage.ROLL, 0, bytes(LONG)))
    shard = frames.decode(memoryview(bytearray(frame)), LIMITS)
    assert isinstance(shard, Shard)
    assert type(shard.data) is bytes
