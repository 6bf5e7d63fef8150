"""Votes that travel further than to the neighbours: whose word is awaited, what can be true of it, who gets it next.

Every node knows the graph of a round, so each origin's word goes down a tree of shortest paths that all compute alike:
everyone within reach hears it once. A tree breaks with any of its nodes. So whoever misses a neighbour says so to all
(`Lost`), and as long as anybody does, words are flooded: to every neighbour that is not known to have them.

Used only where votes travel more than one hop. Knows words and who has them; knows nothing of ballots or deadlines.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from random import SystemRandom

from p2p_tally.errors import PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.protocol import frames
from p2p_tally.protocol.masks import from_mask, to_mask
from p2p_tally.protocol.messages import Lost, News, Ready, Relayed, Tidings, Vote
from p2p_tally.topologies import Hops, Topology
from p2p_tally.topologies.reach import Reach

Word = Vote | Ready

# Rounds whose places in the trees are kept: the one at hand, and those that words come early for.
PLACES_KEPT = 8
# Neighbours are at most a round behind: whoever still waits in the last one may need what this node has of it.
ROUNDS_BEHIND = 1
# Of each node, the numbers of its last tidings: more than are ever under way at once.
TIDINGS_REMEMBERED = 16


@dataclass
class Held:
    """A word that this node has, over how many links it came, and over how many the neighbours have it that do."""

    word: Word
    hops: int
    met: dict[NodeName, int] = field(default_factory=dict)


class Relays:
    """One node's part in passing words on."""

    def __init__(self, name: NodeName, topology: Topology, hops: Hops, outbox: Outbox, now: Callable[[], int]) -> None:
        """`now`: the round that this node is in."""
        self.hops = len(topology.members) - 1 if hops == "all" else hops
        self._members = [NodeName(member) for member in topology.members]
        self._name = name
        self._rank = topology.rank(name)
        self._topology = topology
        self.over = False  # this node has played its rounds: that its links end now is no news
        self._outbox = outbox
        self._now = now
        self._children: Callable[[int], dict[int, list[int]]] = lru_cache(PLACES_KEPT)(
            lambda round: self._reach(round).children(self._rank)
        )
        self._held: dict[int, dict[NodeName, Held]] = {}
        self._urgent: set[int] = set()  # rounds in which somebody has waited long
        self._lost: dict[NodeName, News] = {}  # whom each node misses, as it last said; only those who miss any
        self._heard: dict[NodeName, deque[int]] = defaultdict(lambda: deque(maxlen=TIDINGS_REMEMBERED))
        # A node that starts again must not number its tidings as it did before.
        self._numbers = count(SystemRandom().getrandbits(31))

    def _reach(self, round: int) -> Reach:
        return self._topology.reach(round, self.hops)

    # --- what is awaited, and what can be

    def audible(self, round: int) -> list[NodeName]:
        """Whose word of a round this node should hear, in name order."""
        return [self._members[origin] for origin in self._reach(round).of(self._rank)]

    def reachable(self, round: int) -> set[NodeName]:
        """Whose word of a round can still come: those within so many hops over links that nobody misses."""
        if not self._lost:
            return set(self._members)
        missed = {(node, peer) for node, news in self._lost.items() for peer in self._missed_by(news)}
        # Of its own links this node knows better than their other ends: those may not have heard of its return.
        missed = {(node, peer) for node, peer in missed if peer != self._name}
        missed |= {(peer, node) for node, peer in missed}
        level, found = [self._name], {self._name}
        for _ in range(self.hops):
            near = {(node, peer) for node in level for peer in self._neighbours(node, round)} - missed
            level = list({peer for _, peer in near} - found)
            if not level:  # hops may be many more than the graph is wide
                break
            found.update(level)
        return found

    def _missed_by(self, news: News) -> set[NodeName]:
        return from_mask(news.message.missing, self._members) if isinstance(news.message, Lost) else set()

    def _neighbours(self, node: NodeName, round: int) -> tuple[NodeName, ...]:
        return tuple(map(NodeName, self._topology.neighbours(node, round)))

    def is_neighbour(self, peer: NodeName, round: int) -> bool:
        return peer in self._neighbours(self._name, round)

    def origin_of(self, message: Relayed | News) -> NodeName:
        """Whose word it is; a PeerError where there is no such member, or it is this node itself."""
        if message.origin >= len(self._members) or message.origin == self._rank:
            raise PeerError(f"passed on from member {message.origin}", reason="origin")
        return self._members[message.origin]

    def check(self, via: NodeName, origin: NodeName, hops: int, round: int) -> None:
        """Raise a PeerError where a word cannot have come this way in that many hops."""
        reach, sender = self._reach(round), self._topology.rank(via)
        way = reach.distance_between(self._topology.rank(origin), sender)
        neighbour = reach.distance_between(sender, self._rank) == 1
        if not neighbour or way is None or not way < hops <= self.hops:
            raise PeerError(f"a word of {origin} over {hops} links cannot come from {via}", reason="hops")

    # --- words

    def speak(self, round: int, word: Word) -> None:
        """Send this node's own word."""
        for old in [held for held in self._held if held < round - ROUNDS_BEHIND]:
            del self._held[old]
        self._urgent = {urgent for urgent in self._urgent if urgent >= round - ROUNDS_BEHIND}
        self._give(self._name, self._hold(self._name, Held(word, 0)), self._neighbours(self._name, round))

    def pass_on(self, via: NodeName, origin: NodeName, hops: int, word: Word) -> None:
        """Hand a new word that came over so many links to those who should hear it from this node."""
        held = self._hold(origin, Held(word, hops, {via: hops - 1, origin: 0}))
        self._give(origin, held, self._hearers(origin, word.round))

    def pass_through(self, origin: NodeName, hops: int, word: Word) -> None:
        """Hand on a word that this node has no room for: down the tree only, for it would not know it again."""
        self._give(origin, Held(word, hops), self._below(origin, word.round))

    def _hearers(self, origin: NodeName, round: int) -> Collection[NodeName]:
        """Who should have an origin's word from this node, if they have it from nobody else."""
        flooded = origin == self._name or self._floods(round)
        return self._neighbours(self._name, round) if flooded else self._below(origin, round)

    def _below(self, origin: NodeName, round: int) -> list[NodeName]:
        """Who hears an origin from this node."""
        return [self._members[child] for child in self._children(round).get(self._topology.rank(origin), ())]

    def came_again(self, via: NodeName, origin: NodeName, hops: int, round: int) -> None:
        """A word that this node has. By a shorter way than the first it may go further."""
        held = self._held.get(round, {}).get(origin)
        if held is None:
            return
        held.met[via] = min(hops - 1, held.met.get(via, hops))
        if hops < held.hops:
            held.hops = hops
            if self._floods(round):
                self._give(origin, held, self._neighbours(self._name, round))

    def urge(self, round: int) -> None:
        """Somebody has waited long in this round: whatever a tree has lost must find another way."""
        if round in self._held and round not in self._urgent:
            self._urgent.add(round)
            self._flood(round)

    def _hold(self, origin: NodeName, held: Held) -> Held:
        self._held.setdefault(held.word.round, {})[origin] = held
        return held

    def _floods(self, round: int) -> bool:
        return bool(self._lost) or round in self._urgent

    def _flood(self, round: int) -> None:
        for origin, held in self._held.get(round, {}).items():
            self._give(origin, held, self._neighbours(self._name, round))

    def _give(self, origin: NodeName, held: Held, peers: Iterable[NodeName]) -> None:
        """Send a word to those that do not have it yet; where words go so far only, also to those who have it by a
        longer way than over this node: there it would end sooner."""
        if held.hops + 1 > self.hops:
            return
        enough = self.hops if self.hops >= len(self._members) - 1 else held.hops + 1
        own = origin == self._name
        message = held.word if own else Relayed(self._topology.rank(origin), held.hops + 1, held.word)
        frame = frames.encode(message)
        for peer in peers:
            if held.met.get(peer, self.hops + 1) > enough and self._outbox.send(peer, message, frame):
                held.met[peer] = held.hops + 1

    # --- tidings: what a node says of itself to everyone

    def tell(self, tidings: Tidings) -> None:
        if not self.over:
            self._spread(News(self._rank, next(self._numbers) % 2**32, tidings))

    def tell_lost(self, missing: Iterable[NodeName]) -> None:
        """Say which neighbours this node misses."""
        self.tell(Lost(to_mask(missing, self._members)))

    def is_new(self, via: NodeName, origin: NodeName, news: News) -> bool:
        """Whether tidings have not come before; those are passed on to everyone."""
        if news.number in self._heard[origin]:
            return False
        self._spread(news, via)
        return True

    def _spread(self, news: News, via: NodeName | None = None) -> None:
        origin = self._members[news.origin]
        self._heard[origin].append(news.number)
        frame = frames.encode(news)
        for peer in self._neighbours(self._name, self._now()):
            if peer not in (via, origin):
                self._outbox.send(peer, news, frame)
        if isinstance(news.message, Lost):
            self._note_lost(origin, news)

    def _note_lost(self, origin: NodeName, news: News) -> None:
        if self._missed_by(news):
            self._lost[origin] = news
            for round in list(self._held):
                self._flood(round)
        else:
            self._lost.pop(origin, None)

    def welcome(self, peer: NodeName) -> None:
        """There is a link: its other end may not know who is missed, and words for it may have come before there was.

        They do at the start: some play while others still wait for links.
        """
        for origin, news in self._lost.items():
            if origin != peer:
                self._outbox.send(peer, news, frames.encode(news))
        for round, words in self._held.items():
            for origin, held in words.items():
                if peer in self._hearers(origin, round):
                    self._give(origin, held, [peer])
