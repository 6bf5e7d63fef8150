import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.coded_lengths import coded_lengths
from p2p_tally.protocol.coding import encode_coded


@given(st.data(), st.integers(1, 12), st.integers(1, 24), st.integers(0, 2**32 - 1))
def test_they_are_the_lengths_of_the_ballots(data: st.DataObject, classes: int, probes: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    labels = draw.integers(-1, classes, probes) if data.draw(st.booleans()) else None
    votes = draw.integers(0, classes, (20, probes))
    if labels is not None:  # from nearly all right to nearly all wrong
        right = (draw.random(votes.shape) < draw.random((20, 1))) & (labels >= 0)
        votes = np.where(right, labels, votes)
    wanted = [len(encode_coded(row, classes, labels)) for row in votes]
    assert coded_lengths(votes, classes, labels).tolist() == wanted


def test_many_probes_are_written_one_by_one() -> None:
    draw = np.random.default_rng(0)
    votes, labels = draw.integers(0, 10, (3, 300)), draw.integers(0, 10, 300)
    wanted = [len(encode_coded(row, 10, labels)) for row in votes]
    assert BallotFormat("coded", 300, 10).lengths(votes, labels).tolist() == wanted


def test_other_forms_have_one_length() -> None:
    votes = np.array([[0, 9], [1, 2]])
    assert BallotFormat("byte", 2, 10).lengths(votes, None).tolist() == [2, 2]
    abstaining = BallotFormat("coded", 2, 10, abstains=True)
    kept_back = np.array([[10, 10], [1, 2]])
    assert abstaining.lengths(kept_back, None).tolist() == [len(abstaining.encode(row)) for row in kept_back]
