"""The wait before the first round: for whom, how long, and that a wait for a peer that was there always ends."""

from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.ids import NodeName
from p2p_tally.protocol.start_wait import FIRST_REMINDER_SECONDS, LATE_SECONDS, REMINDER_SECONDS, StartWait

A, B = NodeName("a"), NodeName("b")
GIVEN = {A: 10.0}


def test_nobody_missing_is_no_wait() -> None:
    assert not StartWait(0.0).goes_on(0.0, [], GIVEN, late=False)


def test_a_peer_that_was_never_there_is_waited_for_without_limit() -> None:
    wait = StartWait(0.0)
    for now in (0.0, 11.0, 1e9):
        assert wait.goes_on(now, [A], {B: 10.0}, late=False)
    assert not wait.given_up


def test_a_peer_that_was_there_and_has_gone_gets_a_deadline() -> None:
    wait = StartWait(0.0)
    assert wait.goes_on(5.0, [A], GIVEN, late=False)
    assert wait.next_check == FIRST_REMINDER_SECONDS
    assert wait.reminder_is_due(5.0) and not wait.reminder_is_due(5.0)
    assert wait.next_check == 15.0  # before the next reminder
    assert wait.goes_on(14.9, [A], GIVEN, late=False)
    assert not wait.goes_on(15.0, [A], GIVEN, late=False)
    assert wait.given_up == {A}
    assert wait.next_check == 5.0 + REMINDER_SECONDS


def test_one_that_comes_back_has_its_whole_deadline_again() -> None:
    wait = StartWait(0.0)
    assert wait.goes_on(0.0, [A, B], GIVEN, late=False)
    assert wait.goes_on(9.0, [B], GIVEN, late=False)
    assert wait.goes_on(10.0, [A, B], GIVEN, late=False)
    assert wait.goes_on(19.0, [A], GIVEN, late=False)
    assert not wait.goes_on(20.0, [A], GIVEN, late=False)


def test_a_node_that_joins_a_running_federation_waits_a_moment_for_the_rest() -> None:
    wait = StartWait(0.0)
    assert wait.goes_on(3.0, [A], {}, late=False)
    assert wait.goes_on(4.0, [A], {}, late=True)
    assert wait.reminder_is_due(4.0)
    assert wait.next_check == 4.0 + LATE_SECONDS
    assert not wait.goes_on(4.0 + LATE_SECONDS, [A], {}, late=True)
    assert not wait.given_up  # it may be on its way: it is not known to be gone


@given(st.lists(st.tuples(st.floats(0, 5), st.sets(st.sampled_from([A, B]))), max_size=30), st.floats(0.1, 20))
def test_checking_when_told_to_ends_every_wait_for_peers_that_were_there(
    checks: list[tuple[float, set[NodeName]]], timeout: float
) -> None:
    wait, now, given = StartWait(0.0), 0.0, {A: timeout, B: timeout / 2}
    for step, missing in checks:  # whatever went before
        now += step
        wait.goes_on(now, missing, given, late=False)
    last = now
    while wait.goes_on(now, [A, B], given, late=False):
        wait.reminder_is_due(now)
        assert wait.next_check > now
        now = wait.next_check
    assert now <= last + timeout


def test_one_running_peer_ends_no_wait_once_more_peers_are_there_that_wait() -> None:
    """Its link was the first to come up."""
    wait = StartWait(0.0)
    assert wait.goes_on(0.0, [A, B], {}, late=True)
    assert wait.goes_on(0.5, [A], {}, late=False)
    assert wait.goes_on(60.0, [A], {}, late=False)
    assert wait.goes_on(61.0, [A], {}, late=True)
    assert not wait.goes_on(62.0, [A], {}, late=True)
