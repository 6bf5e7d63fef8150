"""What is known of a peer: the table of its states, and whom an exchange waits for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.ids import NodeName
from p2p_tally.protocol.messages import Stage
from p2p_tally.protocol.peers import Event, Peer, Presence, Roster
from p2p_tally.protocol.scores import BEST, Offence

A, B, C = (NodeName(name) for name in "abc")

# As drawn: a column for each state, a row for each event.
TABLE = """
                awaited   silent    left
link up         awaited   awaited   awaited
link up early   silent    silent    silent
link down       silent    silent    left
spoke           awaited   awaited   awaited
missed          silent    silent    left
bye             left      left      left
"""


def cells() -> list[tuple[Event, Presence, Presence]]:
    header, *rows = (line for line in TABLE.splitlines() if line.strip())
    states = [Presence(name) for name in header.split()]
    return [
        (Event(row[:16].strip()), state, Presence(after))
        for row in rows
        for state, after in zip(states, row[16:].split(), strict=True)
    ]


def test_the_table_is_whole() -> None:
    assert {(event, state) for event, state, _ in cells()} == {(event, state) for event in Event for state in Presence}


@pytest.mark.parametrize(("event", "state", "after"), cells())
def test_what_an_event_makes_of_a_state(event: Event, state: Presence, after: Presence) -> None:
    peer = Peer(state)
    peer.on(event)
    assert peer.presence is after


@given(st.lists(st.sampled_from(Event)))
def test_only_a_goodbye_makes_one_that_has_left(events: list[Event]) -> None:
    peer = Peer()
    for event in events:
        peer.on(event)
    since = max((place for place, event in enumerate(events) if event is Event.BYE), default=None)
    back = {Event.LINK_UP, Event.LINK_UP_EARLY, Event.SPOKE}
    assert (peer.presence is Presence.LEFT) == (since is not None and back.isdisjoint(events[since:]))


def test_whoever_has_just_been_heard_of_is_awaited() -> None:
    assert all(Peer().is_awaited(stage, 1) for stage in Stage)


@pytest.mark.parametrize("stage", Stage)
def test_nobody_is_awaited_before_the_round_that_it_joins_in(stage: Stage) -> None:
    peer = Peer()
    peer.plays_after(3)
    assert [peer.is_awaited(stage, round) for round in (1, 3, 4, 9)] == [False, False, True, True]
    assert peer.playing


def test_one_that_is_there_again_after_a_missed_deadline() -> None:
    peer = Peer()
    peer.let_deadline_pass()
    assert not peer.is_there and not peer.is_awaited(Stage.VOTE, 1) and peer.missed == 1
    peer.plays_after(0)
    assert peer.is_there and peer.is_awaited(Stage.VOTE, 1) and peer.missed == 1


@pytest.mark.parametrize(
    ("stage", "round", "awaited"),
    [
        (Stage.VECTOR, 4, False),
        (Stage.SCATTER, 4, False),
        (Stage.GATHER, 4, False),
        (Stage.ANNOUNCE, 4, True),  # it has said nothing of whether it takes part
        (Stage.VOTE, 4, True),
        (Stage.SCATTER, 5, True),
        (Stage.SCATTER, 3, True),
    ],
)
def test_a_merge_given_up_is_that_merge_alone(stage: Stage, round: int, awaited: bool) -> None:
    peer = Peer()
    peer.withdrew(4)
    assert peer.is_awaited(stage, round) is awaited


@pytest.mark.parametrize("end", [[Event.LINK_DOWN, Event.SPOKE], [Event.LINK_UP], [Event.LINK_UP_EARLY, Event.SPOKE]])
def test_a_merge_given_up_is_forgotten_with_the_link(end: list[Event]) -> None:
    """Somebody who came in a peer's name for a moment must not keep it out of later merges."""
    peer = Peer()
    peer.withdrew(80)
    for event in end:
        peer.on(event)
    assert peer.is_awaited(Stage.SCATTER, 80)


@pytest.mark.parametrize("end", [Event.LINK_DOWN, Event.LINK_UP, Event.LINK_UP_EARLY])
def test_what_was_learned_over_a_link_ends_with_it(end: Event) -> None:
    peer = Peer()
    peer.plays_after(300)
    peer.show_round(301)
    peer.withdrew(301)
    peer.let_deadline_pass()
    peer.on(end)
    assert (peer.playing, peer.joined, peer.seen, peer.shown, peer.withdrawn) == (False, 0, 0, 0, 0)
    assert peer.missed == 1  # this node's own count


