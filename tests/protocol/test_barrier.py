"""The barrier: order never matters, every arrival has its verdict, and a peer cannot make it grow."""

import pickle
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.ids import NodeName
from p2p_tally.protocol.barrier import (
    HELD_AHEAD,
    IN_TIME,
    RUNS_HELD_AHEAD,
    Arrival,
    Barrier,
    Place,
    has_passed,
)
from p2p_tally.protocol.messages import Stage

# In the order of names, which is not that of texts.
PEERS = [NodeName(name) for name in ("node-1", "node-2", "node-9", "node-10", "node-11")]
ONE, TWO, NINE, *_ = PEERS


def vote(barrier: Barrier, peer: NodeName, round: int, item: str = "item") -> Arrival:
    return barrier.arrive(peer, Stage.VOTE, (round, 0), item, item.encode())


def held(barrier: Barrier) -> int:
    """What it keeps for later: of the room that each peer has at each stage, what is not free."""
    everything = [(peer, stage) for peer in PEERS for stage in Stage]
    empty, tried, far = Barrier(PEERS), deepcopy(barrier), 10**6
    taken = 0
    for peer, stage in everything:
        for part in range(RUNS_HELD_AHEAD):
            room, left = (one.arrive(peer, stage, (far, part), "x") for one in (empty, tried))
            taken += (room is Arrival.EARLY) - (left is Arrival.EARLY)
    return taken


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[int, list[list[tuple[NodeName, int]]]]:
    """What arrives while each round is open, 0 being before the first: every vote at least once by the end of its
    round, up to two rounds early, in any order, with copies then or later."""
    rounds = draw(st.integers(1, 6))
    slots: list[list[tuple[NodeName, int]]] = [[] for _ in range(rounds + 1)]
    for peer in PEERS:
        for round in range(1, rounds + 1):
            first = draw(st.integers(max(0, round - HELD_AHEAD), round))
            slots[first].append((peer, round))
            for copy in draw(st.lists(st.integers(first, rounds), max_size=2)):
                slots[copy].append((peer, round))
    return rounds, [draw(st.permutations(slot)) for slot in slots]


@given(deliveries())
@settings(max_examples=100)
def test_order_never_matters(drawn: tuple[int, list[list[tuple[NodeName, int]]]]) -> None:
    rounds, slots = drawn
    barrier = Barrier(PEERS)
    first = set()
    for slot in range(rounds + 1):
        if slot:
            barrier.open(Stage.VOTE, (slot, 0), PEERS)
        for peer, round in slots[slot]:
            verdict = vote(barrier, peer, round, f"{peer} in {round}")
            if (peer, round) not in first:
                assert verdict is (Arrival.RECORDED if round == slot else Arrival.EARLY)
                first.add((peer, round))
            else:
                assert verdict is (Arrival.DUPLICATE if round >= slot else Arrival.LATE)
        if slot:
            assert barrier.complete and not barrier.missing
            closed = barrier.close()
            assert list(closed.items()) == [(peer, f"{peer} in {slot}") for peer in PEERS]
    assert held(barrier) == 0


@given(st.permutations(PEERS), st.integers(0, len(PEERS)))
def test_what_came_is_in_order_of_name(order: list[NodeName], came: int) -> None:
    barrier = Barrier(PEERS)
    barrier.open(Stage.VOTE, (1, 0), PEERS)
    for peer in order[:came]:
        vote(barrier, peer, 1)
    assert barrier.missing == [peer for peer in PEERS if peer not in order[:came]]
    assert barrier.complete is (came == len(PEERS))
    assert list(barrier.close()) == [peer for peer in PEERS if peer in order[:came]]


