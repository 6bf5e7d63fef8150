"""Rings through all members: found where named shapes have one, never false, and the same for everybody."""

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.topologies import build, cycles
from p2p_tally.topologies.cycles import ring_through_all


def names(count: int) -> list[str]:
    return [f"n{rank}" for rank in range(count)]


@pytest.mark.parametrize(
    ("name", "count", "degree"),
    [("ring", count, None) for count in (3, 4, 9)]
    + [("mesh", count, None) for count in (1, 2, 3, 8)]
    + [("torus", count, None) for count in (4, 6, 9, 15, 25, 35, 63, 64, 100)]
    + [("hypercube", count, None) for count in (2, 4, 8, 64)]
    + [("exponential", count, None) for count in (5, 12, 16)]
    + [("gossip", 16, 3), ("gossip", 64, 4), ("gossip", 11, 2), ("small-world", 20, None), ("erdos-renyi", 40, None)],
)
def test_the_named_graphs_have_one(name: str, count: int, degree: int | None) -> None:
    topology = build(name, names(count), degree=degree)
    ring = topology.ring
    assert ring is not None and sorted(ring) == sorted(topology.members) and ring[0] == "n0"
    if count > 2:
        graph = topology.graph()
        assert all(graph.has_edge(one, other) for one, other in zip(ring, [*ring[1:], ring[0]], strict=True))
        assert topology.rank(ring[1]) < topology.rank(ring[-1])
    assert build(name, names(count), degree=degree).ring == ring


@pytest.mark.parametrize("name", ["star", "line", "barbell", "matchings", "gossip-k:3"])
def test_others_have_none(name: str) -> None:
    assert build(name, names(8)).ring is None


def test_a_graph_without_one_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Petersen's graph has no ring and looks as if it had; a path of moves ends the search."""
    petersen = nx.petersen_graph()
    near = [sorted(petersen[rank]) for rank in range(10)]
    assert ring_through_all(near) is None
    monkeypatch.setattr(cycles, "MOVES", 10)
    assert ring_through_all(near) is None


@given(st.integers(5, 10), st.integers(0, 2**32))
def test_what_is_found_is_a_ring_and_what_is_there_is_found(count: int, seed: int) -> None:
    """On small graphs, against trying everything."""
    graph = nx.gnp_random_graph(count, 0.5, seed=seed)
    found = ring_through_all([sorted(graph[rank]) for rank in range(count)])
    if found is not None:
        assert sorted(found) == list(range(count))
        assert all(graph.has_edge(one, other) for one, other in zip(found, [*found[1:], found[0]], strict=True))

    def goes_on(path: list[int]) -> bool:
        if len(path) == count:
            return graph.has_edge(path[-1], path[0])
        return any(goes_on([*path, rank]) for rank in graph[path[-1]] if rank not in path)

    assert (found is not None) == goes_on([0])
