"""The score of a peer: the table of costs, what follows, and that honest peers keep a good standing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import BallotError, FrameError, HandshakeError, ParameterError, PeerError, TrustError
from p2p_tally.protocol.scores import (
    BEST,
    COSTS,
    HALF_LIFE,
    REGAINED,
    STANDINGS,
    USELESS_A_SECOND,
    USELESS_AT_ONCE,
    WORST,
    Offence,
    Score,
    Standing,
    offence_of,
)

BREACHES = [offence for offence, cost in COSTS.items() if cost.breach]
WAITS = [offence for offence, cost in COSTS.items() if not cost.breach]


def test_every_offence_has_its_cost_and_every_standing_its_place() -> None:
    assert set(COSTS) == set(Offence)
    assert [standing for _, standing in STANDINGS] == list(reversed(Standing))[:-1]
    bounds = [bound for bound, _ in STANDINGS]
    assert bounds == sorted(bounds) and bounds[0] > WORST and bounds[-1] < BEST


@pytest.mark.parametrize(
    ("value", "standing", "awaited", "merged", "closed"),
    [
        (BEST, Standing.GOOD, True, True, False),
        (5.0, Standing.GOOD, True, True, False),
        (4.9, Standing.IMPATIENT, True, True, False),
        (1.0, Standing.IMPATIENT, True, True, False),
        (0.9, Standing.NOT_AWAITED, False, True, False),
        (-10.0, Standing.NOT_AWAITED, False, True, False),
        (-10.1, Standing.NOT_MERGED, False, False, False),
        (-50.0, Standing.NOT_MERGED, False, False, False),
        (-50.1, Standing.CLOSED, False, False, True),
        (WORST, Standing.CLOSED, False, False, True),
    ],
)
def test_what_follows_from_a_score(value: float, standing: Standing, awaited: bool, merged: bool, closed: bool) -> None:
    score = Score(breaches=BEST - value)
    assert score.value == pytest.approx(value)
    assert (score.standing, score.awaited, score.merged, score.closed) == (standing, awaited, merged, closed)
    assert score.deadlines == pytest.approx(max(0.0, value))


@pytest.mark.parametrize(
    ("offence", "times_until", "standing"),
    [
        (Offence.BALLOT, 2, Standing.NOT_AWAITED),
        (Offence.BALLOT, 13, Standing.CLOSED),
        (Offence.PARAMETERS, 1, Standing.IMPATIENT),
        (Offence.PARAMETERS, 2, Standing.NOT_AWAITED),
        (Offence.PARAMETERS, 3, Standing.NOT_MERGED),
        (Offence.FRAME, 7, Standing.CLOSED),
        (Offence.CONTRADICTION, 1, Standing.NOT_AWAITED),
        (Offence.CONTRADICTION, 2, Standing.NOT_MERGED),
        (Offence.CONTRADICTION, 4, Standing.CLOSED),
        (Offence.PROVEN, 1, Standing.CLOSED),
        (Offence.FLOOD, 1201, Standing.CLOSED),
    ],
)
def test_how_many_offences_have_which_consequence(offence: Offence, times_until: int, standing: Standing) -> None:
    score = Score()
    for _ in range(times_until - 1):
        score.charge(offence)
    assert score.standing is not standing
    score.charge(offence)
    assert score.standing is standing
    assert score.reasons == [f"{offence}, {times_until} times"]


@pytest.mark.parametrize(
    ("error", "offence"),
    [
        (FrameError("x", reason="garbage"), Offence.FRAME),
        (BallotError("x", reason="length"), Offence.BALLOT),
        (ParameterError("x", reason="shape"), Offence.PARAMETERS),
        (PeerError("x", reason="false-mean"), Offence.MERGE),
        (PeerError("x", reason="out-of-bounds"), Offence.PARAMETERS),
        (TrustError("x", reason="signature"), Offence.FRAME),
        (PeerError("x", reason="members"), None),  # its list, or this node's, is older
        (PeerError("x", reason="origin"), None),  # the same
        (TrustError("x", reason="order"), None),
        (HandshakeError("x"), None),
    ],
)
def test_what_a_refusal_costs(error: PeerError, offence: Offence | None) -> None:
    assert offence_of(error) is offence


def test_half_of_the_breaches_is_forgotten_in_ten_minutes() -> None:
    score = Score()
    score.charge(Offence.PROVEN)
    assert score.value == WORST
    seconds = 0.0
    while score.closed:
        score.pass_time(10.0, 10.0)
        seconds += 10.0
    assert 0.5 * HALF_LIFE < seconds < 1.5 * HALF_LIFE
    for _ in range(1000):
        score.pass_time(10.0, 10.0)
    assert score.standing is Standing.GOOD and score.reasons == []


def honest_events() -> st.SearchStrategy[list[tuple[str, float]]]:
    """What an honest peer may do to this node: it is slow, hangs, dies and comes back, has gone on without this node,
    has another members' list for a moment; and time passes."""
    waits = st.tuples(st.sampled_from(["waited", "slow", "time"]), st.floats(0, 100))
    words = st.tuples(st.sampled_from(["restarted", "other members", "rounds ahead"]), st.just(0.0))
    return st.lists(waits | words, max_size=200)