# Round 5 is open for all but node-9; node-1 has voted; node-2 has sent ballots for 6 and 7.
@pytest.mark.parametrize(
    ("peer", "stage", "place", "raw", "verdict"),
    [
        ("node-2", Stage.VOTE, (5, 0), b"a", Arrival.RECORDED),
        ("node-1", Stage.VOTE, (5, 0), b"a", Arrival.DUPLICATE),
        ("node-1", Stage.VOTE, (5, 0), b"b", Arrival.EQUIVOCATION),
        ("node-2", Stage.VOTE, (6, 0), b"a", Arrival.DUPLICATE),
        ("node-2", Stage.VOTE, (6, 0), b"b", Arrival.EQUIVOCATION),
        ("node-1", Stage.VOTE, (6, 0), b"a", Arrival.EARLY),
        ("node-1", Stage.VOTE, (900, 0), b"a", Arrival.EARLY),
        ("node-2", Stage.VOTE, (8, 0), b"a", Arrival.TOO_FAR),
        ("node-1", Stage.VOTE, (4, 0), b"a", Arrival.LATE),
        ("node-1", Stage.VOTE, (1, 0), b"a", Arrival.LATE),
        ("node-1", Stage.ANNOUNCE, (5, 0), b"a", Arrival.EARLY),
        ("node-1", Stage.SCATTER, (5, 0), b"a", Arrival.EARLY),
        ("node-1", Stage.SCATTER, (5, 3), b"a", Arrival.EARLY),
        ("node-1", Stage.SCATTER, (4, 9), b"a", Arrival.LATE),  # of a merge that is over
        ("node-9", Stage.VOTE, (5, 0), b"a", Arrival.STRANGER),  # no neighbour in this round
        ("node-9", Stage.VOTE, (6, 0), b"a", Arrival.EARLY),  # it may be one in the next
        ("node-9", Stage.VOTE, (4, 0), b"a", Arrival.LATE),
        ("mallory", Stage.VOTE, (5, 0), b"a", Arrival.STRANGER),
        ("mallory", Stage.VOTE, (6, 0), b"a", Arrival.STRANGER),
        ("mallory", Stage.VOTE, (1, 0), b"a", Arrival.STRANGER),
    ],
)
def test_verdicts(peer: str, stage: Stage, place: Place, raw: bytes, verdict: Arrival) -> None:
    barrier = Barrier(PEERS)
    accepted = [known for known in PEERS if known != NINE]
    barrier.open(Stage.VOTE, (4, 0), accepted)
    barrier.close()
    barrier.open(Stage.VOTE, (5, 0), accepted)
    barrier.arrive(ONE, Stage.VOTE, (5, 0), "first", b"a")
    barrier.arrive(TWO, Stage.VOTE, (6, 0), "first", b"a")
    barrier.arrive(TWO, Stage.VOTE, (7, 0), "first", b"a")
    assert barrier.arrive(NodeName(peer), stage, place, "second", raw) is verdict
    # Whatever came second, what stood first stands.
    came = barrier.close()
    assert came.pop(ONE) == "first"
    assert came == ({TWO: "second"} if verdict is Arrival.RECORDED else {})
    barrier.open(Stage.VOTE, (6, 0), PEERS)
    assert barrier.close()[TWO] == "first"


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ONE, TWO, NINE, NodeName("mallory")]),
            st.sampled_from([Stage.VOTE, Stage.ANNOUNCE, Stage.GATHER]),
            st.tuples(st.integers(1, 8), st.integers(0, 2)),
        ),
        max_size=40,
    )
)
@settings(max_examples=100)
def test_what_is_wanted_is_what_would_be_taken(messages: list[tuple[NodeName, Stage, Place]]) -> None:
    """Before any round, in one, and between two."""
    barrier = Barrier(PEERS)
    for number, (peer, stage, place) in enumerate(messages):
        if number == 10:
            barrier.open(Stage.VOTE, (3, 0), [ONE, TWO])
        if number == 20:
            barrier.close()
        if number == 25:
            barrier.open(Stage.GATHER, (5, 1), [ONE, NINE])
        wanted = barrier.wants(peer, stage, place)
        assert wanted == (barrier.arrive(peer, stage, place, "x") in IN_TIME)


@pytest.mark.parametrize(
    ("theirs", "ours", "passed"),
    [
        ((Stage.VOTE, 5), (Stage.VOTE, 4), True),
        ((Stage.VOTE, 4), (Stage.VOTE, 4), True),  # it waits too: its own vote has gone out
        ((Stage.VOTE, 3), (Stage.VOTE, 4), False),
        ((Stage.ANNOUNCE, 4), (Stage.VOTE, 4), True),
        ((Stage.VOTE, 4), (Stage.ANNOUNCE, 4), False),
        ((Stage.ANNOUNCE, 4), (Stage.ANNOUNCE, 4), True),
        ((Stage.SCATTER, 4), (Stage.ANNOUNCE, 4), True),
        ((Stage.ANNOUNCE, 4), (Stage.SCATTER, 4), False),
        ((Stage.VECTOR, 4), (Stage.VECTOR, 4), False),  # several runs are in flight: others may still come
        ((Stage.GATHER, 4), (Stage.SCATTER, 4), False),
        ((Stage.SCATTER, 4), (Stage.GATHER, 4), False),
        ((Stage.VOTE, 5), (Stage.GATHER, 4), True),
        ((Stage.GATHER, 3), (Stage.VOTE, 4), False),
    ],
)
def test_who_has_sent_all_that_it_will_send(theirs: tuple[Stage, int], ours: tuple[Stage, int], passed: bool) -> None:
    assert has_passed(theirs, ours) is passed


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (1, 1, Arrival.EQUIVOCATION),
        (1, 2, Arrival.AGAIN),
        (0, 2, Arrival.EQUIVOCATION),  # not known over which link: it was passed on
        (0, 0, Arrival.EQUIVOCATION),
    ],
)
def test_something_else_over_another_link_is_no_contradiction(first: int, second: int, verdict: Arrival) -> None:
    peer = NodeName("a")
    barrier = Barrier([peer])
    barrier.arrive(peer, Stage.VOTE, (1, 0), 1, b"1", first)
    assert barrier.arrive(peer, Stage.VOTE, (1, 0), 2, b"2", second) is verdict
    assert barrier.arrive(peer, Stage.VOTE, (1, 0), 1, b"1", second) is Arrival.DUPLICATE


