"""What a node knows of every other member: a state each, and a few numbers. Pure: no clock, no sockets.

The state says whether exchanges wait for the peer. It changes by the table below and in no other way.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from p2p_tally.ids import NodeName
from p2p_tally.protocol.messages import Stage

# Stages of a merge that carry parameters.
MERGING = (Stage.VECTOR, Stage.SCATTER, Stage.GATHER)


class Presence(StrEnum):
    AWAITED = "awaited"  # exchanges wait for its messages
    SILENT = "silent"  # they do not; a message that comes in time counts all the same, and brings the peer back
    LEFT = "left"  # it said goodbye


class Event(StrEnum):
    LINK_UP = "link up"  # to a peer that plays, or that will begin together with this node
    LINK_UP_EARLY = "link up early"  # to a peer that has not begun, while this node plays
    LINK_DOWN = "link down"
    SPOKE = "spoke"  # something in time, or that it plays
    MISSED = "missed"  # it let a deadline pass
    BYE = "bye"


# What each event makes of each state.
NEXT: Mapping[Event, Mapping[Presence, Presence]] = {
    Event.LINK_UP: dict.fromkeys(Presence, Presence.AWAITED),
    Event.LINK_UP_EARLY: dict.fromkeys(Presence, Presence.SILENT),
    Event.SPOKE: dict.fromkeys(Presence, Presence.AWAITED),
    Event.BYE: dict.fromkeys(Presence, Presence.LEFT),
    # Whoever has left stays so: that its link ends, or that nothing comes, is no news.
    Event.LINK_DOWN: {**dict.fromkeys(Presence, Presence.SILENT), Presence.LEFT: Presence.LEFT},
    Event.MISSED: {**dict.fromkeys(Presence, Presence.SILENT), Presence.LEFT: Presence.LEFT},
}


@dataclass
class Peer:
    """What is known of one peer."""

    presence: Presence = Presence.AWAITED
    playing: bool = False  # it said that it plays rounds
    finished: bool = False  # it said goodbye after the last round
    joined: int = 0  # it plays the rounds after this one
    seen: int = 0  # the furthest round that it has shown itself to be in, by what it sent itself; 0: none
    withdrawn: int = 0  # the last merge that it gave up; 0: none
    missed: int = 0  # deadlines that it let pass
    messages: int = 0  # that came over its link, whatever became of them
    vote_missed: bool = False  # where votes are relayed: its last one did not come in time, by whatever way
    on_change: Callable[[], None] | None = None  # called when its presence has changed

    def on(self, event: Event) -> None:
        before, self.presence = self.presence, NEXT[event][self.presence]
        if event in (Event.LINK_UP, Event.LINK_UP_EARLY, Event.LINK_DOWN):
            self.withdrawn = 0  # what was said of a merge ends with the link that it was said over
        if self.presence is not before and self.on_change is not None:
            self.on_change()

    # --- what it said of itself

    def plays_after(self, round: int) -> None:
        """It plays, from the round after this one on."""
        self.playing = True
        self.joined = round
        self.on(Event.SPOKE)

    def joins_after(self, round: int) -> None:
        """The same of a peer whose own link has not said so: others relayed it, or the handshake did."""
        self.joined = round

    def withdrew(self, round: int) -> None:
        self.withdrawn = round

    def said_goodbye(self, *, finished: bool) -> None:
        self.finished = self.finished or finished
        self.on(Event.BYE)

    # --- what came of it, or did not

    def message_came(self) -> None:
        self.messages += 1

    def has_reached(self, round: int) -> bool:
        """It is in this round, or past it; whether that is further than it was known to be."""
        further = round > self.seen
        self.seen = max(self.seen, round)
        return further

    def let_deadline_pass(self) -> None:
        self.missed += 1
        self.on(Event.MISSED)

    def vote_came(self) -> None:
        self.vote_missed = False

    def vote_did_not_come(self) -> None:
        """Where votes are relayed. Its link is another matter: others may have lost the vote on its way."""
        self.vote_missed = True

    def count_missed(self) -> None:
        self.missed += 1

    # --- what follows

    @property
    def is_there(self) -> bool:
        return self.presence is Presence.AWAITED

    def is_awaited(self, stage: Stage, round: int) -> bool:
        """Whether an exchange waits for what this peer sends over its own link."""
        if not self.is_there or self.joined >= round:
            return False
        if stage in MERGING:
            return self.withdrawn != round
        # A link keeps its messages in order: who has sent something of a later round announces no merge of this one.
        return stage is not Stage.ANNOUNCE or self.seen <= round

    def relayed_vote_is_awaited(self, round: int) -> bool:
        return not self.vote_missed and self.joined < round


class Roster(Mapping[NodeName, Peer]):
    """All other members."""

    def __init__(self, peers: Iterable[NodeName]) -> None:
        self.changes = 0  # of anybody's presence: who looks often need not look at all of them again
        self._peers = {peer: Peer(on_change=self._count_change) for peer in peers}

    def _count_change(self) -> None:
        self.changes += 1

    def __getitem__(self, peer: NodeName) -> Peer:
        return self._peers[peer]

    def __iter__(self) -> Iterator[NodeName]:
        return iter(self._peers)

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def silent(self) -> set[NodeName]:
        """Those who are not waited for; whoever has left is among them."""
        return {name for name, peer in self._peers.items() if not peer.is_there}

    @property
    def missing(self) -> set[NodeName]:
        """The same without those who have played all rounds."""
        return {name for name, peer in self._peers.items() if not (peer.is_there or peer.finished)}

    @property
    def left(self) -> set[NodeName]:
        return {name for name, peer in self._peers.items() if peer.presence is Presence.LEFT}

    @property
    def playing(self) -> set[NodeName]:
        """Those who said that they play."""
        return {name for name, peer in self._peers.items() if peer.playing}

    @property
    def missed(self) -> Counter[NodeName]:
        """Deadlines let pass, by those who let any."""
        return Counter({name: peer.missed for name, peer in self._peers.items() if peer.missed})
