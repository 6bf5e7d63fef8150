"""Staying in step with the others: the interface of this package to the round in node.py.

It holds what is known of the peers, and decides when this node may continue. It waits for the votes of a round, notices
when the others have continued without this node, makes the links that a round needs, and tells the others in which
round this node is. It knows nothing of models.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.learning.overlap import rounds_late
from p2p_tally.learning.schedule import next_voting_rounds
from p2p_tally.node.formats import message_limits
from p2p_tally.node.links.known_graph import KnownGraph
from p2p_tally.node.links.outbox import Outbox, framed_bytes
from p2p_tally.node.links.plan import LinkPlan
from p2p_tally.node.links.transport import Clock, Transport
from p2p_tally.node.position import Position
from p2p_tally.node.step.announcer import Announcer
from p2p_tally.node.step.handovers import Handovers
from p2p_tally.node.step.inbox import Inbox, Labels, ListDoor
from p2p_tally.node.step.notices import Notices
from p2p_tally.node.step.presence import Attendance
from p2p_tally.node.step.relay import RelayedVotes
from p2p_tally.node.step.votes import DirectVotes, VoteMessage, VoteRoute
from p2p_tally.node.step.waits import USUAL, Leeway, Waits
from p2p_tally.node.step.witness import Witness
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.deadlines import Deadlines
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.majority import Behind, Voice
from p2p_tally.protocol.messages import Hello, Stage, Vote
from p2p_tally.protocol.peers import Event, Roster
from p2p_tally.protocol.scores import Score
from p2p_tally.topologies import Epochs, Topology

log = logging.getLogger(__name__)


class Abandoned(Exception):
    """The round cannot be finished: this node was asked to stop, and so were nodes that it waits for."""


class LeftBehind(Exception):
    """The neighbours have continued without this node; `theirs`: the round that they are in."""

    def __init__(self, theirs: int) -> None:
        super().__init__(theirs)
        self.theirs = theirs


async def _nothing(_round: int) -> None: ...


class Step:
    """Keeps one node in step."""

    def __init__(
        self,
        name: NodeName,
        federation: Federation,
        topology: Topology,
        transport: Transport,
        outbox: Outbox,
        position: Position,
        ballots: BallotFormat,
        labels: Labels,
        deadlines: Deadlines,
        clock: Clock,
        least_present: int | None = 1,
        handovers: Handovers | None = None,
        lists: ListDoor | None = None,
        witness: Witness | None = None,
    ) -> None:
        """`least_present`: with fewer members, own included, it pauses before a round; None: a majority, and two."""
        self._name = name
        self._federation = federation
        self._ballots = ballots
        self._listed = lists is not None
        self._witness = witness
        self._topology = topology
        self._transport = transport
        self._position = position
        self._deadlines = deadlines
        self._clock = clock
        self._behind = Behind()
        members = [NodeName(member) for member in topology.members]
        self.roster = Roster(member for member in members if member != name)
        # If the graph does not change, all links are always needed.
        self.plan = LinkPlan(name, topology, federation) if topology.varies else None
        late = self._rounds_late = rounds_late(federation)
        self.votes: VoteRoute = (
            DirectVotes(self.neighbours, outbox, self.roster, self._make_notices(outbox, quiet=least_present == 1))
            if federation.hops == 1
            else RelayedVotes(
                name,
                topology,
                federation.hops,
                outbox,
                self.roster,
                position,
                lambda round: next_voting_rounds(federation, round, 3 + 2 * late)[-1],
                late,
            )
        )
        self.announcer = Announcer(self.neighbours, topology.varies, transport, outbox, self.votes, position, clock)
        self.attendance = Attendance(
            name,
            topology,
            self.roster,
            position,
            self.announcer,
            self.votes.notices,
            least_present,
            transport.open_links,
            grows=lists is not None,
        )
        self.waits = Waits(
            self.roster,
            self.votes,
            transport.received,
            self.announcer.waiting,
            deadlines.longest,
            self.attendance.pausing if self.attendance.counts else None,
            bounds_slow=deadlines.bounds_slow,
            rounds_late=late,
        )
        self.inbox = Inbox(
            self.roster,
            self.votes,
            self.waits,
            self.announcer,
            outbox.ledger,
            self._limits(),
            ballots,
            labels,
            federation.rounds,
            self.attendance.heard_here,
            self.attendance.heard_work,
            handovers,
            lambda peer: topology.last_round(peer, federation.rounds),
            lists,
            witness,
            keeps_scores=deadlines.timeout() is not None,
        )

    def _make_notices(self, outbox: Outbox, quiet: bool) -> Notices | None:
        """None where own links say all: all are neighbours, or a node knows no others than its neighbours."""
        topology, transport, position = self._topology, self._transport, self._position
        if isinstance(topology, KnownGraph) or (topology.is_complete() and not topology.varies):
            return None

        def receivers() -> list[NodeName]:
            return transport.open_links() if topology.varies else self.neighbours(position.round + 1)

        return Notices(self._name, topology, outbox, self.roster, receivers, quiet=quiet)

    def neighbours(self, round: int) -> list[NodeName]:
        return [NodeName(peer) for peer in self._topology.neighbours(self._name, round)]

    def _limits(self) -> Limits:
        return message_limits(self._federation, self._ballots, len(self._topology.members), listed=self._listed)

    def members_changed(self, first: int, graph: Topology, ranks: Iterable[str] = ()) -> int:
        """From round `first` on the members, and their graph, are these. For a federation that grows while it runs.

        Of a change that comes late the rounds that are past, and the present one, stay as they are. Returns the first
        round for which it holds here. The transport must know the addresses of new members before. `ranks`: new members
        in the order of their ranks.
        """
        assert isinstance(self._topology, Epochs), "a federation whose members change has epochs from the start"
        position = self._position
        first = max(first, position.round + (1 if position.between_rounds else 2))
        self._topology.extend(first, graph, ranks)
        for member in self._topology.members:
            if member != self._name:
                self.roster.add(NodeName(member))
        self.inbox.allow(self._limits())
        self.votes.members_changed()
        self.attendance.update()
        position.plays_until(self._topology.last_round(self._name, position.rounds))
        return first

    # --- before a round

    async def ready(self, round: int, meanwhile: Callable[[int], Awaitable[None]] = _nothing) -> None:
        """Pause until enough members are there. Raises LeftBehind if they have continued meanwhile, and Abandoned if
        this node is asked to stop. `meanwhile`: gives this node's state to who asks for it: it may be the one that is
        missing."""
        if self.attendance.enough(round):
            return
        if self.plan is not None:  # which may not need links to those who are missing before the next rounds
            self._transport.want(self.plan.needed(round) | self.roster.missing)
        await self.attendance.pause(round, meanwhile)
        if self._position.stopping:
            raise Abandoned
        self.check(round)

    def stop(self) -> None:
        """Ask this node to end after this round, or now if it is paused."""
        self._position.stop()
        self.attendance.update()

    # --- during a round

    def begin_round(self, round: int) -> None:
        """Make the links that the next rounds need, and end the others."""
        if self.plan is not None:
            self._transport.want(self.plan.needed(round))

    async def say(self, round: int, own: VoteMessage) -> None:
        """Send this node's vote of a round."""
        self.check(round)
        self._position.enter("barrier")
        await self.have_links(round)
        self.votes.send(round, own)
        if self._witness is not None and isinstance(own, Vote):
            self._witness.sent(round, own.ballot)

    async def hear(self, round: int) -> dict[NodeName, Any]:
        """Wait for the votes of a round of all nodes within reach."""
        heard = await self.gather(Stage.VOTE, round, 0, self.votes.voters(round))
        if self.waits.usual is not None:
            self._deadlines.observe(self.waits.usual)
        return heard

    async def gather(
        self, stage: Stage, round: int, part: int, peers: Iterable[NodeName], leeway: Leeway = USUAL
    ) -> dict[NodeName, Any]:
        """What these peers send for one part of a stage before their deadlines, in order of name."""
        return await self.waits.gather(stage, (round, part), peers, self._deadlines.timeout(), leeway)

    async def have_links(self, round: int) -> None:
        """If the graph changes: wait for the links of this round, because what is sent without a link is lost."""
        if self.plan is None:
            return
        await self.have_links_to(self.neighbours(round))

    async def have_links_to(self, peers: Iterable[NodeName]) -> None:
        """Wait for the links to those of these peers who are there."""
        partners = [peer for peer in peers if self.roster[peer].is_there]
        without = await self._transport.linked(partners, self._deadlines.timeout())
        for peer in without:
            self.roster[peer].kept_waiting(1.0)
            self.roster[peer].let_deadline_pass()
            self.waits.will_not_come(peer, "no link")
        if without:
            log.warning("no link to %s in time", ", ".join(without), extra={"event": "missed"})

    # --- whether this node is in step

    def check(self, round: int) -> None:
        """Raise LeftBehind if most neighbours of a round are already in a later one.

        If they had waited for this node they could not be: they would still need the message that it is about to send.
        With --overlap they need it one round later.
        """
        peers, latest = [self.roster[peer] for peer in self.neighbours(round)], round + self._rounds_late
        theirs = self._behind.later_round(latest, [Voice(peer.seen, peer.shown, peer.is_there) for peer in peers])
        if theirs is None:
            theirs = self.attendance.round_of_members(latest)
        if theirs is not None:
            raise LeftBehind(theirs)

    def rejoin(self, theirs: int) -> None:
        """Continue after the round that follows the neighbours' present one, so that this node's vote comes in time."""
        behind = self._position.round
        self._position.move_to(theirs + 1)
        log.warning("behind: from round %d to %d", behind, self._position.round, extra={"event": "catch-up"})
        self.announcer.here()

    def leave_if_others_left(self, round: int) -> None:
        """A node that was asked to stop finishes its round. If a neighbour has left already, it gives the round up."""
        if self._position.stopping and not self.roster.left.isdisjoint(self.neighbours(round)):
            raise Abandoned

    # --- called by the transport

    def deliver(self, peer: NodeName, frame: bytes) -> bool:
        framed = framed_bytes(len(frame), masked=not self._transport.masks(peer))
        kept_protocol = self.inbox.deliver(peer, frame, framed)
        self.attendance.update()
        return kept_protocol

    def link_up(self, peer: NodeName, hello: Hello) -> None:
        self.votes.link_up(peer)
        if self._witness is not None:
            self._witness.link_up(peer)
        playing, known = self._position.playing or self._is_joining, self.roster[peer]
        # If the graph changes, links are made by the schedule: then neither end has missed anything.
        scheduled = playing and self.plan is not None and known.is_there
        if scheduled and hello.running:
            known.linked_again(hello.round)
            return
        begins_later = playing and not (hello.running or scheduled)
        known.on(Event.LINK_UP_EARLY if begins_later else Event.LINK_UP)
        # A running peer may have sent its messages of its present round before the link was up: do not wait for them.
        known.joins_after(hello.round + 1 if hello.running else 0)
        self.waits.update()
        if playing and not scheduled:
            self.announcer.here_to(peer)
        self.attendance.update()

    def scores(self) -> dict[NodeName, Score]:
        """The scores of all other members, as of now."""
        self.waits.pass_time()
        return {name: peer.score for name, peer in self.roster.items()}

    def merges_with(self, peer: NodeName) -> bool:
        return self.roster[peer].score.merged

    def why_closed(self, peer: NodeName) -> str:
        """Why there may be no link to this peer now; empty: there may."""
        if peer not in self.roster:
            return ""
        score = self.scores()[peer]
        return "; ".join(score.reasons) if score.closed else ""

    @property
    def _is_joining(self) -> bool:
        """Whether this node waits for its first round while others play."""
        ahead = self._position.round + 1
        return self._name in self._topology.newcomers(ahead) or self._name not in self._topology.members_at(ahead)

    def link_down(self, peer: NodeName) -> None:
        self.waits.link_lost(peer)
        self.attendance.update()
