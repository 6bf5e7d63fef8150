"""Class indices in whole bytes: as many as were asked for, the lowest first, and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.protocol.aligned import from_bytes, to_bytes


@given(st.sampled_from([1, 2, 3, 4]), st.data())
def test_indices_come_back(each: int, data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, 256**each - 1), max_size=30))
    written = to_bytes(np.array(indices, np.int64), each)
    assert written == b"".join(index.to_bytes(each, "little") for index in indices)
    read = from_bytes(written, each)
    assert np.issubdtype(read.dtype, np.unsignedinteger)
    assert read.tolist() == indices


@pytest.mark.parametrize("each", [1, 2, 3, 4])
def test_rows_are_written_one_after_the_other_however_they_lie_in_memory(each: int) -> None:
    rows = np.arange(12).reshape(3, 4)
    assert to_bytes(rows.T, each) == to_bytes(rows.T.ravel(), each)
    assert to_bytes(np.repeat(rows, 2, axis=1)[:, ::2], each) == to_bytes(rows.ravel(), each)
