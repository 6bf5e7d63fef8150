"""Where a node begins, and when it goes to a later round: what one voice can do, what a majority can."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.protocol.frames import VERSION
from p2p_tally.protocol.majority import Basis, Behind, Voice, most_play, round_of_most, starting_point
from p2p_tally.protocol.messages import Hello


def waiting(*checkpoints: int) -> Hello:
    return Hello(VERSION, "b", 0, False, checkpoints, (), "", ())


def running(round: int, *checkpoints: int) -> Hello:
    return Hello(VERSION, "b", round, True, checkpoints or (0,), (), "", ())


@pytest.mark.parametrize(
    ("rounds", "neighbours", "reached"),
    [
        ([], 0, None),
        ([], 3, None),
        ([4], 1, None),  # one voice is no majority, not even of one
        ([4], 2, None),
        ([4, 6], 2, 4),
        ([4, 6], 3, 4),
        ([4, 6, 6], 3, 6),
        ([4, 6, 6], 4, 4),
        ([4, 6], 4, None),
        ([1, 2, 3, 4, 5], 5, 3),
        # one liar, of a round far ahead or long past
        ([5, 5, 999], 3, 5),
        ([5, 5, 0], 3, 5),
        ([5, 999], 2, 5),
        # three among nine, and the other six away
        ([400, 400, 400], 9, None),
    ],
)
def test_the_round_of_a_majority(rounds: list[int], neighbours: int, reached: int | None) -> None:
    assert round_of_most(rounds, neighbours) == reached
    assert round_of_most(rounds[::-1], neighbours) == reached


@given(st.lists(st.integers(0, 10**6), max_size=9), st.integers(0, 9))
def test_more_than_half_of_all_neighbours_have_reached_it_and_not_more(rounds: list[int], away: int) -> None:
    neighbours = len(rounds) + away
    reached = round_of_most(rounds, neighbours)
    if reached is None:
        assert neighbours < 2 or 2 * len(rounds) <= neighbours
    else:
        assert 2 * sum(round >= reached for round in rounds) > neighbours
        assert 2 * sum(round > reached for round in rounds) <= neighbours


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=9), st.integers(0, 2**32 - 1))
def test_one_liar_cannot_get_past_the_honest(honest: list[int], lie: int) -> None:
    reached = round_of_most([*honest, lie], len(honest) + 1)
    assert reached is not None and reached <= max(honest)


@pytest.mark.parametrize(
    ("hellos", "neighbours", "play"),
    [
        ([running(300)], 1, False),
        ([running(300)], 2, False),
        ([running(300), waiting(0)], 2, False),
        ([running(300), running(0)], 2, True),
        ([running(7), running(7)], 3, True),
        ([running(7), running(7), waiting(0), waiting(0)], 4, False),
    ],
)
def test_whether_a_federation_plays(hellos: list[Hello], neighbours: int, play: bool) -> None:
    assert most_play(hellos, neighbours) is play


@pytest.mark.parametrize(
    ("own", "hellos", "load", "round", "basis"),
    [
        # all fresh
        ([0], [waiting(0), waiting(0)], 0, 0, Basis.OWN),
        ([0], [], 0, 0, Basis.OWN),
        # all begin again: the newest that all kept
        ([0, 5, 10], [waiting(0, 5, 10), waiting(0, 5, 10)], 10, 10, Basis.COMMON),
        ([0, 5, 10], [waiting(0, 5, 10), waiting(0, 5)], 5, 5, Basis.COMMON),
        ([0, 5], [waiting(0, 5, 10), waiting(0, 5, 10)], 5, 5, Basis.COMMON),
        ([0, 5, 10], [waiting(0, 5)], 5, 5, Basis.COMMON),
        ([0, 5, 10], [], 10, 10, Basis.COMMON),  # it has no neighbours
        # one has none of them, and the others go on: it may have lost its disk, or lie
        ([0, 80, 81], [waiting(0, 80, 81), waiting(0, 80, 81), waiting(0)], 81, 81, Basis.MAJORITY),
        ([0, 10], [waiting(0, 10), waiting(0)], 10, 10, Basis.MAJORITY),
        ([0, 10], [waiting(0, 5), waiting(0, 10)], 10, 10, Basis.MAJORITY),
        ([0, 10], [waiting(0, 10), waiting()], 10, 10, Basis.MAJORITY),
        ([0], [waiting(0, 10), waiting(0, 10)], 0, 10, Basis.MAJORITY),
        ([0, 5, 12], [waiting(0, 10), waiting(0, 10)], 5, 10, Basis.MAJORITY),
        # no majority for any: what it has itself
        ([0, 10], [waiting(0)], 10, 10, Basis.OWN),
        ([0], [waiting(0, 10)], 0, 0, Basis.OWN),
        ([0, 10], [waiting(0, 5), waiting(0, 7)], 10, 10, Basis.OWN),
        # a majority plays: after the round that it is in
        ([0], [running(7), running(7)], 0, 8, Basis.PLAYED),
        ([0], [running(0), running(0)], 0, 1, Basis.PLAYED),
        ([0, 5, 6], [running(7), running(8), running(7)], 6, 8, Basis.PLAYED),
        ([0], [running(3), running(900), running(3)], 0, 4, Basis.PLAYED),
        ([0, 5], [waiting(0), running(20), running(20)], 5, 21, Basis.PLAYED),
        # this node is ahead of them by its own checkpoint
        ([0, 40], [running(7), running(7)], 40, 40, Basis.PLAYED),
        # who says that it plays, among as many that wait, is not believed
        ([0], [running(300)], 0, 0, Basis.OWN),
        ([0, 5], [running(7, 0, 5), waiting(0, 5)], 5, 5, Basis.COMMON),
        ([0, 5], [waiting(0, 5), waiting(0, 5), running(2**32 - 1)], 5, 5, Basis.MAJORITY),
        ([0], [running(30), *[waiting(0)] * 6], 0, 0, Basis.OWN),
    ],
)
def test_starting_points(own: list[int], hellos: list[Hello], load: int, round: int, basis: Basis) -> None:
    start = starting_point(own, hellos, len(hellos))
    assert (start.load, start.round, start.basis) == (load, round, basis)


@pytest.mark.parametrize(
    ("hellos", "round", "basis"),
    [
        ([running(300)], 10, Basis.OWN),
        ([running(300)] * 2, 10, Basis.OWN),
        ([running(300)] * 3, 301, Basis.PLAYED),
        ([waiting(0, 5)], 10, Basis.OWN),
        ([waiting(0, 5)] * 2, 5, Basis.COMMON),
        ([waiting(0, 5, 10)] * 2, 10, Basis.COMMON),
    ],
)
def test_neighbours_that_are_away_count(hellos: list[Hello], round: int, basis: Basis) -> None:
    """Of four neighbours these are there."""
    start = starting_point([0, 5, 10], hellos, 4)
    assert (start.round, start.basis) == (round, basis)


kept = st.sets(st.integers(1, 20), max_size=3).map(lambda rounds: (0, *sorted(rounds)))


@given(kept, st.lists(kept, max_size=5), st.integers(0, 5), st.booleans())
def test_who_begins_again_loads_what_it_has_and_no_minority_chooses_a_round(
    own: tuple[int, ...], others: list[tuple[int, ...]], away: int, liar: bool
) -> None:
    hellos = [waiting(*rounds) for rounds in others] + [running(10**6)] * liar
    neighbours = len(hellos) + away
    start = starting_point(own, hellos, neighbours)
    assert start.load in own and start.load <= start.round
    if start.round != max(own):
        holders = sum(start.round in rounds for rounds in (own, *others))
        assert 2 * holders > neighbours + 1 or neighbours < 1


@given(st.lists(kept, min_size=2, max_size=5).filter(lambda lists: len(lists) % 2 == 1))
def test_on_a_mesh_all_begin_in_the_same_round_if_a_majority_has_one(lists: list[tuple[int, ...]]) -> None:
    starts = [
        starting_point(own, [waiting(*rounds) for at, rounds in enumerate(lists) if at != rank], len(lists) - 1)
        for rank, own in enumerate(lists)
    ]
    if any(start.basis is not Basis.OWN for start in starts):
        assert len({start.round for start in starts}) == 1


# --- falling behind


def said(round: int, *, there: bool = True) -> Voice:
    return Voice(round, 0, there)


def shown(round: int, *, there: bool = True) -> Voice:
    return Voice(round, round, there)


AWAY = Voice(0, 0, is_there=False)


@pytest.mark.parametrize(
    ("voices", "theirs"),
    [
        ([said(30), said(31)], 30),
        ([said(30), said(31), said(3)], 30),
        ([said(30), said(31), AWAY], 30),
        ([said(30), said(3)], None),
        ([shown(30), said(3)], None),
        ([shown(30), AWAY, AWAY], None),
        ([shown(400)] * 3 + [AWAY] * 4, None),
        ([said(400)] * 4 + [AWAY] * 3, 400),
        ([], None),
    ],
)
def test_a_majority_of_all_neighbours_is_believed_at_once_and_no_other(voices: list[Voice], theirs: int | None) -> None:
    behind = Behind()
    assert [behind.later_round(round, voices) for round in (3, 4, 5)] == [theirs] * 3


@pytest.mark.parametrize(
    ("voices", "theirs"),
    [
        ([shown(30)], 30),
        ([shown(30), AWAY], 30),
        ([shown(30), shown(3, there=False)], 30),  # it hangs
        ([said(300)], None),  # words alone
        ([said(300), AWAY], None),
        ([Voice(300, 30, is_there=True)], 30),
        ([AWAY, AWAY], None),
    ],
)
def test_few_neighbours_are_believed_in_the_second_round_for_what_they_have_sent(
    voices: list[Voice], theirs: int | None
) -> None:
    behind = Behind()
    assert behind.later_round(3, voices) is None
    assert behind.later_round(3, voices) is None  # the same round again is no second
    assert behind.later_round(4, voices) == theirs


def test_whoever_is_in_step_in_between_begins_anew() -> None:
    behind = Behind()
    assert behind.later_round(3, [shown(9)]) is None
    assert behind.later_round(4, [shown(4)]) is None
    assert behind.later_round(5, [shown(9)]) is None
    assert behind.later_round(6, [shown(9)]) == 9
    assert behind.later_round(11, [shown(20)]) is None  # and once it has moved


def test_where_the_graph_changes_two_neighbours_must_show_it() -> None:
    """One neighbour a round: in the first round one, in the second another; who is away says nothing."""
    behind = Behind()
    assert behind.later_round(3, [shown(30)]) is None
    assert behind.later_round(4, [AWAY]) is None
    assert behind.later_round(5, [shown(32)]) == 32
