"""Votes that travel further than to the neighbours: whose word is awaited, what can be true of it, who gets it next.

Every node knows the graph of a round, so each origin's word goes down a tree of shortest paths that all compute alike:
everyone within reach hears it once. Used only where votes travel more than one hop.
"""

from collections.abc import Callable
from functools import lru_cache

from p2p_tally.errors import PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.outbox import Outbox
from p2p_tally.protocol import frames
from p2p_tally.protocol.messages import Ready, Relayed, Vote
from topologies import Hops, Topology

Word = Vote | Ready

# Rounds whose places in the trees are kept: the one at hand, and those that words come early for.
PLACES_KEPT = 8


class Relays:
    """One node's part in passing words on."""

    def __init__(self, name: NodeName, topology: Topology, hops: Hops, outbox: Outbox) -> None:
        self.hops = len(topology.members) - 1 if hops == "all" else hops
        self._name = name
        self._rank = topology.rank(name)
        self._topology = topology
        self._outbox = outbox
        self._children: Callable[[int], dict[int, list[int]]] = lru_cache(PLACES_KEPT)(self._look_up)

    def _look_up(self, round: int) -> dict[int, list[int]]:
        return self._topology.reach(round, self.hops).children(self._rank)

    def awaited(self, round: int) -> list[NodeName]:
        """Whose word of a round this node should hear, in name order."""
        members = self._topology.members
        return [NodeName(members[origin]) for origin in self._topology.reach(round, self.hops).of(self._rank)]

    def origin_of(self, relayed: Relayed) -> NodeName:
        """Whose word it is; a PeerError where there is no such member, or it is this node itself."""
        if relayed.origin >= len(self._topology.members) or relayed.origin == self._rank:
            raise PeerError(f"passed on from member {relayed.origin}", reason="origin")
        return NodeName(self._topology.members[relayed.origin])

    def check(self, via: NodeName, origin: NodeName, hops: int, round: int) -> None:
        """Raise a PeerError where a word cannot have come this way in that many hops."""
        reach, sender = self._topology.reach(round, self.hops), self._topology.rank(via)
        way = reach.distance_between(self._topology.rank(origin), sender)
        neighbour = reach.distance_between(sender, self._rank) == 1
        if not neighbour or way is None or not way < hops <= self.hops:
            raise PeerError(f"a word of {origin} over {hops} links cannot come from {via}", reason="hops")

    def pass_on(self, origin: NodeName, hops: int, word: Word) -> None:
        """Hand a word that came over so many links to those who hear it from this node."""
        rank = self._topology.rank(origin)
        children = self._children(word.round).get(rank)
        if not children:
            return
        relayed = Relayed(rank, hops + 1, word)
        frame = frames.encode(relayed)
        for child in children:
            self._outbox.send(NodeName(self._topology.members[child]), relayed, frame)
