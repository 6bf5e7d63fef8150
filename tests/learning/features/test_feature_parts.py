"""Work in parts: every row once, in order, whatever the threads; and torch's own threads are left as they were."""

import threading
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.learning.features.parts import Parts, one_thread_each


@given(rows=st.integers(0, 40), at_once=st.integers(1, 12), threads=st.integers(1, 3))
def test_every_row_is_in_one_part_and_parts_come_in_order(rows: int, at_once: int, threads: int) -> None:
    told: list[tuple[int, int]] = []
    parts = Parts(threads, lambda _what, done, of: told.append((done, of)))
    found = list(parts.each("rows", rows, at_once, lambda part: list(range(rows))[part]))
    assert [row for part in found for row in part] == list(range(rows))
    assert all(len(part) <= at_once for part in found)
    assert told == [(done, len(found)) for done in range(1, len(found) + 1)]


def test_parts_are_worked_on_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=60)
    assert len(list(Parts(2).each("rows", 2, 1, lambda _part: both.wait()))) == 2


def test_torch_uses_one_thread_in_each_part() -> None:
    torch.set_num_threads(2)
    try:
        assert list(Parts(2).each("rows", 4, 1, lambda _part: torch.get_num_threads())) == [1] * 4
    finally:
        torch.set_num_threads(1)


def test_a_failing_part_ends_the_work() -> None:
    begun: list[int] = []

    def work(part: slice) -> None:
        begun.append(part.start)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        list(Parts(1).each("rows", 1000, 1, work))
    assert all(second == first + 1 for first, second in pairwise(begun))


def test_torch_has_its_threads_back() -> None:
    torch.set_num_threads(2)
    try:
        with one_thread_each():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
