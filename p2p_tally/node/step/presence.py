"""Who is there before a round. With fewer members than the operator wants a node pauses until they are back.

A member is present if this node reaches it over links that are up, directly or over others. Where all are neighbours,
or a node knows no others than its neighbours, its own links say so; elsewhere the notices of all nodes do.

A peer that comes back from its checkpoint a few rounds behind is not present yet: whoever needs it waits until it has
played these rounds again. A node that reaches the round of such a peer tells it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from p2p_tally.ids import NodeName, in_order
from p2p_tally.node.position import PAUSED, Position
from p2p_tally.node.step.announcer import Announcer
from p2p_tally.node.step.notices import Notices
from p2p_tally.protocol.majority import round_of_most
from p2p_tally.protocol.messages import Here
from p2p_tally.protocol.peers import Roster
from p2p_tally.protocol.presence import least_present, worth_waiting_for
from p2p_tally.topologies import Topology

log = logging.getLogger(__name__)


class Attendance:
    """Counts the members that are there, for one node."""

    def __init__(
        self,
        name: NodeName,
        topology: Topology,
        roster: Roster,
        position: Position,
        announcer: Announcer,
        notices: Notices | None,
        chosen: int | None,
        open_links: Callable[[], Iterable[NodeName]] = tuple,
        grows: bool = False,
    ) -> None:
        """`notices`: None where this node's own links say who is there. `chosen`: the least number of members that the
        operator wants; 1: nobody is counted, and nothing is sent for it."""
        self._name = name
        self._topology = topology
        self._roster = roster
        self._position = position
        self._announcer = announcer
        self._notices = notices
        self._chosen = chosen
        self._open_links = open_links
        self._grows = grows
        self.counts = chosen != 1
        self._changed = asyncio.Event()
        self._paused: int | None = None  # the round before which this node pauses
        self._begun = False
        self._behind: dict[NodeName, int] = {}  # peers that play again what this node has played, up to this round
        self._ahead: dict[NodeName, int] = {}  # peers that wait for this node after this round
        self._changes_seen = 0  # `Notices.changes` at the last look
        self._reached: set[NodeName] = set()  # who could be reached then
        if self.counts and notices is not None:
            notices.pass_rounds_on()

    # --- counting

    def least(self, round: int) -> int:
        """The least number of members, own included, that play or merge."""
        return least_present(1 + len(self._others(round)), self._chosen, grows=self._grows)

    def absent(self, round: int) -> list[NodeName]:
        """The members of a round that are not there, in order of name."""
        others = self._others(round)
        away = {peer for peer in others if not self._is_with_us(peer)}
        new = away.intersection(self._topology.newcomers(round))
        if new:  # who has a link waits for the state of a member, and plays when it has got it
            away -= new.intersection(self._open_links())
        if self._notices is None:
            return in_order(away)
        return in_order(set(others) - self._notices.part(round, without=away))

    def _others(self, round: int) -> list[NodeName]:
        members = set(self._topology.members_at(round))
        return [peer for peer in self._roster if peer in members]

    def _is_with_us(self, peer: NodeName) -> bool:
        known = self._roster[peer]
        if known.finished:  # it has played all rounds: nobody has to wait for it
            return True
        return known.is_there and known.seen >= self._behind.get(peer, 0)

    def enough(self, round: int) -> bool:
        """Whether enough members are there to play a round."""
        if not self.counts:
            return True
        self._begin()
        self._tell_those_ahead()
        return not self.lacks(round)

    def lacks(self, round: int) -> bool:
        """Whether fewer members are there than needed."""
        return self.counts and 1 + len(self._others(round)) - len(self.absent(round)) < self.least(round)

    def _begin(self) -> None:
        """Once: let all know that somebody counts. Then also those tell whom they miss who do not count themselves.

        Where the others are this node may have heard before it knew its own round. Of its neighbours their links tell.
        """
        if self._begun or self._notices is None:
            return
        self._begun = True
        self._notices.tell_lost()
        now = self._position.round + 1
        self._reached = self._notices.part(now)
        for peer in set(self._notices.rounds).difference([self._name], self._topology.neighbours(self._name, now)):
            self._roster[peer].joins_after(self._notices.rounds[peer])

    def pausing(self, round: int, peers: Iterable[NodeName]) -> list[NodeName]:
        """Those of these peers that pause before a round which this node has begun, or before an earlier one: the last
        that they have said is that they have not begun it, and too few members are there."""
        known = ((peer, self._roster[peer]) for peer in peers)
        not_begun = [peer for peer, its in known if 0 < its.joined < round and its.seen <= its.joined]
        return not_begun if not_begun and self.lacks(round) else []

    # --- the pause

    async def pause(self, round: int, meanwhile: Callable[[int], Awaitable[None]]) -> None:
        """Wait until enough members are there for a round, or this node is asked to stop. `meanwhile` is called when
        something has changed."""
        self._paused = round
        self._position.enter(PAUSED)
        log.warning("paused before round %d: %s", round, self._count(round), extra={"event": "paused"})
        self._announcer.here()  # to those who have given this node up
        while not (self._position.stopping or self.enough(round)):
            self._changed.clear()
            await meanwhile(round)
            await self._changed.wait()
        self._paused = None
        if not self._position.stopping:
            log.info("going on with round %d: %s", round, self._count(round), extra={"event": "goes-on"})

    def _count(self, round: int) -> str:
        absent, members = self.absent(round), 1 + len(self._others(round))
        missing = f"; missing: {', '.join(absent)}" if absent else ""
        return f"{members - len(absent)} of {members} members are there, needed are {self.least(round)}{missing}"

    def update(self) -> None:
        """Something has changed: a message came, a link is up or down, or this node is asked to stop."""
        if not self.counts:
            return
        self._changed.set()
        if self._notices is not None and self._notices.changes != self._changes_seen:
            self._changes_seen = self._notices.changes
            before, self._reached = self._reached, self._notices.part(self._position.round + 1)
            if self._begun and self._reached - before:
                self._notices.tell(Here(self._position.round))  # those who are back do not know where the others are

    @property
    def missing(self) -> list[NodeName] | None:
        """For whom a paused node waits; None: it is not paused."""
        return None if self._paused is None else self.absent(self._paused)

    # --- what peers let this node know

    def heard_here(self, peer: NodeName, round: int, is_back: bool) -> None:
        """A neighbour said that it plays the rounds after this one; `is_back`: it was away."""
        own = self._position.round
        if self._paused is not None:
            self._roster[peer].wait_once()
        if is_back:
            waits = round < own and worth_waiting_for(round, own, self._position.rounds)
            self._behind[peer] = own if waits else 0
        if round > own:
            self._ahead[peer] = round

    def heard_work(self, peer: NodeName) -> None:
        """A vote, an announcement or parameters came over a neighbour's own link. In a round it may be too late, and
        then says nothing; for a node that waits for anybody it is enough."""
        if self._paused is not None and not self._roster[peer].is_there:
            self._roster[peer].wait_once()

    def _tell_those_ahead(self) -> None:
        for peer, round in list(self._ahead.items()):
            if round <= self._position.round:
                del self._ahead[peer]
                self._announcer.here_to(peer)

    def round_of_members(self, round: int) -> int | None:
        """The round that a majority of the members told all to have finished, if it is later than this one. On a sparse
        graph all neighbours of a node may have been away with it."""
        if not self.counts or self._notices is None:
            return None
        others, reached = self._others(round), self._notices.part(round)
        rounds = self._notices.rounds
        told = [rounds[peer] for peer in others if peer in reached and peer in rounds]
        theirs = round_of_most(told, len(others))
        return theirs if theirs is not None and theirs > round else None
