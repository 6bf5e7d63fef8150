"""Tables of means by class as bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from p2p_tally.errors import BallotError
from p2p_tally.protocol.ballots import BallotFormat

FORMAT = BallotFormat("soft-by-class", 3, 3)
TABLE = np.array([[2, 0.5, 0.25, 0.25], [0, 0, 0, 0], [1, 0, 0, 1]], np.float32)


def test_a_table_is_read_as_it_was_written() -> None:
    written = FORMAT.encode(TABLE)
    assert len(written) == FORMAT.largest == 4 * 3 * (1 + 3)
    np.testing.assert_array_equal(FORMAT.decode(written), TABLE)
    assert FORMAT.as_decoded(TABLE) is TABLE


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ((0, 0), 1.5, "a count that is no number of examples"),
        ((0, 0), -1, "a count that is no number of examples"),
        ((0, 0), 2.0**25, "a count that is no number of examples"),
        ((0, 1), np.nan, "values that are not finite"),
        ((1, 2), 0.5, "a mean of no examples"),
        ((0, 1), 0.7, "rows that are no probabilities"),
        ((2, 1), -1, "rows that are no probabilities"),
    ],
)
def test_what_is_no_table_is_refused(place: tuple[int, int], value: float, said: str) -> None:
    table = TABLE.copy()
    table[place] = value
    with pytest.raises(BallotError, match=said):
        FORMAT.decode(FORMAT.encode(table))


@given(st.binary(max_size=60) | arrays(np.float32, 12, elements=st.floats(width=32)).map(lambda one: one.tobytes()))
def test_any_bytes_are_a_table_or_refused(data: bytes) -> None:
    try:
        table = FORMAT.decode(data)
    except BallotError:
        return
    assert isinstance(table, np.ndarray) and table.shape == (3, 4) and np.isfinite(table).all()


def test_features_may_have_any_sign_and_are_bounded() -> None:
    ballots = BallotFormat("features-by-class", 3, 3, features=5)
    table = np.array([[2, -3, 4, 0, 1e4, -1e4], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]], np.float32)
    assert len(ballots.encode(table)) == ballots.largest == 4 * 3 * (1 + 5)
    np.testing.assert_array_equal(ballots.decode(ballots.encode(table)), table)
    table[2, 3] = 1.1e4
    with pytest.raises(BallotError, match="a feature out of bounds"):
        ballots.decode(ballots.encode(table))
    table[2] = [0, 1, 1, 1, 1, 1]
    with pytest.raises(BallotError, match="a mean of no examples"):
        ballots.decode(ballots.encode(table))


def test_the_bytes_that_the_page_about_the_wire_shows() -> None:
    table = np.array([[2, 0.5, 0.5], [0, 0, 0]], np.float32)
    shown = "00 00 00 40 00 00 00 3f 00 00 00 3f 00 00 00 00 00 00 00 00 00 00 00 00"
    assert BallotFormat("soft-by-class", 2, 2).encode(table) == bytes.fromhex(shown)
