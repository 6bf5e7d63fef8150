"""What a node tells the others about itself: that it plays rounds, that it waits, that it leaves."""

import math

from p2p_tally.ids import NodeName
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.links.transport import Clock, Transport
from p2p_tally.node.position import Position
from p2p_tally.node.step.votes import Neighbours, VoteRoute
from p2p_tally.protocol.messages import Bye, Here, Message, Stage, Waiting

# Waiting peers that are not neighbours are answered with one message to all, at most this often.
ANSWER_SECONDS = 0.2


class Announcer:
    """The announcements of one node. Each contains the round at that moment."""

    def __init__(
        self,
        neighbours: Neighbours,
        graph_changes: bool,
        transport: Transport,
        outbox: Outbox,
        votes: VoteRoute,
        position: Position,
        clock: Clock,
    ) -> None:
        self._neighbours = neighbours
        self._graph_changes = graph_changes
        self._transport = transport
        self._outbox = outbox
        self._votes = votes
        self._position = position
        self._clock = clock
        self._answered = -math.inf  # when peers that are not neighbours were last answered

    def here(self) -> None:
        """This node plays, starting with the round after its position."""
        here = Here(self._position.round)
        self._tell_all(here)
        if here.round:
            self._votes.announce(here)

    def here_to(self, peer: NodeName) -> None:
        self._outbox.broadcast([peer], Here(self._position.round))

    def welcome(self, peer: NodeName, round: int) -> None:
        """A peer plays again, after this round. If that is past, tell it where this node is: what it knows is as old as
        its links, and the others would wait for it."""
        if self._position.round > round:
            self.here_to(peer)

    def bye(self) -> None:
        self._tell_all(Bye(self._position.round))
        self._votes.end()

    def waiting(self, round: int, at: Stage) -> None:
        """This node is alive and waits, so that no other gives up on it."""
        waiting = Waiting(round, at)
        self._outbox.broadcast(self._neighbours(round), waiting)
        if at is Stage.VOTE:
            self._votes.tell(waiting)
            self._votes.long_wait(round)

    def answer(self, peer: NodeName, round: int) -> None:
        """A peer waits in this round. If this node has not finished it, tell the peer that this node is alive."""
        if self._position.round >= round:
            return
        if not self._votes.relayed or peer in self._neighbours(round):
            self.here_to(peer)
        elif self._clock() > self._answered + ANSWER_SECONDS:
            self._answered = self._clock()
            self._votes.tell(Here(self._position.round))  # to all: others probably wait too

    def _tell_all(self, message: Message) -> None:
        """To the neighbours. If the graph changes, after the first round to all peers with an open link."""
        round = self._position.round
        if self._graph_changes and round:
            self._outbox.broadcast(self._transport.open_links(), message)
        else:
            self._outbox.broadcast(self._neighbours(max(1, round)), message)
