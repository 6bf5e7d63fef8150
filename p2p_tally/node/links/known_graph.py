"""The graph for a node that is given its neighbours only. It grows as they say who their neighbours are."""

from collections.abc import Iterable

from p2p_tally.ids import NodeName, in_order
from p2p_tally.topologies import Schedule, Topology

# The name of such a graph: all peers must have one, and compare the name.
NEIGHBOURS = "neighbours"


class KnownGraph(Topology):
    """A node, its neighbours, and their neighbours."""

    def __init__(self, name: NodeName, neighbours: Iterable[NodeName]) -> None:
        self._name = name
        self._told: dict[NodeName, tuple[NodeName, ...]] = dict.fromkeys(neighbours, ())
        self._redraw()

    def learn(self, peer: NodeName, neighbours: Iterable[str]) -> None:
        """A neighbour has said who its neighbours are."""
        self._told[peer] = tuple(map(NodeName, neighbours))
        self._redraw()

    def _redraw(self) -> None:
        members = in_order({self._name, *self._told, *(far for theirs in self._told.values() for far in theirs)})
        rank = {member: number for number, member in enumerate(members)}
        edges = [(rank[self._name], rank[peer]) for peer in self._told]
        edges += [(rank[peer], rank[far]) for peer, theirs in self._told.items() for far in theirs if far != self._name]
        super().__init__(NEIGHBOURS, members, Schedule(lambda _: edges))
