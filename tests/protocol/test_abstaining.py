"""Ballots with votes left out: every ballot comes back, none is longer than it may be, and nothing else is accepted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import BallotError
from p2p_tally.protocol.abstaining import SHORT, decode_abstaining, encode_abstaining, largest_abstaining
from p2p_tally.protocol.ballots import BallotFormat

FORMS = ["byte", "packed", "coded"]


@st.composite
def ballots(draw: st.DrawFn) -> tuple[np.ndarray, int, np.ndarray | None]:
    """Votes of 0 to C, C, and labels of which some may be unknown."""
    count, classes = draw(st.integers(1, 200)), draw(st.integers(2, 300))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    votes = random.integers(0, classes, count)
    labels = np.where(random.random(count) < draw(st.floats(0, 1)), votes, random.integers(-1, classes, count))
    votes[random.random(count) < draw(st.floats(0, 1))] = classes
    return votes, classes, draw(st.sampled_from([labels, None]))


@given(ballots(), st.sampled_from(FORMS))
def test_every_ballot_comes_back(ballot: tuple[np.ndarray, int, np.ndarray | None], form: str) -> None:
    votes, classes, labels = ballot
    format = BallotFormat(form, len(votes), classes, abstains=True)  # type: ignore[arg-type]
    encoded = format.encode(votes, labels)
    assert len(encoded) <= format.largest
    np.testing.assert_array_equal(format.decode(encoded, labels), votes)


@given(st.binary(max_size=60), st.integers(1, 130), st.integers(2, 300))
def test_any_bytes_are_votes_or_a_ballot_error(data: bytes, count: int, classes: int) -> None:
    try:
        votes = decode_abstaining(data, count, classes, None)
    except BallotError:
        return
    assert votes.shape == (count,) and votes.min() >= 0 and votes.max() <= classes


@pytest.mark.parametrize("form", FORMS)
def test_half_of_a_ballot_left_out_costs_no_byte_more(form: str) -> None:
    random = np.random.default_rng(0)
    for count, classes in ((16, 10), (16, 100), (32, 100), (64, 10), (2048, 2000)):
        votes = random.integers(0, classes, count)
        some = np.where(random.permutation(count) < count // 2, classes, votes)
        whole = BallotFormat(form, count, classes).encode(votes)  # type: ignore[arg-type]
        assert len(BallotFormat(form, count, classes, abstains=True).encode(some)) <= len(whole)  # type: ignore[arg-type]


def test_ballots_by_hand() -> None:
    votes = np.array([1, 10, 9])
    assert BallotFormat("byte", 3, 10, abstains=True).encode(votes).hex() == "010a09"
    assert BallotFormat("packed", 3, 10, abstains=True).encode(votes).hex() == "1a90"
    # Cast are the first and the third, 101; both are as labelled: the first of all ballots.
    assert encode_abstaining(votes, 10, np.array([1, 0, 9])).hex() == "a008"
    assert encode_abstaining(np.full(3, 10), 10, None).hex() == "00"


def test_a_symbol_more_may_cost_a_byte_more() -> None:
    assert BallotFormat("byte", 3, 256).largest == 3
    assert BallotFormat("byte", 3, 256, abstains=True).largest == 6


def test_many_votes_with_few_left_out_are_told_by_the_gaps() -> None:
    votes = np.zeros(4000, np.int64)
    votes[[7, 900]] = 10
    head = len(encode_abstaining(votes, 10, None)) - len(BallotFormat("coded", 3998, 10).encode(votes[votes < 10]))
    assert head < 20


@pytest.mark.parametrize(
    ("data", "count", "reason"),
    [
        (b"", 3, "ballot-length"),
        (b"\x01", 3, "ballot-padding"),  # a fourth to eighth vote
        (b"\x00\x08", 3, "ballot-length"),  # none cast, and yet votes
        (b"\xa0", 3, "ballot-length"),  # two cast, and no votes
        (b"\x02" + bytes(20), SHORT + 1, "ballot-code"),
        (b"", SHORT + 1, "ballot-code"),
        (b"\x00" + bytes(8), SHORT + 1, "ballot-length"),
    ],
)
def test_what_is_refused(data: bytes, count: int, reason: str) -> None:
    with pytest.raises(BallotError) as caught:
        decode_abstaining(data, count, 10, None)
    assert caught.value.reason == reason


@pytest.mark.parametrize("form", FORMS)
def test_a_vote_past_no_opinion_is_none(form: str) -> None:
    format = BallotFormat(form, 2, 10, abstains=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError if form != "byte" else BallotError):
        format.decode(format.encode(np.array([11, 0])))


def test_the_longest_ballot() -> None:
    assert largest_abstaining(16, 10) == 2 + 8 + 1
    assert largest_abstaining(SHORT + 1, 10) == 1 + 9 + 33 + 1
