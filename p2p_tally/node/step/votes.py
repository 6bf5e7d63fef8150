"""How votes are sent: to the neighbours only (here), or over several hops (relay.py)."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol

from p2p_tally.errors import FrameError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.step.notices import Notices
from p2p_tally.protocol.barrier import Arrival
from p2p_tally.protocol.messages import Here, News, Notice, Ready, Relayed, Stage, Vote
from p2p_tally.protocol.peers import Roster

# What a node sends for the tally of a round: a ballot, or the count that it sends instead of one.
VoteMessage = Vote | Ready

# The neighbours of this node in a round, in order of name.
Neighbours = Callable[[int], list[NodeName]]


class VoteCounter(Protocol):
    """Where a route delivers votes."""

    @property
    def round(self) -> int:
        """The last round in which this node waited for something."""
        ...

    def count(self, origin: NodeName, vote: VoteMessage, via: NodeName) -> Arrival:
        """Check a vote, and count it if it is in time; or raise a PeerError."""
        ...

    def is_further(self, peer: NodeName) -> None:
        """This peer is in a later round: do not wait for it any longer."""
        ...


class VoteRoute(Protocol):
    """How one node sends and receives votes."""

    relayed: ClassVar[bool]  # whether votes travel several hops: then one broken link does not lose a vote

    @property
    def notices(self) -> Notices | None:
        """What nodes tell all others; None where they tell nothing."""
        ...

    def voters(self, round: int) -> list[NodeName]:
        """The peers whose votes of a round are in this node's tally, in order of name."""
        ...

    def reachable(self, round: int) -> Iterable[NodeName]:
        """The peers whose votes of a round can still come."""
        ...

    def awaits(self, peer: NodeName, round: int) -> bool:
        """Whether the vote of a reachable peer is waited for."""
        ...

    def gave_up(self, peer: NodeName, round: int) -> None:
        """The vote of this peer did not come before its deadline."""
        ...

    def send(self, round: int, vote: VoteMessage) -> None:
        """Send this node's own vote."""
        ...

    def receive(self, via: NodeName, message: VoteMessage | Relayed, counter: VoteCounter) -> Arrival:
        """A vote came from a neighbour: count it, and pass it on where needed; or raise a PeerError."""
        ...

    def is_too_far(self, round: int) -> bool:
        """Whether no honest peer can have reached this round yet."""
        ...

    def link_up(self, peer: NodeName) -> None:
        """A link is up: send what the peer may lack."""
        ...

    def members_changed(self) -> None:
        """Members of rounds to come are others than before."""
        ...

    # --- notices to all nodes, needed if votes travel several hops

    def tell(self, notice: Notice) -> None: ...

    def announce(self, here: Here) -> None:
        """Tell all that this node plays, and which neighbours it misses."""
        ...

    def long_wait(self, round: int) -> None:
        """A node has waited long for the votes of a round."""
        ...

    def tell_missing(self) -> bool:
        """Tell all which neighbours this node misses, if that has changed. Returns whether `reachable` may have changed
        since the last call, by this or by what others told."""
        ...

    def receive_news(self, via: NodeName, news: News) -> NodeName | None:
        """The origin of the news; None if it came before. Or a PeerError."""
        ...

    def end(self) -> None:
        """This node has played its rounds: tell nothing more, also when links end."""
        ...


class DirectVotes:
    """Votes are sent to the neighbours of the round."""

    relayed: ClassVar[bool] = False

    def __init__(self, neighbours: Neighbours, outbox: Outbox, roster: Roster, notices: Notices | None = None) -> None:
        """`notices`: where not all are neighbours, nodes that count who is there tell each other whom they miss."""
        self._neighbours = neighbours
        self._outbox = outbox
        self._roster = roster
        self.notices = notices

    def voters(self, round: int) -> list[NodeName]:
        return self._neighbours(round)

    def reachable(self, round: int) -> Iterable[NodeName]:
        return self.voters(round)

    def awaits(self, peer: NodeName, round: int) -> bool:
        return self._roster[peer].is_awaited(Stage.VOTE, round)

    def gave_up(self, peer: NodeName, round: int) -> None:  # noqa: ARG002
        self._roster[peer].let_deadline_pass()

    def send(self, round: int, vote: VoteMessage) -> None:
        self._outbox.broadcast(self.voters(round), vote)

    def receive(self, via: NodeName, message: VoteMessage | Relayed, counter: VoteCounter) -> Arrival:
        if isinstance(message, Relayed):
            raise FrameError("a relayed vote where votes travel one hop", reason="unknown-kind")
        return counter.count(via, message, via)

    def receive_news(self, via: NodeName, news: News) -> NodeName | None:
        if self.notices is None:
            raise FrameError("news where all are neighbours, or no others are known", reason="unknown-kind")
        return self.notices.receive(via, news)

    def is_too_far(self, round: int) -> bool:  # noqa: ARG002
        return False  # the barrier limits how far ahead messages are held

    def tell_missing(self) -> bool:
        return self.notices is not None and self.notices.tell_missing()

    def link_up(self, peer: NodeName) -> None:
        if self.notices is not None:
            self.notices.link_up(peer)

    def members_changed(self) -> None: ...

    def tell(self, notice: Notice) -> None: ...

    def announce(self, here: Here) -> None:
        if self.notices is not None:
            self.notices.tell(here)
            self.notices.tell_lost()

    def long_wait(self, round: int) -> None: ...

    def end(self) -> None:
        if self.notices is not None:
            self.notices.end()
