"""Votes that travel further than to the neighbours: whose are awaited, what can be true of them, who gets them next.

Every node knows the graph of a round, so each origin's vote goes down a tree of shortest paths that all compute alike:
everyone within reach hears it once. A tree breaks with any of its nodes. So whoever misses a neighbour tells all
(`Lost`), and as long as anybody does, votes are flooded: to every neighbour that is not known to have them.

Used only where votes travel more than one hop. Knows votes and who has them; knows nothing of ballots or deadlines.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from random import SystemRandom
from typing import ClassVar, NamedTuple

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

# Rounds whose places in the trees are kept: the one at hand, and those that votes come early for.
PLACES_KEPT = 8
# Neighbours are at most a round behind: whoever still waits in the last one may need what this node has of it.
ROUNDS_BEHIND = 1
# Of each node, the numbers of its last news: more than are ever under way at once.
NEWS_REMEMBERED = 16
# A node that was away passes on the votes of so many rounds that it has not come to.
CATCHING_UP = 64


class Arriving(NamedTuple):
    """A vote as it comes: over whose link, whose it is, and over how many links."""

    via: NodeName
    origin: NodeName
    hops: int
    vote: VoteMessage


@dataclass
class Held:
    """A vote that this node has: over how many links it came, and over how many each neighbour that has it got it."""

    vote: VoteMessage
    hops: int
    met: dict[NodeName, int] = field(default_factory=dict)

    def has(self, peer: NodeName, hops: int) -> None:
        self.met[peer] = min(hops, self.met.get(peer, hops))

    def came_over(self, hops: int) -> bool:
        """The same vote again; whether by a shorter way than before."""
        shorter = hops < self.hops
        self.hops = min(hops, self.hops)
        return shorter


class RelayedVotes:
    """One node's part in passing votes on."""

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
        """`furthest`: the last round that an honest peer can be in while this node is in the given one."""
        self._hops = len(topology.members) - 1 if hops == "all" else hops
        self._members = [NodeName(member) for member in topology.members]
        self._name = name
        self._rank = topology.rank(name)
        self._topology = topology
        self._outbox = outbox
        self._roster = roster
        self._position = position
        self._furthest = lru_cache(4)(furthest)
        self._children: Callable[[int], dict[int, list[int]]] = lru_cache(PLACES_KEPT)(
            lambda round: self._reach(round).children(self._rank)
        )
        self._held: dict[int, dict[NodeName, Held]] = {}
        self._urgent: set[int] = set()  # rounds in which somebody has waited long
        self._lost: dict[NodeName, News] = {}  # whom each node misses, as it last said; only those who miss any
        self._changed = False  # what stands there has, since `tell_missing` was last called
        self._looked_at = 0  # the roster's changes that `tell_missing` has seen
        self._told_missing: set[NodeName] = set()  # those this node misses, as the others know
        self._heard: dict[NodeName, deque[int]] = defaultdict(lambda: deque(maxlen=NEWS_REMEMBERED))
        # A node that starts again must not number its news as it did before.
        self._numbers = count(SystemRandom().getrandbits(31))
        self._ended = False

    def _reach(self, round: int) -> Reach:
        return self._topology.reach(round, self._hops)

    # --- what is awaited, and what can be

    def voters(self, round: int) -> list[NodeName]:
        return [self._members[origin] for origin in self._reach(round).of(self._rank)]

    def reachable(self, round: int) -> set[NodeName]:
        """Those within so many hops over links that nobody misses."""
        if not self._lost:
            return set(self._members)
        missed = {(node, peer) for node, news in self._lost.items() for peer in self._missed_by(news)}
        # Of its own links this node knows better than their other ends: those may not have heard of its return.
        missed = {(node, peer) for node, peer in missed if peer != self._name}
        missed |= {(peer, node) for node, peer in missed}
        level, found = [self._name], {self._name}
        for _ in range(self._hops):
            near = {(node, peer) for node in level for peer in self._neighbours(node, round)} - missed
            level = list({peer for _, peer in near} - found)
            if not level:  # hops may be many more than the graph is wide
                break
            found.update(level)
        return found

    def awaits(self, peer: NodeName, round: int) -> bool:
        return self._roster[peer].relayed_vote_is_awaited(round)

    def gave_up(self, peer: NodeName, round: int) -> None:
        self._roster[peer].vote_did_not_come()
        if peer in self._neighbours(self._name, round):
            self._roster[peer].let_deadline_pass()
        else:  # its links are others' to judge
            self._roster[peer].count_missed()

    def _missed_by(self, news: News) -> set[NodeName]:
        return from_mask(news.message.missing, self._members) if isinstance(news.message, Lost) else set()

    def _neighbours(self, node: NodeName, round: int) -> tuple[NodeName, ...]:
        return tuple(map(NodeName, self._topology.neighbours(node, round)))

    def _origin_of(self, message: Relayed | News) -> NodeName:
        """Whose it is; a PeerError where there is no such member, or it is this node itself."""
        if message.origin >= len(self._members) or message.origin == self._rank:
            raise PeerError(f"passed on from member {message.origin}", reason="origin")
        return self._members[message.origin]

    # --- votes

    def send(self, round: int, vote: VoteMessage) -> None:
        for old in [held for held in self._held if held < round - ROUNDS_BEHIND]:
            del self._held[old]
        self._urgent = {urgent for urgent in self._urgent if urgent >= round - ROUNDS_BEHIND}
        self._give(self._name, self._hold(self._name, Held(vote, 0)), self._neighbours(self._name, round))

    def receive(self, via: NodeName, message: VoteMessage | Relayed, counter: VoteCounter) -> Arrival:
        if isinstance(message, Relayed):
            came = Arriving(via, self._origin_of(message), message.hops, message.message)
        else:
            came = Arriving(via, via, 1, message)
        if came.vote.round >= counter.round:
            if self.is_too_far(came.vote.round):
                return self._overtaken_by(came, counter)
            self._check(came)
        arrival = counter.count(came.origin, came.vote, via)
        if arrival in IN_TIME:
            self._roster[came.origin].vote_came()
            self._pass_on(came)
        elif arrival is Arrival.DUPLICATE:
            self._came_again(came)
        return arrival

    def is_too_far(self, round: int) -> bool:
        return round > self._furthest(self._position.round + 1)

    def _check(self, came: Arriving) -> None:
        """Raise a PeerError where a vote cannot have come this way in that many hops."""
        via, origin, hops, vote = came
        reach, sender = self._reach(vote.round), self._topology.rank(via)
        way = reach.distance_between(self._topology.rank(origin), sender)
        neighbour = reach.distance_between(sender, self._rank) == 1
        if not neighbour or way is None or not way < hops <= self._hops:
            raise PeerError(f"a vote of {origin} over {hops} links cannot come from {via}", reason="hops")

    def _overtaken_by(self, came: Arriving, counter: VoteCounter) -> Arrival:
        """A vote of a round that its origin could not be in, had it waited for this node: its vote of the round at hand
        will not come. This one is not held either: a relay must not fill the place of another's next votes."""
        counter.stop_awaiting(came.origin)
        if came.via == came.origin:
            self._roster[came.origin].note_round(came.vote.round)
        if not self.is_too_far(came.vote.round - CATCHING_UP):
            # Those further down the tree are in step and need it. Down the tree only: it would not be known again.
            self._check(came)
            self._give(came.origin, Held(came.vote, came.hops), self._below(came.origin, came.vote.round))
        return Arrival.TOO_FAR

    def _pass_on(self, came: Arriving) -> None:
        """Hand a new vote to those who should hear it from this node."""
        held = self._hold(came.origin, Held(came.vote, came.hops, {came.via: came.hops - 1, came.origin: 0}))
        self._give(came.origin, held, self._hearers(came.origin, came.vote.round))

    def _hearers(self, origin: NodeName, round: int) -> Collection[NodeName]:
        """Who should have an origin's vote from this node, if they have it from nobody else."""
        flooded = origin == self._name or self._floods(round)
        return self._neighbours(self._name, round) if flooded else self._below(origin, round)

    def _below(self, origin: NodeName, round: int) -> list[NodeName]:
        """Who hears an origin from this node."""
        return [self._members[child] for child in self._children(round).get(self._topology.rank(origin), ())]

    def _came_again(self, came: Arriving) -> None:
        """A vote that this node has. By a shorter way than the first it may go further."""
        held = self._held.get(came.vote.round, {}).get(came.origin)
        if held is None:
            return
        held.has(came.via, came.hops - 1)
        if held.came_over(came.hops) and self._floods(came.vote.round):
            self._give(came.origin, held, self._neighbours(self._name, came.vote.round))

    def urge(self, round: int) -> None:
        """Somebody has waited long in this round: whatever a tree has lost must find another way."""
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
            self._give(origin, held, self._neighbours(self._name, round))

    def _give(self, origin: NodeName, held: Held, peers: Iterable[NodeName]) -> None:
        """Send a vote to those that do not have it yet. Where votes go so many hops only, also to those who have it by
        a longer way than over this node: there it would end sooner."""
        if held.hops + 1 > self._hops:
            return
        enough = self._hops if self._hops >= len(self._members) - 1 else held.hops + 1
        own = origin == self._name
        message = held.vote if own else Relayed(self._topology.rank(origin), held.hops + 1, held.vote)
        frame = frames.encode(message)
        for peer in peers:
            if held.met.get(peer, self._hops + 1) > enough and self._outbox.send(peer, message, frame):
                held.has(peer, held.hops + 1)

    # --- news: what a node tells everyone about itself

    def tell(self, notice: Notice) -> None:
        if not self._ended:
            self._spread(News(self._rank, next(self._numbers) % 2**32, notice))

    def announce(self, here: Here) -> None:
        self.tell(here)
        self._tell_lost(self._roster.missing)

    def tell_missing(self) -> bool:
        if self._roster.changes != self._looked_at:  # this is called for every message
            self._looked_at = self._roster.changes
            missing = self._roster.missing
            if missing != self._told_missing:
                self._tell_lost(missing)
        changed, self._changed = self._changed, False
        return changed

    def _tell_lost(self, missing: set[NodeName]) -> None:
        self._told_missing = missing
        self.tell(Lost(to_mask(missing, self._members)))

    def receive_news(self, via: NodeName, news: News) -> NodeName | None:
        """New ones are passed on to everyone."""
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
        self._changed = True
        if self._missed_by(news):
            self._lost[origin] = news
            for round in list(self._held):
                self._flood(round)
        else:
            self._lost.pop(origin, None)

    @property
    def someone_is_missing(self) -> bool:
        """Whether any node misses a neighbour, as far as this one knows: then votes are flooded."""
        return bool(self._lost)

    def link_up(self, peer: NodeName) -> None:
        """Its other end may not know who is missed, and votes for it may have come before there was a link.

        They do at the start: some play while others still wait for links.
        """
        for origin, news in self._lost.items():
            if origin != peer:
                self._outbox.send(peer, news, frames.encode(news))
        for round, votes in self._held.items():
            for origin, held in votes.items():
                if peer in self._hearers(origin, round):
                    self._give(origin, held, [peer])
