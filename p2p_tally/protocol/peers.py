"""What a node knows of every other member: for each a state, its presence, and a few numbers. No clock, no sockets.

The presence says whether exchanges wait for the peer. It changes only by the table below.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from p2p_tally.ids import NodeName
from p2p_tally.protocol.messages import SHARD_STAGES, Stage
from p2p_tally.protocol.scores import Offence, Score

# Stages of a merge that carry parameters, or what members say about them.
MERGING = SHARD_STAGES


class Presence(StrEnum):
    AWAITED = "awaited"  # exchanges wait for its messages
    SILENT = "silent"  # they do not wait; a message that comes in time still counts, and makes the peer awaited again
    LEFT = "left"  # it sent a Bye


class Event(StrEnum):
    LINK_UP = "link up"  # the peer plays rounds, or will start together with this node
    LINK_UP_EARLY = "link up early"  # this node plays rounds, and the peer has not started
    LINK_DOWN = "link down"
    SPOKE = "spoke"  # it sent something in time, or said that it plays rounds
    MISSED = "missed"  # its message did not come before the deadline
    BYE = "bye"


# For each event: the next presence, by the present one.
NEXT: Mapping[Event, Mapping[Presence, Presence]] = {
    Event.LINK_UP: dict.fromkeys(Presence, Presence.AWAITED),
    Event.LINK_UP_EARLY: dict.fromkeys(Presence, Presence.SILENT),
    Event.SPOKE: dict.fromkeys(Presence, Presence.AWAITED),
    Event.BYE: dict.fromkeys(Presence, Presence.LEFT),
    # A peer that has left stays left: it is expected that its link ends and that nothing more comes.
    Event.LINK_DOWN: {**dict.fromkeys(Presence, Presence.SILENT), Presence.LEFT: Presence.LEFT},
    Event.MISSED: {**dict.fromkeys(Presence, Presence.SILENT), Presence.LEFT: Presence.LEFT},
}


@dataclass
class Peer:
    """What is known of one peer."""

    presence: Presence = Presence.AWAITED
    playing: bool = False  # it said, over the present link, that it plays rounds
    began: bool = False  # it, or somebody in its name, said so over any link
    finished: bool = False  # it sent a Bye after the last round
    joined: int = 0  # it plays the rounds after this one
    seen: int = 0  # the highest round that it is known to be in, by what came over its own link; 0: none
    shown: int = 0  # the highest round of which it sent a vote, an announcement or parameters; 0: none
    withdrawn: int = 0  # the round of the last merge that it gave up; 0: none
    missed: int = 0  # how often its message did not come before the deadline
    score: Score = field(default_factory=Score)
    links: int = 0  # how many links there have been: what it sends over another one may be from a new start of it
    messages: int = 0  # how many messages came over its link, accepted or not
    vote_missed: bool = False  # where votes are relayed: its last vote did not come in time, over any path
    on_change: Callable[[], None] | None = None  # called when its presence has changed, or whether it is there

    def on(self, event: Event) -> None:
        before = self.presence, self.is_there
        self.presence = NEXT[event][self.presence]
        if event in (Event.LINK_UP, Event.LINK_UP_EARLY, Event.LINK_DOWN):
            # What was learned over a link ends with the link: who comes next in this name may be somebody else.
            self.playing = False
            self.joined = self.seen = self.shown = self.withdrawn = 0
            self.links += event is not Event.LINK_DOWN
        self._tell_change(before)

    def _tell_change(self, before: tuple[Presence, bool]) -> None:
        if before != (self.presence, self.is_there) and self.on_change is not None:
            self.on_change()

    # --- what it said about itself

    def plays_after(self, round: int) -> None:
        """It said that it plays the rounds after this one."""
        self.playing = self.began = True
        self.joined = round
        self.on(Event.SPOKE)

    def joins_after(self, round: int) -> None:
        """The same, known from the handshake or from a relayed message: that does not make it awaited."""
        self.joined = round

    def linked_again(self, finished: int) -> None:
        """It has a link again after the last one had not been needed; `finished`: the last round that it says to have
        finished. What came over the earlier link counts only as far as this bears it out."""
        now = finished + 1
        self.joined = min(max(finished, self.joined), now)
        self.seen, self.shown = min(self.seen, now), min(self.shown, now)

    def withdrew(self, round: int) -> None:
        self.withdrawn = round

    def said_goodbye(self, *, finished: bool) -> None:
        self.finished = self.finished or finished
        self.on(Event.BYE)

    # --- what came from it, and what did not

    def message_came(self) -> None:
        self.messages += 1

    def note_round(self, round: int) -> bool:
        """It is in this round, or past it. Returns whether this is a higher round than was known."""
        further = round > self.seen
        self.seen = max(self.seen, round)
        return further

    def show_round(self, round: int) -> bool:
        """It sent what only a node in this round has to send. Returns whether this is a higher round than was known."""
        self.shown = max(self.shown, round)
        return self.note_round(round)

    def let_deadline_pass(self) -> None:
        self.missed += 1
        self.on(Event.MISSED)

    def kept_waiting(self, deadlines: float) -> bool:
        """This node has waited so long for something of it that did not come. Returns whether nothing is left of its
        patience now: then it does not wait for this peer until something of it comes, and time has passed."""
        had = self.score.deadlines >= 1
        self.charge(Offence.WAITED, deadlines)
        if not self.score.awaited:
            self.on(Event.MISSED)
        return had and self.score.deadlines < 1

    def charge(self, offence: Offence, times: float = 1.0) -> None:
        before = self.presence, self.is_there
        self.score.charge(offence, times)
        self._tell_change(before)

    def wait_once(self) -> None:
        """A node that cannot go on without others waits for it, whatever it has cost in time; unless it has left."""
        if self.presence is not Presence.LEFT:
            self.score.wait_once()
            self.on(Event.SPOKE)

    def pass_time(self, seconds: float, deadline: float, peers: int) -> None:
        before = self.presence, self.is_there
        self.score.pass_time(seconds, deadline, peers)
        self._tell_change(before)

    def vote_came(self) -> None:
        self.vote_missed = False

    def vote_did_not_come(self) -> None:
        """For relayed votes. The presence stays as it is: the vote may have been lost at other nodes on its path."""
        self.vote_missed = True

    def count_missed(self) -> None:
        self.missed += 1

    # --- whether to wait for it

    @property
    def is_there(self) -> bool:
        """Whether it plays with this node, and has not cost too much."""
        return self.presence is Presence.AWAITED and self.score.awaited

    def is_awaited(self, stage: Stage, round: int) -> bool:
        """Whether an exchange waits for a message that this peer sends over its own link."""
        if not self.is_there or self.joined >= round:
            return False
        if stage in MERGING:
            return self.withdrawn != round
        # A link keeps messages in order: a peer that has sent something for a later round will not announce this merge.
        return stage is not Stage.ANNOUNCE or self.seen <= round

    def relayed_vote_is_awaited(self, round: int) -> bool:
        return not self.vote_missed and self.joined < round and self.score.awaited


class Roster(Mapping[NodeName, Peer]):
    """All other members."""

    def __init__(self, peers: Iterable[NodeName]) -> None:
        self.changes = 0  # how often any peer came or went: a caller can see that it need not check all peers again
        self._peers = {peer: Peer(on_change=self._count_change) for peer in peers}

    def add(self, peer: NodeName) -> None:
        """Somebody becomes a member. A name that is there already stays as it is."""
        self._peers.setdefault(peer, Peer(on_change=self._count_change))

    def _count_change(self) -> None:
        self.changes += 1

    def pass_time(self, seconds: float, deadline: float) -> None:
        """So much time has passed for the scores; `deadline`: the length of one, in seconds."""
        for peer in self._peers.values():
            peer.pass_time(seconds, deadline, len(self._peers))

    def __getitem__(self, peer: NodeName) -> Peer:
        return self._peers[peer]

    def __iter__(self) -> Iterator[NodeName]:
        return iter(self._peers)

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def silent(self) -> set[NodeName]:
        """The peers that are not waited for, including those that have left."""
        return {name for name, peer in self._peers.items() if not peer.is_there}

    @property
    def missing(self) -> set[NodeName]:
        """The same without the peers that have played all rounds."""
        return {name for name, peer in self._peers.items() if not (peer.is_there or peer.finished)}

    @property
    def left(self) -> set[NodeName]:
        return {name for name, peer in self._peers.items() if peer.presence is Presence.LEFT}

    @property
    def playing(self) -> set[NodeName]:
        """The peers that said that they play rounds."""
        return {name for name, peer in self._peers.items() if peer.playing}

    @property
    def missed(self) -> Counter[NodeName]:
        """How many deadlines each peer missed; only peers that missed any."""
        return Counter({name: peer.missed for name, peer in self._peers.items() if peer.missed})