def test_words_are_seen_and_only_what_it_sends_is_shown() -> None:
    peer = Peer()
    assert peer.note_round(7) and (peer.seen, peer.shown) == (7, 0)
    assert not peer.show_round(6) and (peer.seen, peer.shown) == (7, 6)
    assert peer.show_round(8) and (peer.seen, peer.shown) == (8, 8)


@pytest.mark.parametrize(("stage", "awaited"), [(Stage.ANNOUNCE, False), (Stage.VOTE, True), (Stage.SCATTER, True)])
def test_one_that_has_sent_something_of_a_later_round_announces_nothing(stage: Stage, awaited: bool) -> None:
    peer = Peer()
    assert peer.note_round(7)
    assert not peer.note_round(6) and peer.seen == 7
    assert peer.is_awaited(stage, 6) is awaited
    assert peer.is_awaited(Stage.ANNOUNCE, 7)


def test_a_relayed_vote_that_is_missed_is_counted_and_leaves_the_link_alone() -> None:
    peer = Peer()
    peer.count_missed()
    peer.count_missed()
    assert peer.missed == 2 and peer.is_there


def test_a_goodbye_after_the_last_round_stays_one() -> None:
    peer = Peer()
    peer.said_goodbye(finished=True)
    peer.said_goodbye(finished=False)
    assert peer.finished


def test_a_relayed_vote_is_no_matter_of_the_link() -> None:
    peer = Peer()
    peer.on(Event.LINK_DOWN)
    assert peer.relayed_vote_is_awaited(1)
    peer.vote_did_not_come()
    peer.on(Event.LINK_UP)
    assert not peer.relayed_vote_is_awaited(1)
    peer.vote_came()
    assert peer.relayed_vote_is_awaited(1)
    peer.joins_after(5)
    assert [peer.relayed_vote_is_awaited(round) for round in (5, 6)] == [False, True]


def test_who_is_missed() -> None:
    roster = Roster([A, B, C])
    assert (roster.silent, roster.missing, roster.left, roster.playing) == (set(), set(), set(), set())
    roster[A].let_deadline_pass()
    roster[B].said_goodbye(finished=True)
    roster[C].said_goodbye(finished=False)
    assert roster.silent == {A, B, C}
    assert roster.left == {B, C}
    assert roster.missing == {A, C}  # one that has played all rounds is missed by nobody
    assert roster.missed == {A: 1}


def test_changes_are_counted_where_something_changed() -> None:
    roster = Roster([A, B])
    roster[A].on(Event.SPOKE)
    roster[A].message_came()
    assert roster.changes == 0
    roster[A].on(Event.LINK_DOWN)
    roster[A].on(Event.LINK_DOWN)
    roster[B].said_goodbye(finished=True)
    assert roster.changes == 2


def test_one_that_has_cost_too_much_is_not_there_whatever_it_says() -> None:
    roster = Roster([A])
    peer = roster[A]
    assert not peer.kept_waiting(9.0) and peer.is_there
    assert peer.kept_waiting(0.5) and not peer.is_there  # at this moment
    assert not peer.kept_waiting(0.0)
    for event in (Event.LINK_UP, Event.SPOKE):
        peer.on(event)
        assert not peer.is_there and not peer.relayed_vote_is_awaited(1)
    roster.pass_time(20.0, 10.0)  # half a deadline is regained
    assert peer.is_there and peer.relayed_vote_is_awaited(1)


def test_one_that_is_only_slow_is_there_again_as_soon_as_time_has_passed() -> None:
    roster = Roster([A, B])
    roster[A].charge(Offence.SLOW, BEST)
    assert roster[A].presence is Presence.AWAITED and roster.silent == {A} and roster.changes == 1
    roster.pass_time(80.0, 10.0)  # two peers: an eighth of the time each
    assert not roster.silent and roster.changes == 2


def test_a_paused_node_waits_for_anybody_but_who_has_left() -> None:
    peer = Peer()
    peer.kept_waiting(20.0)
    peer.wait_once()
    assert peer.is_there
    peer.said_goodbye(finished=False)
    peer.wait_once()
    assert not peer.is_there


def test_links_are_counted() -> None:
    peer = Peer()
    for event in (Event.LINK_UP, Event.LINK_DOWN, Event.LINK_UP_EARLY, Event.SPOKE):
        peer.on(event)
    assert peer.links == 2
