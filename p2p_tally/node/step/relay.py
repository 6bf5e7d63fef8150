"""Votes over several hops: whose votes are awaited, which votes are plausible, and to whom a vote is passed on.

Every node knows the graph of a round. So all compute the same tree of shortest paths for each origin, and a vote is
sent down the tree of its origin: every node within reach gets it once. If a node fails, the trees through it are
broken. So a node that misses a neighbour tells all others (`Lost`). While any node misses another, votes are flooded:
they are sent to every neighbour that is not known to have them.

Used only if votes travel more than one hop. This module knows who has which vote; it does not decode ballots, and it
has no deadlines.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, NamedTuple, cast

from p2p_tally.errors import PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.position import Position
from p2p_tally.node.step.notices import Notices
from p2p_tally.node.step.votes import VoteCounter, VoteMessage
from p2p_tally.protocol import frames
from p2p_tally.protocol.barrier import IN_TIME, Arrival
from p2p_tally.protocol.messages import Here, News, Notice, Relayed
from p2p_tally.protocol.peers import Roster
from p2p_tally.topologies import Hops, Topology
from p2p_tally.topologies.reach import Reach

# For how many rounds this node's children in the trees are kept: the present round, and rounds of early votes.
PLACES_KEPT = 8
# A neighbour is at most one round behind, and may still need votes of that round from this node.
ROUNDS_BEHIND = 1
# A node that was away still passes on votes of rounds up to this many too far ahead.
CATCHING_UP = 64


class Arriving(NamedTuple):
    """A vote that has come."""

    via: NodeName  # the neighbour that sent it
    origin: NodeName  # who voted
    hops: int  # the links that it has passed
    vote: VoteMessage


@dataclass
class Held:
    """A vote that this node has."""

    vote: VoteMessage
    hops: int  # the links that it passed to this node
    had_by: dict[NodeName, int] = field(default_factory=dict)  # for neighbours that have it: links it passed to them

    def has(self, peer: NodeName, hops: int) -> None:
        self.had_by[peer] = min(hops, self.had_by.get(peer, hops))

    def came_over(self, hops: int) -> bool:
        """The same vote came again. Returns whether its path is shorter than before."""
        shorter = hops < self.hops
        self.hops = min(hops, self.hops)
        return shorter


class RelayedVotes:
    """How one node passes votes on."""

    relayed: ClassVar[bool] = True

    def __init__(
        self,
        name: NodeName,
        topology: Topology,
        hops: Hops,
        outbox: Outbox,
        roster: Roster,
        position: Position,
        furthest: Callable[[int], int],
        rounds_late: int = 0,
    ) -> None:
        """`furthest`: the highest round that an honest peer can be in, given the round that this node is in.
        `rounds_late`: how many rounds after its own the votes of a round are awaited."""
        self._rounds_behind = ROUNDS_BEHIND + 2 * rounds_late
        self._most_hops = hops
        self._name = name
        self._rank = topology.rank(name)
        self._topology = topology
        self._outbox = outbox
        self._roster = roster
        self._position = position
        self._furthest = lru_cache(4)(furthest)
        self._children = lru_cache(PLACES_KEPT)(self._own_children)
        self._held: dict[int, dict[NodeName, Held]] = {}
        self._urgent: set[int] = set()  # rounds in which a node has waited long
        self.notices = Notices(
            name, topology, outbox, roster, lambda: self._neighbours(name, position.round + 1), self._flood_all
        )

    @property
    def _members(self) -> Sequence[NodeName]:
        """In order of rank. New members come after the last, so that ranks on the wire stay what they are."""
        return cast(Sequence[NodeName], self._topology.members)

    @property
    def _hops(self) -> int:
        return len(self._topology.members) - 1 if self._most_hops == "all" else self._most_hops

    def members_changed(self) -> None:
        self._children.cache_clear()

    def _reach(self, round: int) -> Reach:
        return self._topology.reach(round, self._hops)

    def _own_children(self, round: int) -> dict[int, list[int]]:
        return self._reach(round).children(self._rank)

    # --- whose votes are awaited

    def voters(self, round: int) -> list[NodeName]:
        return [self._members[origin] for origin in self._reach(round).of(self._rank)]

    def reachable(self, round: int) -> set[NodeName]:
        return self.notices.part(round, self._hops)

    def awaits(self, peer: NodeName, round: int) -> bool:
        return self._roster[peer].relayed_vote_is_awaited(round)

    def gave_up(self, peer: NodeName, round: int) -> None:
        self._roster[peer].vote_did_not_come()
        if peer in self._neighbours(self._name, round):
            self._roster[peer].let_deadline_pass()
        else:  # it is not a neighbour: this node does not know its link
            self._roster[peer].count_missed()

    def _neighbours(self, node: NodeName, round: int) -> tuple[NodeName, ...]:
        return tuple(map(NodeName, self._topology.neighbours(node, round)))

    # --- votes

    def send(self, round: int, vote: VoteMessage) -> None:
        for old in [held for held in self._held if held < round - self._rounds_behind]:
            del self._held[old]
        self._urgent = {urgent for urgent in self._urgent if urgent >= round - self._rounds_behind}
        self._send_to(self._neighbours(self._name, round), self._name, self._hold(self._name, Held(vote, 0)))

    def receive(self, via: NodeName, message: VoteMessage | Relayed, counter: VoteCounter) -> Arrival:
        if isinstance(message, Relayed):
            came = Arriving(via, self.notices.origin_of(message), message.hops, message.message)
        else:
            came = Arriving(via, via, 1, message)
        if came.vote.round >= counter.round:
            if self.is_too_far(came.vote.round):
                return self._too_far_ahead(came, counter)
            self._check(came)
        arrival = counter.count(came.origin, came.vote, via)
        if arrival in IN_TIME:
            self._roster[came.origin].vote_came()
            self._pass_on(came)
        elif arrival is Arrival.DUPLICATE:
            self._came_again(came)
        return arrival

    def is_too_far(self, round: int) -> bool:
        own = self._topology.next_round(self._name, self._position.round + 1)  # one that joins has not begun
        return round > self._furthest(self._position.round + 1 if own is None else own)

    def _check(self, came: Arriving) -> None:
        """Raise a PeerError if a vote cannot have come over this neighbour in this many hops."""
        via, origin, hops, vote = came
        reach, sender = self._reach(vote.round), self._topology.rank(via)
        way = reach.distance_between(self._topology.rank(origin), sender)
        neighbour = reach.distance_between(sender, self._rank) == 1
        if not neighbour or way is None or not way < hops <= self._hops:
            raise PeerError(f"a vote of {origin} over {hops} links cannot come from {via}", reason="hops")

    def _too_far_ahead(self, came: Arriving, counter: VoteCounter) -> Arrival:
        """A vote of a round that its origin could not have reached if it had waited for this node. So its vote of the
        present round will not come. The vote is not held: otherwise a relay could use up the space for another node's
        next votes."""
        counter.is_further(came.origin)
        if came.via == came.origin:
            self._roster[came.origin].show_round(came.vote.round)
        if not self.is_too_far(came.vote.round - CATCHING_UP):
            # Nodes further down the tree may be in that round and need it. It is not flooded: it is not held, so a
            # second copy would not be recognised.
            self._check(came)
            self._send_to(self._children_of(came.origin, came.vote.round), came.origin, Held(came.vote, came.hops))
        return Arrival.TOO_FAR

    def _pass_on(self, came: Arriving) -> None:
        """Send a new vote to the neighbours that should get it from this node."""
        held = self._hold(came.origin, Held(came.vote, came.hops, {came.via: came.hops - 1, came.origin: 0}))
        self._send_to(self._receivers(came.origin, came.vote.round), came.origin, held)

    def _receivers(self, origin: NodeName, round: int) -> Collection[NodeName]:
        """The neighbours that should get an origin's vote from this node, unless they have it already."""
        flooded = origin == self._name or self._floods(round)
        return self._neighbours(self._name, round) if flooded else self._children_of(origin, round)

    def _children_of(self, origin: NodeName, round: int) -> list[NodeName]:
        """This node's children in the tree of an origin."""
        return [self._members[child] for child in self._children(round).get(self._topology.rank(origin), ())]

    def _came_again(self, came: Arriving) -> None:
        """This node has the vote already. Over a shorter path it may travel further than before."""
        held = self._held.get(came.vote.round, {}).get(came.origin)
        if held is None:
            return
        held.has(came.via, came.hops - 1)
        if held.came_over(came.hops) and self._floods(came.vote.round):
            self._send_to(self._neighbours(self._name, came.vote.round), came.origin, held)

    def long_wait(self, round: int) -> None:
        """A node has waited long in this round: flood its votes, because a tree may have lost some."""
        if round in self._held and round not in self._urgent:
            self._urgent.add(round)
            self._flood(round)

    def _hold(self, origin: NodeName, held: Held) -> Held:
        self._held.setdefault(held.vote.round, {})[origin] = held
        return held

    def _floods(self, round: int) -> bool:
        return self.notices.someone_is_missing or round in self._urgent

    def _flood(self, round: int) -> None:
        for origin, held in self._held.get(round, {}).items():
            self._send_to(self._neighbours(self._name, round), origin, held)

    def _send_to(self, peers: Iterable[NodeName], origin: NodeName, held: Held) -> None:
        """Send a vote to those peers that do not have it yet. If the hops are limited, also to peers that have it over
        a longer path: over the shorter path it may travel further."""
        if held.hops + 1 > self._hops:
            return
        enough = self._hops if self._hops >= len(self._members) - 1 else held.hops + 1
        own = origin == self._name
        message = held.vote if own else Relayed(self._topology.rank(origin), held.hops + 1, held.vote)
        frame = frames.encode(message)
        for peer in peers:
            if held.had_by.get(peer, self._hops + 1) > enough and self._outbox.send(peer, message, frame):
                held.has(peer, held.hops + 1)

    # --- news: what a node tells everyone about itself

    def tell(self, notice: Notice) -> None:
        self.notices.tell(notice)

    def announce(self, here: Here) -> None:
        self.notices.tell(here)
        self.notices.tell_lost()

    def tell_missing(self) -> bool:
        return self.notices.tell_missing()

    def receive_news(self, via: NodeName, news: News) -> NodeName | None:
        return self.notices.receive(via, news)

    def end(self) -> None:
        self.notices.end()

    def _flood_all(self) -> None:
        for round in list(self._held):
            self._flood(round)

    @property
    def someone_is_missing(self) -> bool:
        """Whether any node misses a neighbour, as far as this node knows. Then votes are flooded."""
        return self.notices.someone_is_missing

    def link_up(self, peer: NodeName) -> None:
        """Send the peer what it may lack: who is missing, and votes that came before the link was up.

        That happens at the start, when some nodes play while others still wait for links.
        """
        self.notices.link_up(peer)
        for round, votes in self._held.items():
            for origin, held in votes.items():
                if peer in self._receivers(origin, round):
                    self._send_to([peer], origin, held)
