"""Named graphs: hand-worked shapes, laws that all of them keep, the same draw everywhere, refusals."""

import gc
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import p2p_tally
from p2p_tally.topologies import NAMES, Topology, TopologyError, build

RANDOM = ["gossip", "small-world", "erdos-renyi", "gossip-k:3", "matchings"]
ANY_COUNT = ["mesh", "ring", "star", "line", "barbell", "exponential", *RANDOM]
POWERS = ["hypercube", "one-peer-exponential"]
counts = st.integers(min_value=1, max_value=40)
seeds = st.integers(min_value=0, max_value=2**63)
quick = settings(max_examples=40, deadline=None)


def names(count: int) -> list[str]:
    return [f"node-{rank}" for rank in range(count)]


def ranks(topology: Topology, round: int = 1) -> set[tuple[int, int]]:
    """The edges as pairs of ranks, the smaller first."""
    rank = {member: place for place, member in enumerate(topology.members)}
    pairs = ((rank[one], rank[other]) for one, other in topology.graph(round).edges())
    return {(min(pair), max(pair)) for pair in pairs}


# --- shapes, by hand ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count", "edges"),
    [
        ("mesh", 3, {(0, 1), (0, 2), (1, 2)}),
        ("ring", 2, {(0, 1)}),
        ("ring", 4, {(0, 1), (1, 2), (2, 3), (0, 3)}),
        ("line", 4, {(0, 1), (1, 2), (2, 3)}),
        ("star", 4, {(0, 1), (0, 2), (0, 3)}),
        ("barbell", 2, {(0, 1)}),
        ("barbell", 3, {(0, 1), (1, 2)}),
        ("barbell", 6, {(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (3, 5), (4, 5)}),
        ("barbell", 5, {(0, 1), (1, 2), (2, 3), (3, 4)}),
        ("barbell", 7, {(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (4, 6), (5, 6)}),
        ("torus", 4, {(0, 1), (0, 2), (1, 3), (2, 3)}),
        ("torus", 6, {(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (0, 3), (1, 4), (2, 5)}),
        ("hypercube", 4, {(0, 1), (0, 2), (1, 3), (2, 3)}),
        ("exponential", 2, {(0, 1)}),
        ("exponential", 6, {(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)}  # 1 hop
         | {(0, 2), (1, 3), (2, 4), (3, 5), (0, 4), (1, 5)}),  # 2 hops; 4 are 2 the other way
        ("gossip", 2, {(0, 1)}),
        ("small-world", 2, {(0, 1)}),
    ],
)  # fmt: skip
def test_edges_of_small_graphs(name: str, count: int, edges: set[tuple[int, int]]) -> None:
    assert ranks(build(name, names(count))) == edges


def test_torus_is_as_square_as_it_can_be() -> None:
    assert nx.is_isomorphic(build("torus", names(36)).graph(), nx.grid_2d_graph(6, 6, periodic=True))
    assert nx.is_isomorphic(build("torus", names(12)).graph(), nx.grid_2d_graph(3, 4, periodic=True))


def test_hypercube_is_networkx_hypercube() -> None:
    assert nx.is_isomorphic(build("hypercube", names(16)).graph(), nx.hypercube_graph(4))


@pytest.mark.parametrize("name", [*ANY_COUNT, *POWERS, "torus"])
def test_a_single_member_has_no_edges(name: str) -> None:
    topology = build(name, ["only"])
    assert topology.neighbours("only", 7) == ()
    assert topology.weights("only", 7) == {"only": 1.0}
    assert list(topology.graph(7)) == ["only"]
    assert not topology.varies


@pytest.mark.parametrize(
    ("count", "degree"), [(2, 1), (3, 2), (4, 2), (5, 4), (6, 3), (7, 4), (8, 3), (9, 4), (16, 4), (17, 6)]
)
def test_gossip_has_log_degree_made_even_where_it_must(count: int, degree: int) -> None:
    assert set(build("gossip", names(count)).degrees()) == {degree}


@pytest.mark.parametrize(("count", "degree"), [(30, 2), (8, 5), (8, 6), (8, 7), (9, 8), (20, 10), (60, 29)])
def test_gossip_of_a_given_degree(count: int, degree: int) -> None:
    topology = build("gossip", names(count), degree=degree)
    assert set(topology.degrees()) == {degree}
    assert nx.is_connected(topology.graph())
    assert topology.is_complete() == (degree == count - 1)


def test_gossip_of_a_thousand_is_fast() -> None:
    start = time.process_time()
    topology = build("gossip", names(1000))
    for member in topology.members:
        topology.weights(member, 9)
    assert time.process_time() - start < 2
    assert set(topology.degrees()) == {10}


@pytest.mark.parametrize("name", ["mesh", "line", "star", "gossip", "matchings"])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_links_are_the_edges_from_both_ends_in_order(name: str, count: int) -> None:
    topology = build(name, names(count))
    for round in (1, 2):
        edges = ranks(topology, round)
        both = sorted(edges | {(other, one) for one, other in edges})
        assert list(zip(*(ends.tolist() for ends in topology.links(round)), strict=True)) == both


# --- laws --------------------------------------------------------------------------------------------------


def check_laws(topology: Topology, members: Sequence[str], round: int) -> None:
    graph = topology.graph(round)
    assert list(graph) == list(topology.members) == list(members)
    assert nx.number_of_selfloops(graph) == 0
    place = {member: rank for rank, member in enumerate(members)}
    degrees = topology.degrees(round)
    for member, degree in zip(members, degrees, strict=True):
        neighbours = topology.neighbours(member, round)
        assert sorted(neighbours, key=place.__getitem__) == list(neighbours)
        assert set(neighbours) == set(graph[member])
        assert len(neighbours) == degree
        weights = topology.weights(member, round)
        assert list(weights) == sorted([member, *neighbours], key=place.__getitem__)
        assert sum(weights.values()) == pytest.approx(1.0, abs=1e-12)
        assert min(weights.values()) > 0
        for other in neighbours:
            assert topology.weights(other, round)[member] == weights[other]
    assert topology.is_complete(round) == (graph.number_of_edges() == len(members) * (len(members) - 1) // 2)
    if not topology.varies:
        assert nx.is_connected(graph)
    if topology.period is not None:
        assert nx.is_connected(topology.union())
    assert set(map(frozenset, graph.edges())) <= set(map(frozenset, topology.union().edges()))


@quick
@given(st.sampled_from(ANY_COUNT), counts, seeds, st.integers(min_value=1, max_value=50))
def test_laws_for_any_number_of_members(name: str, count: int, seed: int, round: int) -> None:
    check_laws(build(name, names(count), seed=seed), names(count), round)


@quick
@given(st.sampled_from(POWERS), st.integers(min_value=0, max_value=5), st.integers(min_value=1, max_value=50))
def test_laws_for_powers_of_two(name: str, exponent: int, round: int) -> None:
    check_laws(build(name, names(2**exponent)), names(2**exponent), round)


@quick
@given(st.integers(min_value=2, max_value=6), st.integers(min_value=2, max_value=6))
def test_laws_for_tori(rows: int, columns: int) -> None:
    check_laws(build("torus", names(rows * columns)), names(rows * columns), 1)


@quick
@given(st.integers(min_value=3, max_value=40), st.data(), seeds)
def test_gossip_is_regular_and_connected(count: int, data: st.DataObject, seed: int) -> None:
    degree = data.draw(st.sampled_from([d for d in range(2, count) if count * d % 2 == 0]))
    topology = build("gossip-k:2", names(count), degree=degree, seed=seed)
    for round in (1, 4):
        assert set(topology.degrees(round)) == {degree}
        assert nx.is_connected(topology.graph(round))


@given(counts)
@quick
def test_mesh_weighs_everyone_exactly_one_nth(count: int) -> None:
    topology = build("mesh", names(count))
    assert all(set(topology.weights(member).values()) == {1 / count} for member in topology.members)
    assert topology.is_complete()


@given(st.permutations(["b", "a", "node-10", "node-9", "z"]))
@quick
def test_rank_order_is_the_order_given(members: list[str]) -> None:
    topology = build("star", members)
    assert topology.neighbours(members[0]) == tuple(members[1:])
    assert list(topology.weights(members[0])) == members


# --- the same draw everywhere ------------------------------------------------------------------------------


@quick
@given(st.sampled_from(RANDOM), counts, seeds)
def test_same_seed_same_graphs_in_any_order_of_asking(name: str, count: int, seed: int) -> None:
    one, other = build(name, names(count), seed=seed), build(name, names(count), seed=seed)
    rounds = [1, 2, 5, 40, 3]
    asked = {round: ranks(one, round) for round in rounds}
    assert {round: ranks(other, round) for round in reversed(rounds)} == asked


@pytest.mark.parametrize("name", RANDOM)
def test_another_seed_is_another_graph(name: str) -> None:
    assert len({frozenset(ranks(build(name, names(30), seed=seed))) for seed in range(5)}) == 5


def test_draws_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "import hashlib\nfrom p2p_tally import topologies\n"
        f"for name in {RANDOM!r}:\n"
        "    graph = topologies.build(name, [f'n{i}' for i in range(40)], seed=5).graph(4)\n"
        "    print(name, hashlib.sha256(repr(list(graph.edges())).encode()).hexdigest())\n"
    )
    root = str(Path(p2p_tally.__path__[0]).parent)
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": salt, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    }
    assert len(outputs) == 1


def test_draws_stay_what_they_were() -> None:
    # A change here changes every run with that seed: think twice, and say so in the changelog.
    gossip = [(0, 1), (0, 2), (0, 5), (1, 3), (1, 5), (2, 3), (2, 4), (3, 4), (4, 5)]
    assert sorted(ranks(build("gossip", names(6), seed=1))) == gossip
    assert sorted(ranks(build("matchings", names(6), seed=1), 2)) == [(0, 3), (1, 2), (4, 5)]


# --- graphs that vary --------------------------------------------------------------------------------------


def test_gossip_k_holds_a_graph_for_k_rounds() -> None:
    topology = build("gossip-k:3", names(20), seed=2)
    drawn = [ranks(topology, round) for round in range(1, 10)]
    assert drawn[0] == drawn[1] == drawn[2] == ranks(build("gossip", names(20), seed=2))
    assert drawn[3] == drawn[4] == drawn[5] != drawn[0]
    assert drawn[6] not in (drawn[0], drawn[3])
    assert (topology.varies, topology.period, topology.hold) == (True, None, 3)


def test_one_peer_exponential_pairs_by_one_bit_a_round() -> None:
    topology = build("one-peer-exponential", names(8))
    assert ranks(topology, 1) == {(0, 1), (2, 3), (4, 5), (6, 7)}
    assert ranks(topology, 2) == {(0, 2), (1, 3), (4, 6), (5, 7)}
    assert ranks(topology, 3) == {(0, 4), (1, 5), (2, 6), (3, 7)}
    assert ranks(topology, 4) == ranks(topology, 1)
    assert topology.weights("node-5", 2) == {"node-5": 0.5, "node-7": 0.5}
    assert (topology.varies, topology.period) == (True, 3)
    assert nx.utils.graphs_equal(topology.union(), build("hypercube", names(8)).graph())


@pytest.mark.parametrize(("count", "pairs", "idle"), [(8, 4, 0), (9, 4, 1), (2, 1, 0)])
def test_matchings_pair_all_but_the_odd_one(count: int, pairs: int, idle: int) -> None:
    topology = build("matchings", names(count), seed=3)
    for round in range(1, 30):
        assert topology.graph(round).number_of_edges() == pairs
        assert topology.degrees(round).count(0) == idle
    assert topology.union().number_of_edges() == count * (count - 1) // 2
    assert nx.is_connected(topology.union(rounds=200))


def test_union_over_some_rounds() -> None:
    topology = build("one-peer-exponential", names(8))
    assert topology.union(rounds=1).number_of_edges() == 4
    assert topology.union(rounds=2).number_of_edges() == 8
    assert topology.union(rounds=99).number_of_edges() == 12
    assert build("ring", names(5)).union(rounds=3).number_of_edges() == 5


# --- lookups -----------------------------------------------------------------------------------------------


def test_graphs_are_shared_frozen_and_not_hoarded() -> None:
    topology = build("matchings", names(10))
    assert topology.graph(5) is topology.graph(5)
    fifth = weakref.ref(topology.graph(5))
    with pytest.raises(nx.NetworkXError):
        topology.graph(5).add_edge("node-0", "stranger")
    for round in range(1, 500):
        topology.neighbours("node-3", round)
    gc.collect()
    assert fifth() is None


def test_weights_are_the_callers_to_change() -> None:
    topology = build("ring", names(4))
    topology.weights("node-0")["node-0"] = 9.0
    assert topology.weights("node-0")["node-0"] == 1 / 3


def test_repr_is_short() -> None:
    assert repr(build("ring", names(500))) == "Topology('ring', 500 members)"


# --- refusals: one line that says what is wrong and what is accepted ---------------------------------------


@pytest.mark.parametrize(
    ("name", "count", "degree", "says"),
    [
        ("rnig", 4, None, ["'rnig'", "mesh", "gossip-k:K", "file:PATH"]),
        ("", 4, None, ["''", "accepted"]),
        ("mesh:3", 4, None, ["'mesh:3'", "accepted"]),
        ("gossip-k", 4, None, ["'gossip-k'", "gossip-k:K"]),
        ("gossip-k:", 4, None, ["gossip-k:K"]),
        ("gossip-k:0", 4, None, ["gossip-k:0", "whole number from 1"]),
        ("gossip-k:²", 4, None, ["whole number from 1"]),
        ("gossip-k:" + "9" * 5000, 4, None, ["whole number from 1"]),
        ("gossip-k:x", 1, None, ["gossip-k:x", "whole number from 1"]),
        ("mesh", 0, None, ["at least one member"]),
        ("torus", 7, None, ["torus of 7", "6 or 8"]),
        ("torus", 2, None, ["torus of 2", "4 or 6"]),
        ("hypercube", 12, None, ["hypercube of 12", "power of two", "8 or 16"]),
        ("one-peer-exponential", 6, None, ["one-peer-exponential of 6", "power of two", "4 or 8"]),
        ("gossip", 8, 8, ["gossip of 8", "degree 8", "2, 3, 4, 5, 6, 7"]),
        ("gossip", 9, 3, ["degree 3", "2, 4, 6, 8"]),
        ("gossip", 8, 1, ["degree 1", "2, 3, 4"]),
        ("gossip", 8, 0, ["degree 0", "1 or more"]),
        ("gossip", 2, 2, ["degree 2", "accepted: 1"]),
        ("gossip", 1, 2, ["degree 2", "0 neighbours"]),
        ("gossip", 1000, 1000, ["degree 1000", "2, 3, 4, ..., 999"]),
        ("gossip-k:2", 8, 9, ["gossip-k:2 of 8", "degree 9"]),
        ("small-world", 8, 3, ["degree 3", "2, 4, 6"]),
        ("small-world", 8, 8, ["degree 8", "2, 4, 6"]),
        ("small-world", 2, 2, ["degree 2", "accepted: 1"]),
        ("ring", 8, 3, ["ring of 8", "degree 3", "2 neighbours", "leave it out"]),
        ("star", 8, 3, ["star of 8", "1 to 7 neighbours"]),
        ("mesh", 8, -1, ["degree -1", "1 or more"]),
    ],
)  # fmt: skip
def test_refusals(name: str, count: int, degree: int | None, says: list[str]) -> None:
    with pytest.raises(TopologyError) as refusal:
        build(name, names(count), degree=degree)
    assert "\n" not in str(refusal.value)
    for words in says:
        assert words in str(refusal.value)


def test_a_degree_that_is_so_anyway_is_accepted() -> None:
    assert build("ring", names(8), degree=2).degrees() == (2,) * 8
    assert build("mesh", names(8), degree=7).is_complete()
    assert build("hypercube", names(8), degree=3).degrees() == (3,) * 8


def test_members_must_differ() -> None:
    with pytest.raises(TopologyError, match="'a' is given twice"):
        build("ring", ["a", "b", "a"])


def test_strangers_and_rounds_before_the_first() -> None:
    topology = build("ring", names(4))
    with pytest.raises(TopologyError, match="'stranger' is not one of the 4 members"):
        topology.weights("stranger")
    with pytest.raises(TopologyError, match="rounds start at 1"):
        topology.graph(0)
    with pytest.raises(TopologyError, match="rounds start at 1"):
        topology.union(rounds=0)


def test_every_name_has_a_summary() -> None:
    assert {"mesh", "file:PATH", "gossip-k:K"} <= set(NAMES)
    assert all(NAMES.values())
