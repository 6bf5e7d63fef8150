"""Which links a node needs in a round, if the graph changes. Computed from the schedule, which all nodes know.

A link is needed in the rounds in which its two ends exchange messages. It is made some rounds before, so that it is up
in time, also if the other node is a little behind. It is kept for a few rounds after, because the edge may come back
soon. Rounds without messages are not counted, because in them nodes do not wait for each other.
"""

from functools import lru_cache

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.learning.overlap import rounds_late
from p2p_tally.learning.schedule import exchanges
from p2p_tally.topologies import Topology

# For how many rounds a link is kept after its last use.
GRACE = 2


def lead(members: int) -> int:
    """How many rounds with messages before its use a link is made: as many as nodes can be apart. Each node waits for
    its partners, so the number of nodes that it depends on doubles with every round: after log2 N rounds it is all."""
    return 1 + (members - 1).bit_length()


class LinkPlan:
    """The links that one node needs, by round."""

    def __init__(self, name: NodeName, topology: Topology, federation: Federation) -> None:
        self._name = name
        self._topology = topology
        self._federation = federation
        self._grace = GRACE + 2 * rounds_late(federation)
        self._next = lru_cache(maxsize=64)(self._next_exchange)

    def needed(self, round: int) -> frozenset[NodeName]:
        """The peers that need a link when this round begins."""
        rounds: list[int] = []
        ahead = self._next(round - 1)
        while ahead is not None and len(rounds) <= lead(len(self._topology.members)):
            rounds.append(ahead)
            ahead = self._next(ahead)
        if round == 1:
            rounds.append(1)  # for the message that this node plays
        # Here all rounds count, also those without messages: a link not used for long is ended.
        rounds += [back for back in range(max(1, round - self._grace), round) if exchanges(self._federation, back)]
        near = {NodeName(peer) for r in rounds for peer in self._topology.neighbours(self._name, r)}
        soon = range(round, min(round + lead(len(self._topology.members)), self._federation.rounds) + 1)
        return frozenset(near.union(*(self._hands_over_with(r) for r in soon)))

    def _hands_over_with(self, round: int) -> set[NodeName]:
        """Those who may give this node a state before this round, or get one from it."""
        new = self._topology.newcomers(round)
        if self._name in new:
            return set(map(NodeName, self._topology.donors(self._name, round)))
        return {NodeName(peer) for peer in new if self._name in self._topology.donors(peer, round)}

    def _next_exchange(self, after: int) -> int | None:
        ahead = range(after + 1, self._federation.rounds + 1)
        return next((r for r in ahead if exchanges(self._federation, r)), None)