def test_the_verdicts_are_names_of_counters() -> None:
    assert [verdict.value for verdict in Arrival] == [
        "recorded", "early", "late", "duplicate", "equivocation", "again", "stranger", "too-far-ahead",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "most"),
    [
        (Stage.VOTE, HELD_AHEAD),
        (Stage.ANNOUNCE, HELD_AHEAD),
        (Stage.VECTOR, RUNS_HELD_AHEAD),
        (Stage.SCATTER, RUNS_HELD_AHEAD),
        (Stage.GATHER, RUNS_HELD_AHEAD),
    ],
)
@pytest.mark.parametrize("parts", [False, True], ids=["rounds", "runs"])
def test_a_flood_is_held_up_to_the_bound(stage: Stage, most: int, parts: bool) -> None:
    barrier = Barrier(PEERS)
    places = [(1, part) if parts else (1 + part, 0) for part in range(1, 1001)]
    verdicts = [barrier.arrive(ONE, stage, place, "x") for place in places]
    assert verdicts == [Arrival.EARLY] * most + [Arrival.TOO_FAR] * (1000 - most)
    assert held(barrier) == most
    # It has used up its own room, nobody else's.
    assert barrier.arrive(TWO, stage, places[-1], "x") is Arrival.EARLY
    # And the room is free again once a place is past.
    barrier.open(stage, places[0], PEERS)
    barrier.close()
    assert barrier.arrive(ONE, stage, places[-1], "x") is Arrival.EARLY


def test_what_is_held_is_bounded_for_each_stage_apart() -> None:
    barrier = Barrier(PEERS)
    for stage in Stage:
        for part in range(100):
            barrier.arrive(ONE, stage, (1, part), "x")
    assert held(barrier) <= len(Stage) * RUNS_HELD_AHEAD


def test_peers_no_longer_awaited_still_count() -> None:
    barrier = Barrier(PEERS)
    barrier.open(Stage.VOTE, (1, 0), [ONE, TWO, NINE])
    assert not barrier.complete
    vote(barrier, ONE, 1)
    barrier.stop_awaiting(ONE)  # it has voted: the vote counts
    barrier.stop_awaiting(TWO)
    assert barrier.missing == [NINE]
    assert vote(barrier, TWO, 1) is Arrival.RECORDED  # it was on the way
    barrier.stop_awaiting(NINE)
    assert barrier.complete and barrier.missing == []
    barrier.stop_awaiting(NodeName("mallory"))
    assert list(barrier.close()) == [ONE, TWO]


def test_a_peer_no_longer_awaited_is_awaited_again_next_time() -> None:
    barrier = Barrier(PEERS)
    barrier.open(Stage.VOTE, (1, 0), [ONE])
    barrier.stop_awaiting(ONE)
    barrier.close()
    barrier.open(Stage.VOTE, (2, 0), [ONE])
    assert barrier.missing == [ONE]


def test_accepted_and_awaited() -> None:
    barrier = Barrier(PEERS)
    vote(barrier, NINE, 1, "early, but not accepted")
    barrier.open(Stage.VOTE, (1, 0), accepted=[ONE, TWO], awaited=[ONE])
    assert barrier.missing == [ONE]
    assert vote(barrier, TWO, 1) is Arrival.RECORDED  # accepted, though nobody waits for it
    assert not barrier.complete
    assert vote(barrier, NINE, 1) is Arrival.STRANGER
    vote(barrier, ONE, 1)
    assert barrier.complete
    assert list(barrier.close()) == [ONE, TWO]


