import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import FrameError
from p2p_tally.protocol import frames
from p2p_tally.protocol.checksum import ROW, checksum
from p2p_tally.protocol.frames import CHUNK_BYTES, Limits
from p2p_tally.protocol.kinds import MAX_NUMBER, Stage
from p2p_tally.protocol.messages import SHARD_STAGES, Shard

LIMITS = Limits.of(largest_ballot=0, members=4, merging=True)
NUMBERS = st.integers(1, MAX_NUMBER)


def flipped(frame: bytes, bit: int) -> bytes:
    changed = bytearray(frame)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@given(NUMBERS, st.sampled_from(SHARD_STAGES), NUMBERS, st.integers(1, CHUNK_BYTES), st.data())
def test_any_flipped_bit_is_noticed(round: int, stage: Stage, part: int, length: int, data: st.DataObject) -> None:
    run = np.random.default_rng(length).bytes(length)
    frame = frames.encode(Shard(round, stage, part, run))
    assert frames.decode(frame, LIMITS) == Shard(round, stage, part, run)
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))
    with pytest.raises(FrameError):
        frames.decode(flipped(frame, bit), LIMITS)


def test_every_bit_of_a_short_frame_is_noticed() -> None:
    frame = frames.encode(Shard(50, Stage.GATHER, 3, np.float32([1.0, -0.5]).tobytes()))
    reasons = set()
    for bit in range(8 * len(frame)):
        with pytest.raises(FrameError) as refused:
            frames.decode(flipped(frame, bit), LIMITS)
        reasons.add(refused.value.reason)
    assert "damaged" in reasons


@given(st.integers(ROW + 1, 3 * ROW), st.data())
def test_a_carry_into_any_bit_is_noticed(length: int, data: st.DataObject) -> None:
    """A bit that makes a sum of the row overflow changes many of its bits."""
    run = b"\xff" * length
    bit = data.draw(st.integers(0, 8 * length - 1))
    assert checksum(1, 4, 0, run) != checksum(1, 4, 0, flipped(run, bit))


def test_a_bit_that_is_stuck_in_every_row_and_values_that_change_places_are_noticed() -> None:
    rows = np.random.default_rng(1).integers(0, 2**32, (64, ROW // 4), np.uint32)
    own = checksum(1, 4, 0, rows.tobytes())
    assert checksum(1, 4, 0, (rows | [1 << 20, *[0] * (ROW // 4 - 1)]).astype(np.uint32).tobytes()) != own
    rows[3, [5, 6]] = rows[3, [6, 5]]
    assert checksum(1, 4, 0, rows.tobytes()) != own


def test_it_is_what_the_page_says() -> None:
    """Written again, the slow way."""
    run = np.random.default_rng(2).bytes(2 * ROW + 100)
    total = [0] * (ROW // 8)
    for start in range(0, len(run), 8):
        total[start % ROW // 8] += int.from_bytes(run[start : start + 8].ljust(8, b"\0"), "little")
    row = b"".join((number % 2**64).to_bytes(8, "little") for number in total)
    where = (50).to_bytes(4, "little") + bytes([4]) + (7).to_bytes(4, "little")
    assert checksum(50, 4, 7, run) == zlib.crc32(where + row).to_bytes(4, "little")
    assert checksum(50, 4, 7, run[:ROW]) == zlib.crc32(where + run[:ROW]).to_bytes(4, "little")
