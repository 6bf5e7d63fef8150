"""Which links a node needs around a round, where the graph changes: pure reckoning from the schedule all know.

A link is there for the rounds in which its ends exchange something: made some rounds ahead, so that it is up when it
is needed and a node that is a little behind is still reached; kept for a few rounds after, so that an edge that comes
back soon stays. Rounds without messages do not count: nodes drift apart in them.
"""

from functools import lru_cache

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.learning.schedule import exchanges
from p2p_tally.topologies import Topology

# Rounds after its last use that a link is kept for.
GRACE = 2


def lead(members: int) -> int:
    """Rounds with messages that links are made ahead: as many as nodes can be apart. Everyone waits for its partners,
    so those who hold a node back double with every round, and after log2 N rounds are all."""
    return 1 + (members - 1).bit_length()


class LinkPlan:
    """One node's links, round by round."""

    def __init__(self, name: NodeName, topology: Topology, federation: Federation) -> None:
        self._name = name
        self._topology = topology
        self._federation = federation
        self._next = lru_cache(maxsize=64)(self._next_exchange)

    def needed(self, round: int) -> frozenset[NodeName]:
        """Whom to be linked to when this round begins."""
        rounds: list[int] = []
        ahead = self._next(round - 1)
        while ahead is not None and len(rounds) <= lead(len(self._topology.members)):
            rounds.append(ahead)
            ahead = self._next(ahead)
        if round == 1:
            rounds.append(1)  # its neighbours are told that this node is there
        # What was long ago is idle, however few rounds with messages came since.
        rounds += [back for back in range(max(1, round - GRACE), round) if exchanges(self._federation, back)]
        return frozenset(NodeName(peer) for r in rounds for peer in self._topology.neighbours(self._name, r))

    def _next_exchange(self, after: int) -> int | None:
        ahead = range(after + 1, self._federation.rounds + 1)
        return next((r for r in ahead if exchanges(self._federation, r)), None)
