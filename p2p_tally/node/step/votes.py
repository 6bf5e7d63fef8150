"""How votes get from node to node: to the neighbours and no further, or relayed over several hops (relay.py)."""

from collections.abc import Iterable
from typing import ClassVar, Protocol

from p2p_tally.errors import FrameError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.protocol.barrier import Arrival
from p2p_tally.protocol.messages import Here, News, Notice, Ready, Relayed, Stage, Vote
from p2p_tally.protocol.peers import Roster
from p2p_tally.topologies import Topology

# What a node sends for the tallies of a round: a ballot, or the count that stands in for one.
VoteMessage = Vote | Ready


class VoteCounter(Protocol):
    """Where votes are counted, as a route sees it."""

    @property
    def round(self) -> int:
        """The last round that something was waited for in."""
        ...

    def count(self, origin: NodeName, vote: VoteMessage, via: NodeName) -> Arrival:
        """Check a vote and count it, if it is in time; or a PeerError."""
        ...

    def stop_awaiting(self, peer: NodeName) -> None:
        """Wait no longer for this peer."""
        ...


class VoteRoute(Protocol):
    """One node's part in carrying votes."""

    relayed: ClassVar[bool]  # votes come over nodes between, so that a lost link alone loses none

    def voters(self, round: int) -> list[NodeName]:
        """Whose votes of a round are for this node's tally, in name order."""
        ...

    def reachable(self, round: int) -> Iterable[NodeName]:
        """Whose votes of a round can still come."""
        ...

    def awaits(self, peer: NodeName, round: int) -> bool:
        """Whether the vote of a reachable peer is waited for."""
        ...

    def gave_up(self, peer: NodeName, round: int) -> None:
        """A vote did not come before its deadline."""
        ...

    def send(self, round: int, vote: VoteMessage) -> None:
        """This node's own vote."""
        ...

    def receive(self, via: NodeName, message: VoteMessage | Relayed, counter: VoteCounter) -> Arrival:
        """A vote came over a neighbour's link: count it, and pass it on where it goes further. Or a PeerError."""
        ...

    def is_too_far(self, round: int) -> bool:
        """Whether no honest peer can have come to this round yet."""
        ...

    def link_up(self, peer: NodeName) -> None:
        """There is a link: send over it what its other end may lack."""
        ...

    # --- what nodes tell everyone about themselves, where they must know of more than their neighbours

    def tell(self, notice: Notice) -> None: ...

    def announce(self, here: Here) -> None:
        """This node plays, or plays again: tell that, and whom it misses now."""
        ...

    def urge(self, round: int) -> None:
        """Somebody has waited long for the votes of a round."""
        ...

    def tell_missing(self) -> bool:
        """Tell whom this node misses, if that has changed. Whether other votes than before can be heard since the last
        call: by that, or by what others told."""
        ...

    def receive_news(self, via: NodeName, news: News) -> NodeName | None:
        """Whose news it is; None where it came before. Or a PeerError."""
        ...

    def end(self) -> None:
        """This node has played its rounds: that its links end now is no news."""
        ...


class DirectVotes:
    """Votes go to the neighbours of their round; nobody need know of anyone else."""

    relayed: ClassVar[bool] = False

    def __init__(self, name: NodeName, topology: Topology, outbox: Outbox, roster: Roster) -> None:
        self._name = name
        self._topology = topology
        self._outbox = outbox
        self._roster = roster

    def voters(self, round: int) -> list[NodeName]:
        return [NodeName(peer) for peer in self._topology.neighbours(self._name, round)]

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

    def receive_news(self, via: NodeName, news: News) -> NodeName | None:  # noqa: ARG002
        raise FrameError("news where votes travel one hop", reason="unknown-kind")

    def is_too_far(self, round: int) -> bool:  # noqa: ARG002
        return False  # the barrier holds messages a little way ahead, and no further

    def tell_missing(self) -> bool:
        return False

    def link_up(self, peer: NodeName) -> None: ...

    def tell(self, notice: Notice) -> None: ...

    def announce(self, here: Here) -> None: ...

    def urge(self, round: int) -> None: ...

    def end(self) -> None: ...
