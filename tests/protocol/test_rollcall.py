"""Whom to wait for at the start: tables, and that no wait for one who was there is without end."""

from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.ids import NodeName
from p2p_tally.protocol.rollcall import FIRST_REMINDER_SECONDS, LATE_SECONDS, REMINDER_SECONDS, RollCall

A, B = NodeName("a"), NodeName("b")
GIVEN = {A: 10.0}


def test_nobody_missing_is_no_wait() -> None:
    assert not RollCall(0.0).goes_on(0.0, [], GIVEN, late=False)


def test_who_was_never_there_is_waited_for_without_end() -> None:
    call = RollCall(0.0)
    for now in (0.0, 11.0, 1e9):
        assert call.goes_on(now, [A], {B: 10.0}, late=False)
    assert not call.given_up


def test_who_was_there_and_is_gone_is_given_a_deadline() -> None:
    call = RollCall(0.0)
    assert call.goes_on(5.0, [A], GIVEN, late=False)
    assert call.next_look == FIRST_REMINDER_SECONDS
    assert call.is_time_to_say(5.0) and not call.is_time_to_say(5.0)
    assert call.next_look == 15.0  # before the next reminder
    assert call.goes_on(14.9, [A], GIVEN, late=False)
    assert not call.goes_on(15.0, [A], GIVEN, late=False)
    assert call.given_up == {A}
    assert call.next_look == 5.0 + REMINDER_SECONDS


def test_one_that_comes_back_has_its_whole_deadline_again() -> None:
    call = RollCall(0.0)
    assert call.goes_on(0.0, [A, B], GIVEN, late=False)
    assert call.goes_on(9.0, [B], GIVEN, late=False)
    assert call.goes_on(10.0, [A, B], GIVEN, late=False)
    assert call.goes_on(19.0, [A], GIVEN, late=False)
    assert not call.goes_on(20.0, [A], GIVEN, late=False)


def test_who_comes_to_others_at_play_gives_the_rest_a_moment() -> None:
    call = RollCall(0.0)
    assert call.goes_on(3.0, [A], {}, late=False)
    assert call.goes_on(4.0, [A], {}, late=True)
    assert call.is_time_to_say(4.0)
    assert call.next_look == 4.0 + LATE_SECONDS
    assert not call.goes_on(4.0 + LATE_SECONDS, [A], {}, late=True)
    assert not call.given_up  # it may be on its way: it is not known to be gone


@given(st.lists(st.tuples(st.floats(0, 5), st.sets(st.sampled_from([A, B]))), max_size=30), st.floats(0.1, 20))
def test_looking_when_told_to_ends_every_wait_for_those_who_were_there(
    looks: list[tuple[float, set[NodeName]]], patience: float
) -> None:
    call, now, given = RollCall(0.0), 0.0, {A: patience, B: patience / 2}
    for step, missing in looks:  # whatever went before
        now += step
        call.goes_on(now, missing, given, late=False)
    last = now
    while call.goes_on(now, [A, B], given, late=False):
        call.is_time_to_say(now)
        assert call.next_look > now
        now = call.next_look
    assert now <= last + patience


def test_one_that_says_it_plays_hurries_nobody_once_more_are_there_that_wait() -> None:
    """Its link was the first to come up."""
    call = RollCall(0.0)
    assert call.goes_on(0.0, [A, B], {}, late=True)
    assert call.goes_on(0.5, [A], {}, late=False)
    assert call.goes_on(60.0, [A], {}, late=False)
    assert call.goes_on(61.0, [A], {}, late=True)
    assert not call.goes_on(62.0, [A], {}, late=True)
