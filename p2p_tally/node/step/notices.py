"""Notices from one node to all others, and what follows from them: who can be reached, and where the others are.

A notice is flooded: a node passes it on to its neighbours when it sees it for the first time. A node that misses a
neighbour tells all (`Lost`). From all `Lost` messages and the graph every node computes the part that it is in.

Relayed votes need this (relay.py), and so does a node that counts who is there on a sparse graph (presence.py).
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from random import SystemRandom
from typing import cast

from p2p_tally.errors import PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.links.plan import lead
from p2p_tally.protocol import frames
from p2p_tally.protocol.masks import from_mask, to_mask
from p2p_tally.protocol.messages import Here, Lost, News, Notice, Relayed
from p2p_tally.protocol.peers import Roster
from p2p_tally.topologies import Topology

# How many numbers of news are remembered for each node: more than are ever in flight at once.
NEWS_REMEMBERED = 16
# A number this little below the newest of its origin is older news that came round about. One further below is from a
# node that has been started again: it begins with a random number.
OLDER = 1 << 16


class Notices:
    """The notices of one node."""

    def __init__(
        self,
        name: NodeName,
        topology: Topology,
        outbox: Outbox,
        roster: Roster,
        receivers: Callable[[], Iterable[NodeName]],
        on_lost: Callable[[], None] = lambda: None,
        *,
        quiet: bool = False,
    ) -> None:
        """`receivers`: the peers with a link now. `on_lost`: called when a node misses another. `quiet`: it tells
        nothing of its own until somebody else has told something; what others tell is always passed on."""
        self._name = name
        self._topology = topology
        self._outbox = outbox
        self._roster = roster
        self._receivers = receivers
        self._on_lost = on_lost
        self._quiet = quiet
        self._here: dict[NodeName, News] = {}  # the last Here of each node
        self._passes_rounds_on = False
        self._ended = False
        self._lost: dict[NodeName, News] = {}  # the last Lost of each node that misses another
        self.changes = 0  # how often anything in it has changed
        self._changes_told = 0  # the same at the last call of `tell_missing`
        self._changes_seen = 0  # `Roster.changes` at the last call of `tell_missing`
        self._told_missing: set[NodeName] = set()  # what this node last told the others that it misses
        self._heard: dict[NodeName, deque[int]] = defaultdict(lambda: deque(maxlen=NEWS_REMEMBERED))
        self._newest: dict[NodeName, int] = {}  # the number of the newest news of each node
        # Random, so that after a restart a node does not use the same numbers again.
        self._numbers = count(SystemRandom().getrandbits(31))

    @property
    def _members(self) -> Sequence[NodeName]:
        """In order of rank. New members come after the last, so that masks stay what they are."""
        return cast(Sequence[NodeName], self._topology.members)

    @property
    def _rank(self) -> int:
        return self._topology.rank(self._name)

    # --- telling

    def tell(self, notice: Notice) -> None:
        if not (self._ended or self._quiet):
            self._spread(News(self._rank, next(self._numbers) % 2**32, notice))

    def tell_lost(self) -> None:
        """Tell all whom this node misses, changed or not."""
        missing = self._roster.missing
        self.tell(Lost(to_mask(missing, self._members)))
        if not self._quiet:
            self._told_missing = missing

    def tell_missing(self) -> bool:
        """The same, if it has changed. Returns whether `part` may have changed since the last call."""
        if self._roster.changes != self._changes_seen and not self._quiet:  # checked first: called for every message
            self._changes_seen = self._roster.changes
            if self._roster.missing != self._told_missing:
                self.tell_lost()
        changed, self._changes_told = self.changes != self._changes_told, self.changes
        return changed

    def end(self) -> None:
        """This node has played its rounds: tell nothing more, also when links end."""
        self._ended = True

    # --- what others tell

    def receive(self, via: NodeName, news: News) -> NodeName | None:
        """The origin of the news; None if it came before. Or a PeerError. What is new here is passed on."""
        origin = self.origin_of(news)
        if news.number in self._heard[origin]:
            return None
        if self._quiet:
            self._quiet = False  # somebody counts who is there
        self._spread(news, via)
        return origin

    def origin_of(self, message: Relayed | News) -> NodeName:
        """The origin of a message; a PeerError if there is no such member, or it is this node."""
        if message.origin >= len(self._members) or message.origin == self._rank:
            raise PeerError(f"passed on from member {message.origin}", reason="origin")
        return self._members[message.origin]

    def link_up(self, peer: NodeName) -> None:
        """Tell a peer who is missing; and where the others are, if that is wanted."""
        known = [*self._lost.items(), *(self._here.items() if self._passes_rounds_on else ())]
        for origin, news in known:
            if origin != peer:
                self._outbox.send(peer, news, frames.encode(news))

    def pass_rounds_on(self) -> None:
        """From now on tell every peer with a new link where the others are."""
        self._passes_rounds_on = True

    @property
    def rounds(self) -> dict[NodeName, int]:
        """The round that each node last told all that it has finished."""
        return {node: news.message.round for node, news in self._here.items() if isinstance(news.message, Here)}

    def _spread(self, news: News, via: NodeName | None = None) -> None:
        origin = self._members[news.origin]
        self._heard[origin].append(news.number)
        frame = frames.encode(news)
        for peer in self._receivers():
            if peer not in (via, origin):
                self._outbox.send(peer, news, frame)
        if not 0 < (self._newest.get(origin, news.number) - news.number) % 2**32 < OLDER:
            self._newest[origin] = news.number
            self._note(origin, news)

    def _note(self, origin: NodeName, news: News) -> None:
        match news.message:
            case Here():
                self._here[origin] = news
            case Lost():
                self.changes += 1
                if self._missed_by(news):
                    self._lost[origin] = news
                    self._on_lost()
                else:
                    self._lost.pop(origin, None)

    def _missed_by(self, news: News) -> set[NodeName]:
        return from_mask(news.message.missing, self._members) if isinstance(news.message, Lost) else set()

    # --- what follows

    @property
    def someone_is_missing(self) -> bool:
        """Whether any node misses a neighbour, as far as this node knows."""
        return bool(self._lost)

    def part(self, round: int, hops: int | None = None, without: Collection[NodeName] = ()) -> set[NodeName]:
        """The members within this number of hops in the graph of a round, over links that no node misses; without
        `hops` all that are connected with this node, if the graph changes over the links of the next rounds too, which
        are made by now. `without`: peers whose links to this node do not count either."""
        if not (self._lost or without):
            return set(map(NodeName, self._topology.members_at(round)))
        missed = {(node, peer) for node, news in self._lost.items() for peer in self._missed_by(news)}
        # What others say about this node is ignored: they may not know yet that it is back.
        missed = {(node, peer) for node, peer in missed if peer != self._name}
        missed |= {(self._name, peer) for peer in without}
        missed |= {(peer, node) for node, peer in missed}
        ahead = lead(len(self._members)) if hops is None and self._topology.varies else 0

        def linked(node: NodeName) -> set[NodeName]:
            rounds = range(round, round + ahead + 1)
            return {NodeName(peer) for near in rounds for peer in self._topology.neighbours(node, near)}

        level, found = [self._name], {self._name}
        for _ in range(len(self._members) - 1 if hops is None else hops):
            near = {(node, peer) for node in level for peer in linked(node)} - missed
            level = list({peer for _, peer in near} - found)
            if not level:  # hops may be more than the diameter
                break
            found.update(level)
        return found
