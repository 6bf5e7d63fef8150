"""Ballots of examples that peers made, and of answers for them, as bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import BallotError
from p2p_tally.protocol.ballots import BallotFormat

FORMAT = BallotFormat("anchors", 2, 3, features=4)
EXAMPLES = np.array([[0, 1, -2, 0.5, 9], [2, 0, 0, 1e4, -1e4]], np.float32)
ANSWERS = np.array([[3 + 77, 0.5, 0.25, 0.25], [3 + 77, 0, 1, 0]], np.float32)


def test_examples_and_answers_are_read_as_they_were_written() -> None:
    """Two examples of four values and a label; then one name and two rows of three classes."""
    first, later = FORMAT.encode(EXAMPLES), FORMAT.encode(ANSWERS)
    assert (len(first), len(later)) == (FORMAT.first, FORMAT.later) == (4 * 2 * 5, 4 * (1 + 2 * 3))
    assert FORMAT.largest == 40
    np.testing.assert_array_equal(FORMAT.decode(first), EXAMPLES)
    np.testing.assert_array_equal(FORMAT.decode(later), ANSWERS)
    assert FORMAT.as_decoded(ANSWERS) is ANSWERS


def test_other_ballots_have_one_length() -> None:
    soft = BallotFormat("soft", 4, 3)
    assert soft.first == soft.later == soft.largest


def changed(table: np.ndarray, place: tuple[int, int], value: float) -> bytes:
    other = table.copy()
    other[place] = value
    return FORMAT.encode(other)


@pytest.mark.parametrize(
    ("ballot", "said"),
    [
        (bytes(41), "41 bytes are neither examples nor answers"),
        (changed(EXAMPLES, (1, 0), 0.5), "a label that is no class"),
        (changed(EXAMPLES, (0, 0), -1), "a label that is no class"),
        (changed(EXAMPLES, (1, 0), 3), "a label that is no class"),
        (changed(EXAMPLES, (1, 2), 1.1e4), "an input out of bounds"),
        (changed(EXAMPLES, (1, 2), np.nan), "values that are not finite"),
        (np.array([5, *EXAMPLES.ravel()[1:]], "<f4").tobytes(), "40 bytes instead of 28"),
        (np.array([1, *ANSWERS[:, 1:].ravel()], "<f4").tobytes(), "28 bytes instead of 40"),
        (changed(ANSWERS, (0, 0), 80.5), "a name that examples cannot have"),
        (changed(ANSWERS, (0, 0), 2.0**25), "a name that examples cannot have"),
        (changed(ANSWERS, (0, 1), 0.6), "rows that are no probabilities"),
        (changed(ANSWERS, (0, 1), -0.5), "rows that are no probabilities"),
    ],
)
def test_what_breaks_a_rule_is_refused(ballot: bytes, said: str) -> None:
    with pytest.raises(BallotError, match=said):
        FORMAT.decode(ballot)


@given(st.one_of(st.binary(min_size=28, max_size=28), st.binary(min_size=40, max_size=40)))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        table = FORMAT.decode(data)
    except BallotError:
        return
    assert isinstance(table, np.ndarray) and FORMAT.encode(table) == data
