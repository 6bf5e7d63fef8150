"""Votes that are flooded, passed on from node to node without a network."""

from collections import deque
from typing import Any

import pytest

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.node.position import Position
from p2p_tally.node.step.relay import RelayedVotes
from p2p_tally.node.step.votes import VoteMessage
from p2p_tally.protocol.barrier import Arrival
from p2p_tally.protocol.messages import Message, Relayed, Vote
from p2p_tally.protocol.peers import Roster
from p2p_tally.topologies import Schedule, Topology

#     V - X - Y - Z - Q
#      \ /
#       A
V, X, Y, Z, Q, A = (NodeName(f"node-{rank}") for rank in range(6))
MEMBERS = [V, X, Y, Z, Q, A]
EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 5), (1, 5)]


class Received:
    """What one node has counted."""

    round = 1

    def __init__(self) -> None:
        self.origins: set[NodeName] = set()

    def count(self, origin: NodeName, vote: VoteMessage, via: NodeName) -> Arrival:
        if origin in self.origins:
            return Arrival.DUPLICATE
        self.origins.add(origin)
        return Arrival.RECORDED

    def stop_awaiting(self, peer: NodeName) -> None:
        raise AssertionError("nobody is overtaken here")


class Links:
    """All links of the graph, in order, but for one that is slow."""

    def __init__(self, hops: Any, slow: tuple[NodeName, NodeName]) -> None:
        topology = Topology("drawn", MEMBERS, Schedule(lambda _: EDGES))
        self.slow = slow
        self.under_way: deque[tuple[NodeName, NodeName, Message]] = deque()
        self.late: list[tuple[NodeName, NodeName, Message]] = []
        self.sent = 0
        self.have = {name: Received() for name in MEMBERS}
        self.votes = {name: self.route(name, topology, hops) for name in MEMBERS}

    def route(self, name: NodeName, topology: Topology, hops: Any) -> RelayedVotes:
        roster = Roster(other for other in MEMBERS if other != name)
        position = Position(Federation(rounds=10, warmup=0))
        return RelayedVotes(name, topology, hops, self.outbox(name), roster, position, lambda round: round + 2)

    def outbox(self, sender: NodeName) -> Any:
        links = self

        class Box:
            def send(self, peer: NodeName, message: Message, frame: bytes) -> bool:
                links.sent += 1
                (links.late if (sender, peer) == links.slow else links.under_way).append((sender, peer, message))
                return True

        return Box()

    def deliver(self) -> None:
        while self.under_way:
            via, peer, message = self.under_way.popleft()
            assert isinstance(message, Vote | Relayed)
            if not isinstance(message, Relayed) or MEMBERS[message.origin] != peer:
                self.votes[peer].receive(via, message, self.have[peer])

    def let_the_slow_one_through(self) -> None:
        self.under_way.extend(self.late)
        self.late = []
        self.deliver()


def flooded(hops: Any) -> Links:
    """V's vote, flooded, has come to X over A: over two links, where there is one."""
    links = Links(hops, slow=(V, X))
    for votes in links.votes.values():
        votes.send(1, Vote(1, b""))
        votes.long_wait(1)
    links.deliver()
    return links


def test_a_flooded_vote_goes_as_far_as_its_shortest_way_lets_it() -> None:
    links = flooded(hops=4)
    assert V in links.have[Z].origins and V not in links.have[Q].origins
    links.let_the_slow_one_through()
    assert V in links.have[Q].origins
    assert all(links.have[name].origins == set(links.votes[name].voters(1)) for name in MEMBERS)


@pytest.mark.parametrize("hops", [5, "all"])
def test_where_every_way_is_short_enough_nothing_is_sent_again(hops: Any) -> None:
    links = flooded(hops)
    assert V in links.have[Q].origins
    before = links.sent
    links.let_the_slow_one_through()
    assert links.sent == before
