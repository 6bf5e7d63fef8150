"""Words that are flooded, passed on from node to node without a network."""

from collections import deque
from typing import Any

import pytest

from p2p_tally.ids import NodeName
from p2p_tally.node.step.relay import Relays
from p2p_tally.protocol.messages import Message, Relayed, Vote
from p2p_tally.topologies import Schedule, Topology

#     V - X - Y - Z - Q
#      \ /
#       A
V, X, Y, Z, Q, A = (NodeName(f"node-{rank}") for rank in range(6))
MEMBERS = [V, X, Y, Z, Q, A]
EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 5), (1, 5)]


class Links:
    """All links of the graph, in order, but for one that is slow."""

    def __init__(self, hops: Any, slow: tuple[NodeName, NodeName]) -> None:
        topology = Topology("drawn", MEMBERS, Schedule(lambda _: EDGES))
        self.slow = slow
        self.under_way: deque[tuple[NodeName, NodeName, Message]] = deque()
        self.late: list[tuple[NodeName, NodeName, Message]] = []
        self.sent = 0
        self.have: dict[NodeName, set[NodeName]] = {name: set() for name in MEMBERS}
        self.relays = {name: Relays(name, topology, hops, self.outbox(name), lambda: 1) for name in MEMBERS}

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
            relayed = isinstance(message, Relayed)
            origin, hops, word = (
                (MEMBERS[message.origin], message.hops, message.message) if relayed else (via, 1, message)
            )
            if origin == peer:
                continue
            self.relays[peer].check(via, origin, hops, 1)
            if origin in self.have[peer]:
                self.relays[peer].came_again(via, origin, hops, 1)
            else:
                self.have[peer].add(origin)
                self.relays[peer].pass_on(via, origin, hops, word)

    def let_the_slow_one_through(self) -> None:
        self.under_way.extend(self.late)
        self.late = []
        self.deliver()


def flooded(hops: Any) -> Links:
    """V's word, flooded, has come to X over A: over two links, where there is one."""
    links = Links(hops, slow=(V, X))
    for relays in links.relays.values():
        relays.speak(1, Vote(1, b""))
        relays.urge(1)
    links.deliver()
    return links


def test_a_flooded_word_goes_as_far_as_its_shortest_way_lets_it() -> None:
    links = flooded(hops=4)
    assert V in links.have[Z] and V not in links.have[Q]
    links.let_the_slow_one_through()
    assert V in links.have[Q]
    assert all(links.have[name] == set(links.relays[name].audible(1)) for name in MEMBERS)


@pytest.mark.parametrize("hops", [5, "all"])
def test_where_every_way_is_short_enough_nothing_is_sent_again(hops: Any) -> None:
    links = flooded(hops)
    assert V in links.have[Q]
    before = links.sent
    links.let_the_slow_one_through()
    assert links.sent == before
