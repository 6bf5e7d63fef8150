"""Members that change at given rounds: in each epoch the laws of a topology hold, and nobody absent is a neighbour."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.topologies import Epochs, Topology, TopologyError, build

NAMES = ["mesh", "ring", "star", "line", "exponential", "gossip", "gossip-k:3", "matchings"]
EVERYBODY = [f"node-{rank}" for rank in range(8)]
quick = settings(max_examples=40, deadline=None)

# For each epoch how many rounds it has, and who takes part.
groups = st.sets(st.sampled_from(EVERYBODY), min_size=1).map(sorted)
plans = st.lists(st.tuples(st.integers(1, 5), groups), min_size=1, max_size=5)


def epochs_of(name: str, plan: list[tuple[int, list[str]]], seed: int = 0) -> tuple[Epochs, list[Topology]]:
    """The topology, and the plain topology of each of its rounds."""
    parts, by_round = [], []
    for length, members in plan:
        plain = build(name, members, seed=seed)
        parts.append((len(by_round) + 1, plain))
        by_round += [plain] * length
    return Epochs(parts, EVERYBODY), by_round


@quick
@given(st.sampled_from(NAMES), plans, st.integers(0, 99))
def test_each_epoch_is_the_plain_topology_of_its_members(
    name: str, plan: list[tuple[int, list[str]]], seed: int
) -> None:
    topology, by_round = epochs_of(name, plan, seed)
    assert list(topology.members) == EVERYBODY
    for round, plain in enumerate(by_round, 1):
        there = set(topology.members_at(round))
        assert there == set(plain.members)
        assert topology.is_complete(round) == plain.is_complete(round)
        for member in EVERYBODY:
            assert topology.rank(member) == EVERYBODY.index(member)
            if member in there:
                assert topology.neighbours(member, round) == plain.neighbours(member, round)
                assert topology.weights(member, round) == plain.weights(member, round)
                assert topology.mixed_weights(member, round, 2) == pytest.approx(plain.mixed_weights(member, round, 2))
            else:
                assert topology.neighbours(member, round) == ()
                assert topology.weights(member, round) == {member: 1.0}
        rows, columns, values = topology.mixing(round)
        sums = np.bincount(rows, values, len(EVERYBODY))
        assert sums == pytest.approx(1.0)
        assert {frozenset((EVERYBODY[a], EVERYBODY[b])) for a, b in zip(rows, columns, strict=True) if a != b} == {
            frozenset(edge) for edge in plain.graph(round).edges
        }
        reach, plain_reach = topology.reach(round, 2), plain.reach(round, 2)
        assert reach.everyone == plain_reach.everyone
        for member in there:
            far = {EVERYBODY[rank]: hops for rank, hops in reach.of(topology.rank(member)).items()}
            assert far == {plain.members[rank]: hops for rank, hops in plain_reach.of(plain.rank(member)).items()}


@quick
@given(plans)
def test_who_comes_and_who_goes(plan: list[tuple[int, list[str]]]) -> None:
    topology, by_round = epochs_of("mesh", plan)
    there = [set(plain.members) for plain in by_round]
    for round in range(1, len(there) + 1):
        new = there[round - 1] - there[round - 2] if round > 1 else set()
        assert set(topology.newcomers(round)) == new
        for member in new:
            assert set(topology.donors(member, round)) == there[round - 1] & there[round - 2]
    for member in EVERYBODY:
        rounds = [round for round, members in enumerate(there, 1) if member in members]
        assert topology.last_round(member, len(there)) == max(rounds, default=0)
        for round in range(1, len(there) + 1):
            assert topology.last_round(member, round) == max((one for one in rounds if one <= round), default=0)
            later = [one for one in rounds if one >= round]
            assert topology.next_round(member, round) == (later[0] if later else None)
            entries = [one for one in later if one > 1 and one - 1 not in rounds]
            assert topology.next_entry(member, round) == (entries[0] if entries else None)


@quick
@given(plans)
def test_rounds_have_the_same_phase_only_with_the_same_graph(plan: list[tuple[int, list[str]]]) -> None:
    topology, by_round = epochs_of("gossip-k:3", plan)
    graphs: dict[int, frozenset[frozenset[str]]] = {}
    for round in range(1, len(by_round) + 1):
        edges = frozenset(map(frozenset, topology.graph(round).edges))
        assert graphs.setdefault(topology.phase(round), edges) == edges


def test_a_plain_topology_has_the_same_members_in_every_round() -> None:
    plain = build("ring", EVERYBODY)
    assert plain.members_at(1) == plain.members_at(99) == tuple(EVERYBODY)
    assert plain.newcomers(7) == ()
    assert (plain.next_round("node-0", 5), plain.last_round("node-0", 30)) == (5, 30)


def test_epochs_grow_while_rounds_are_played() -> None:
    """New members get ranks after the last: what was counted by rank stays true."""
    topology = Epochs([(1, build("mesh", ["b", "d"]))])
    assert topology.neighbours("b", 9) == ("d",)
    topology.extend(5, build("mesh", ["a", "b", "d"]))
    assert topology.members == ("b", "d", "a")
    assert set(topology.members_at(5)) == {"a", "b", "d"}
    assert topology.neighbours("b", 4) == ("d",)
    assert topology.neighbours("b", 9) == ("d", "a")
    assert topology.neighbours("a", 4) == ()
    assert topology.newcomers(5) == ("a",)
    assert math.fsum(topology.weights("a", 5).values()) == pytest.approx(1.0)


def test_a_later_change_takes_the_place_of_what_was_to_come() -> None:
    topology = Epochs([(1, build("mesh", ["a", "b"])), (9, build("mesh", ["a"]))])
    topology.extend(7, build("mesh", ["a", "b", "c"]))
    assert set(topology.members_at(9)) == {"a", "b", "c"}
    assert topology.last_round("b", 20) == 20


def test_a_ring_for_each_epoch() -> None:
    topology = Epochs([(1, build("ring", EVERYBODY)), (4, build("ring", EVERYBODY[:5])), (6, build("line", EVERYBODY))])
    assert topology.ring_at(3) == tuple(EVERYBODY)
    assert topology.ring_at(4) == tuple(EVERYBODY[:5])
    assert topology.ring_at(6) is None


def test_the_first_epoch_begins_with_round_1() -> None:
    with pytest.raises(TopologyError, match="round 1"):
        Epochs([(2, build("mesh", ["a"]))])
    with pytest.raises(TopologyError, match="start at 1"):
        Epochs([(1, build("mesh", ["a"]))]).extend(0, build("mesh", ["a", "b"]))
