"""How vectors are cut: everything once, evenly, in runs of 256 KiB."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.protocol.segments import runs, segments


@given(st.integers(0, 5000), st.integers(1, 64))
def test_segments_cover_all_in_order_and_differ_by_at_most_one(length: int, parts: int) -> None:
    cut = segments(length, parts)
    assert len(cut) == parts
    assert [place for whole in cut for place in range(whole.start, whole.stop)] == list(range(length))
    sizes = [whole.stop - whole.start for whole in cut]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)  # the longer ones first


@pytest.mark.parametrize(
    ("start", "stop", "sizes"),
    [
        (0, 0, []),
        (0, 1, [1]),
        (0, 65_536, [65_536]),  # of float32: 256 KiB
        (0, 65_537, [65_536, 1]),
        (10, 65_546, [65_536]),
        (7, 200_007, [65_536, 65_536, 65_536, 3_392]),
    ],
)
def test_a_segment_is_cut_into_runs(start: int, stop: int, sizes: list[int]) -> None:
    cut = runs(slice(start, stop))
    assert [run.stop - run.start for run in cut] == sizes
    assert [run.start for run in cut] == [start + sum(sizes[:number]) for number in range(len(sizes))]
