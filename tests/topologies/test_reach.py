"""Who is within reach, how far, and along which tree: against networkx, and by the laws that trees keep."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.topologies import Topology, build
from p2p_tally.topologies.reach import Reach


def names(count: int) -> list[str]:
    return [f"n{rank}" for rank in range(count)]


graphs = st.sampled_from(["ring", "line", "star", "torus", "gossip", "barbell", "mesh", "erdos-renyi", "matchings"])


@given(graphs, st.sampled_from([4, 6, 9, 16]), st.integers(1, 9), st.integers(0, 3))
def test_everyone_within_reach_hears_each_origin_once_by_a_shortest_way(
    name: str, count: int, hops: int, seed: int
) -> None:
    topology = build(name, names(count), seed=seed)
    reach = topology.reach(1, hops)
    graph = nx.relabel_nodes(topology.graph(), {member: rank for rank, member in enumerate(topology.members)})
    ways = dict(nx.all_pairs_shortest_path_length(graph, cutoff=hops))
    for rank in range(count):
        assert reach.of(rank) == {origin: ways[rank][origin] for origin in sorted(ways[rank]) if origin != rank}
        for origin, children in reach.children(rank).items():
            for child in children:
                nearer = [peer for peer in graph[child] if ways[origin].get(peer) == ways[origin][child] - 1]
                assert rank == min(nearer)
    assert sum(len(children) for rank in range(count) for children in reach.children(rank).values()) == len(
        reach.member
    )
    assert all(reach.distance_between(origin, rank) == ways[rank].get(origin) for origin in ways for rank in ways)


@pytest.mark.parametrize("name", ["torus", "line"])  # on a line the ends are as far apart as members can be
def test_all_hops_are_the_diameter(name: str) -> None:
    topology = build(name, names(20))
    everyone = topology.reach(1, "all")
    assert everyone.everyone and everyone.furthest == nx.diameter(topology.graph())
    assert not topology.reach(1, everyone.furthest - 1).everyone
    assert everyone.sizes.tolist() == [19] * 20


def test_origins_in_several_portions_are_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    near = [[1], [0, 2], [1, 3], [2, 4], [3]]
    whole = Reach(near, 3)
    monkeypatch.setattr("p2p_tally.topologies.reach.TREES_AT_ONCE", 2)
    for field in ("origin", "member", "distance", "parent"):
        assert np.array_equal(getattr(Reach(near, 3), field), getattr(whole, field))


@pytest.mark.parametrize("name", ["ring", "star", "barbell", "gossip"])
@pytest.mark.parametrize("hops", [1, 2, 3, 10**9, "all"])
def test_mixed_weights_are_a_row_of_the_matrix_to_that_power(name: str, hops: int | str) -> None:
    topology: Topology = build(name, names(8))
    matrix = np.zeros((8, 8))
    for rank, member in enumerate(topology.members):
        for peer, weight in topology.weights(member).items():
            matrix[rank, topology.rank(peer)] = weight
    furthest = topology.reach(1, "all").furthest
    power = np.linalg.matrix_power(matrix, furthest if hops == "all" else min(int(hops), furthest))
    for rank, member in enumerate(topology.members):
        row = topology.mixed_weights(member, 1, hops)  # type: ignore[arg-type]
        assert list(row) == [peer for peer in topology.members if peer in row]
        assert np.allclose([row.get(peer, 0.0) for peer in topology.members], power[rank])
        assert sum(row.values()) == pytest.approx(1)
        if hops != 1:
            assert set(row) == {member, *(topology.members[peer] for peer in topology.reach(1, hops).of(rank))}  # type: ignore[arg-type]