@given(honest_events())
def test_nothing_that_honest_peers_do_has_a_consequence_beyond_patience(events: list[tuple[str, float]]) -> None:
    score = Score()
    for event, amount in events:
        match event:
            case "waited":
                score.charge(Offence.WAITED, amount)
            case "slow":
                score.charge(Offence.SLOW, amount)
            case "time":
                score.pass_time(amount, 10.0, 7)
            case "other members":
                assert offence_of(PeerError("x", reason="members")) is None
            case "rounds ahead":  # a second of rounds that this node cannot use, as fast as rounds are ever played
                for _ in range(int(USELESS_A_SECOND)):
                    assert score.bears_useless()
                score.pass_time(1.0, 10.0, 7)
        assert score.merged and not score.closed and 0 <= score.value <= BEST
    score.pass_time(1000.0, 10.0, 7)  # and it is never dropped for good
    assert score.awaited


@given(st.lists(st.tuples(st.sampled_from(WAITS), st.floats(0, 3), st.floats(0, 50)), max_size=100))
def test_what_a_peer_can_cost_in_time(waits: list[tuple[Offence, float, float]]) -> None:
    """It keeps this node waiting as long as it is awaited, in any way, for any time in between."""
    score, cost, passed = Score(), 0.0, 0.0
    for offence, deadlines, seconds in waits:
        if score.awaited:
            spent = min(deadlines, score.deadlines)
            score.charge(offence, spent)
            cost += spent
        score.pass_time(seconds, 10.0)
        passed += seconds
    assert cost <= BEST + REGAINED * passed / 10.0 + 1e-6


@given(st.lists(st.tuples(st.sampled_from(list(Offence)), st.floats(0, 1e6)), max_size=100))
def test_a_score_stays_within_its_bounds(events: list[tuple[Offence, float]]) -> None:
    score = Score()
    for offence, amount in events:
        score.charge(offence, amount)
        assert WORST <= score.value <= BEST
        score.pass_time(amount, 1.0)
        assert WORST <= score.value <= BEST


def test_what_is_of_no_use_is_borne_in_measure() -> None:
    score = Score()
    assert all(score.bears_useless() for _ in range(int(USELESS_AT_ONCE)))
    assert not score.bears_useless()
    score.pass_time(1.0, 10.0)
    assert all(score.bears_useless() for _ in range(int(USELESS_A_SECOND) - 1))


def test_where_names_are_not_proven_breaches_end_with_a_link_and_lost_time_does_not() -> None:
    score = Score()
    score.charge(Offence.FRAME, 3)
    score.charge(Offence.WAITED, 4)
    score.forget_breaches()
    assert score.value == 6.0


def test_a_node_that_needs_anybody_waits_once_more() -> None:
    score = Score()
    score.charge(Offence.WAITED, 20)
    assert not score.awaited
    score.wait_once()
    assert score.value == 1.0 and score.awaited
