"""The graph as a node knows it that was told of its neighbours only."""

import pytest

from p2p_tally.ids import NodeName
from p2p_tally.node.links.known_graph import KnownGraph
from p2p_tally.topologies import build

ME, A, B, FAR = (NodeName(name) for name in ("node-1", "node-0", "node-2", "node-10"))


def test_at_first_it_is_a_star() -> None:
    graph = KnownGraph(ME, [A, B])
    assert graph.members == (A, ME, B)  # in the order of names
    assert graph.neighbours(ME, 1) == (A, B)
    assert graph.neighbours(A, 1) == (ME,)
    assert not graph.varies and graph.neighbours(ME, 99) == (A, B)


def test_it_grows_as_neighbours_say_who_theirs_are() -> None:
    graph = KnownGraph(ME, [A, B])
    graph.learn(B, [ME, FAR])
    assert graph.members == (A, ME, B, FAR)
    assert graph.neighbours(B, 1) == (ME, FAR)
    assert graph.neighbours(ME, 1) == (A, B)  # who is two links away is no neighbour
    graph.learn(A, [ME, B])
    assert graph.neighbours(A, 1) == (ME, B)
    graph.learn(B, [ME, A])  # it has come back with another list
    assert graph.members == (A, ME, B)


def test_the_mixing_weights_are_those_of_the_whole_graph_once_all_have_spoken() -> None:
    """A node's own row depends on its neighbours' degrees and on nothing further away."""
    whole = build("star", ["node-0", "node-1", "node-2", "node-3"])
    for name in whole.members:
        graph = KnownGraph(NodeName(name), map(NodeName, whole.neighbours(name, 1)))
        for peer in whole.neighbours(name, 1):
            graph.learn(NodeName(peer), whole.neighbours(peer, 1))
        assert graph.weights(name, 1) == pytest.approx(whole.weights(name, 1))
