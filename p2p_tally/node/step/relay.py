"""Votes over several hops: whose votes are awaited, which votes are plausible, and to whom a vote is passed on.

Every node knows the graph of a round. So all compute the same tree of shortest paths for each origin, and a vote is
sent down the tree of its origin: every node within reach gets it once. If a node fails, the trees through it are
broken. So a node that misses a neighbour tells all others (`Lost`). While any node misses another, votes are flooded:
they are sent to every neighbour that is not known to have them.

Used only if votes travel more than one hop. This module knows who has which vote; it does not decode ballots, and it
has no deadlines.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from random import SystemRandom
from typing import ClassVar, NamedTuple, cast

from p2p_tally.errors import PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.position import Position
from p2p_tally.node.step.votes import VoteCounter, VoteMessage
from p2p_tally.protocol import frames
from p2p_tally.protocol.barrier import IN_TIME, Arrival
from p2p_tally.protocol.masks import from_mask, to_mask
from p2p_tally.protocol.messages import Here, Lost, News, Notice, Relayed
from p2p_tally.protocol.peers import Roster
from p2p_tally.topologies import Hops, Topology
from p2p_tally.topologies.reach import Reach

# For how many rounds this node's children in the trees are kept: the present round, and rounds of early votes.
PLACES_KEPT = 8
# A neighbour is at most one round behind, and may still need votes of that round from this node.
ROUNDS_BEHIND = 1
# How many numbers of news are remembered for each node: more than are ever in flight at once.
NEWS_REMEMBERED = 16
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
    ) -> None:
        """`furthest`: the highest round that an honest peer can be in, given the round that this node is in."""
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
        self._lost: dict[NodeName, News] = {}  # the last Lost of each node that misses another
        self._lost_changed = False  # since the last call of `tell_missing`
        self._changes_seen = 0  # `Roster.changes` at the last call of `tell_missing`
        self._told_missing: set[NodeName] = set()  # what this node last told the others that it misses
        self._heard: dict[NodeName, deque[int]] = defaultdict(lambda: deque(maxlen=NEWS_REMEMBERED))
        # Random, so that after a restart a node does not use the same numbers again.
        self._numbers = count(SystemRandom().getrandbits(31))
        self._ended = False

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
        """The members within the number of hops, over links that no node misses."""
        if not self._lost:
            return set(self._members)
        missed = {(node, peer) for node, news in self._lost.items() for peer in self._missed_by(news)}
        # What others say about this node is ignored: they may not know yet that it is back.
        missed = {(node, peer) for node, peer in missed if peer != self._name}
        missed |= {(peer, node) for node, peer in missed}
        level, found = [self._name], {self._name}
        for _ in range(self._hops):
            near = {(node, peer) for node in level for peer in self._neighbours(node, round)} - missed
            level = list({peer for _, peer in near} - found)
            if not level:  # hops may be more than the diameter
                break
            found.update(level)
        return found

    def awaits(self, peer: NodeName, round: int) -> bool:
        return self._roster[peer].relayed_vote_is_awaited(round)

    def gave_up(self, peer: NodeName, round: int) -> None:
        self._roster[peer].vote_did_not_come()
        if peer in self._neighbours(self._name, round):
            self._roster[peer].let_deadline_pass()
        else:  # it is not a neighbour: this node does not know its link
            self._roster[peer].count_missed()

    def _missed_by(self, news: News) -> set[NodeName]:
        return from_mask(news.message.missing, self._members) if isinstance(news.message, Lost) else set()

    def _neighbours(self, node: NodeName, round: int) -> tuple[NodeName, ...]:
        return tuple(map(NodeName, self._topology.neighbours(node, round)))

    def _origin_of(self, message: Relayed | News) -> NodeName:
        """The origin of a message; a PeerError if there is no such member, or it is this node."""
        if message.origin >= len(self._members) or message.origin == self._rank:
            raise PeerError(f"passed on from member {message.origin}", reason="origin")
        return self._members[message.origin]

    # --- votes

    def send(self, round: int, vote: VoteMessage) -> None:
        for old in [held for held in self._held if held < round - ROUNDS_BEHIND]:
            del self._held[old]
        self._urgent = {urgent for urgent in self._urgent if urgent >= round - ROUNDS_BEHIND}
        self._send_to(self._neighbours(self._name, round), self._name, self._hold(self._name, Held(vote, 0)))

    def receive(self, via: NodeName, message: VoteMessage | Relayed, counter: VoteCounter) -> Arrival:
        if isinstance(message, Relayed):
            came = Arriving(via, self._origin_of(message), message.hops, message.message)
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
        return bool(self._lost) or round in self._urgent

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
        if not self._ended:
            self._spread(News(self._rank, next(self._numbers) % 2**32, notice))

    def announce(self, here: Here) -> None:
        self.tell(here)
        self._tell_lost(self._roster.missing)

    def tell_missing(self) -> bool:
        if self._roster.changes != self._changes_seen:  # checked first, because this is called for every message
            self._changes_seen = self._roster.changes
            missing = self._roster.missing
            if missing != self._told_missing:
                self._tell_lost(missing)
        changed, self._lost_changed = self._lost_changed, False
        return changed

    def _tell_lost(self, missing: set[NodeName]) -> None:
        self._told_missing = missing
        self.tell(Lost(to_mask(missing, self._members)))

    def receive_news(self, via: NodeName, news: News) -> NodeName | None:
        """News that are new here are passed on to all neighbours."""
        origin = self._origin_of(news)
        if news.number in self._heard[origin]:
            return None
        self._spread(news, via)
        return origin

    def end(self) -> None:
        self._ended = True

    def _spread(self, news: News, via: NodeName | None = None) -> None:
        origin = self._members[news.origin]
        self._heard[origin].append(news.number)
        frame = frames.encode(news)
        for peer in self._neighbours(self._name, self._position.round + 1):
            if peer not in (via, origin):
                self._outbox.send(peer, news, frame)
        if isinstance(news.message, Lost):
            self._note_lost(origin, news)

    def _note_lost(self, origin: NodeName, news: News) -> None:
        self._lost_changed = True
        if self._missed_by(news):
            self._lost[origin] = news
            for round in list(self._held):
                self._flood(round)
        else:
            self._lost.pop(origin, None)

    @property
    def someone_is_missing(self) -> bool:
        """Whether any node misses a neighbour, as far as this node knows. Then votes are flooded."""
        return bool(self._lost)

    def link_up(self, peer: NodeName) -> None:
        """Send the peer what it may lack: who is missing, and votes that came before the link was up.

        That happens at the start, when some nodes play while others still wait for links.
        """
        for origin, news in self._lost.items():
            if origin != peer:
                self._outbox.send(peer, news, frames.encode(news))
        for round, votes in self._held.items():
            for origin, held in votes.items():
                if peer in self._receivers(origin, round):
                    self._send_to([peer], origin, held)