def test_nobody_awaited_is_complete_at_once() -> None:
    barrier = Barrier(PEERS)
    assert not barrier.complete  # nothing is open
    assert not barrier.is_open(list(Stage), 1)
    barrier.open(Stage.VOTE, (1, 0), PEERS, awaited=[])
    assert barrier.complete
    assert barrier.is_open([Stage.VOTE], 1)
    assert barrier.close() == {}
    assert not barrier.complete and not barrier.is_open(list(Stage), 1)


def test_the_place_is_the_stage_and_the_round() -> None:
    barrier = Barrier(PEERS)
    assert barrier.place is None and barrier.round == 0
    barrier.open(Stage.SCATTER, (4, 2), PEERS)
    assert barrier.place == (Stage.SCATTER, 4) and barrier.round == 4
    assert barrier.is_open([Stage.VOTE, Stage.SCATTER], 4)
    assert not barrier.is_open([Stage.SCATTER], 2) and not barrier.is_open([Stage.VOTE], 4)
    barrier.close()
    assert barrier.place is None and barrier.round == 4


def test_what_came_early_completes_at_once() -> None:
    barrier = Barrier(PEERS)
    for peer in PEERS:
        vote(barrier, peer, 1, peer)
    barrier.open(Stage.VOTE, (1, 0), PEERS)
    assert barrier.complete
    assert barrier.close() == {peer: peer for peer in PEERS}


def test_a_closed_stage_is_late() -> None:
    barrier = Barrier(PEERS)
    barrier.open(Stage.VOTE, (1, 0), PEERS)
    barrier.close()
    assert vote(barrier, ONE, 1) is Arrival.LATE


def test_one_stage_at_a_time() -> None:
    barrier = Barrier(PEERS)
    barrier.open(Stage.VOTE, (1, 0), PEERS)
    with pytest.raises(AssertionError):
        barrier.open(Stage.ANNOUNCE, (1, 0), PEERS)


def test_rounds_that_were_skipped_are_dropped() -> None:
    barrier = Barrier(PEERS)
    vote(barrier, ONE, 3)
    vote(barrier, ONE, 7)
    barrier.open(Stage.VOTE, (5, 0), PEERS)  # this node came back in round 5
    assert held(barrier) == 1
    barrier.close()
    barrier.open(Stage.VOTE, (7, 0), PEERS)
    assert list(barrier.close()) == [ONE]
    assert held(barrier) == 0


def test_what_is_left_of_a_broken_merge_takes_no_room_in_the_next() -> None:
    """Runs of a merge that this node gave up would else fill the room that the next merge needs."""
    barrier = Barrier(PEERS)
    barrier.open(Stage.SCATTER, (8, 0), PEERS)
    barrier.close()  # given up here; the peers were ahead, and some runs are still on their way
    for part in range(RUNS_HELD_AHEAD):
        assert barrier.arrive(ONE, Stage.GATHER, (8, part), "old") is Arrival.EARLY
    barrier.open(Stage.VOTE, (9, 0), PEERS)
    assert held(barrier) == 0
    assert barrier.arrive(ONE, Stage.GATHER, (8, RUNS_HELD_AHEAD), "old") is Arrival.LATE
    barrier.close()
    verdicts = [barrier.arrive(ONE, Stage.GATHER, (16, part), "new") for part in range(RUNS_HELD_AHEAD)]
    assert verdicts == [Arrival.EARLY] * RUNS_HELD_AHEAD
    barrier.open(Stage.GATHER, (16, 0), PEERS)
    assert barrier.close() == {ONE: "new"}


def test_many_rounds_leave_nothing_behind() -> None:
    """Peers come and go, speak ahead, of rounds that are never played and of merges that break."""
    barrier = Barrier(PEERS)
    sizes: list[int] = []
    for round in range(1, 2001):
        for peer in PEERS:
            vote(barrier, peer, round + 1)
            vote(barrier, peer, round + 2 + round % 3)
        for part in range(6):
            barrier.arrive(ONE, Stage.SCATTER, (round, part), "x")
        if round % 2:
            barrier.open(Stage.VOTE, (round, 0), PEERS)
            barrier.close()
            barrier.open(Stage.SCATTER, (round, 0), PEERS)
            barrier.close()
        if round % 100 == 0:
            assert held(barrier) <= len(PEERS) * HELD_AHEAD + RUNS_HELD_AHEAD
            sizes.append(len(pickle.dumps(barrier)))
    assert max(sizes) < 1.1 * sizes[2]  # from round 300 on all numbers take two bytes
