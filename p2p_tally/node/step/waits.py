"""Waiting for the others at a stage of a round: who is waited for, how long, and when the wait is over.

A peer is given its deadline from its last sign of life: that it waits too, or that bytes of its message still come
over a thin link. Ten deadlines after the wait began it is over for everybody.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any

from p2p_tally.ids import NodeName
from p2p_tally.node.step.votes import VoteRoute
from p2p_tally.protocol.barrier import Arrival, Barrier, Place
from p2p_tally.protocol.messages import Stage
from p2p_tally.protocol.peers import MERGING, Event, Roster

log = logging.getLogger(__name__)

# A peer that goes on saying that it waits is given this many times the usual at most.
MOST_PATIENCES = 10.0

# Bytes that have come over a peer's link, of messages that are not whole yet too; None where nobody counts them.
BytesReceived = Callable[[NodeName], int | None]

# Tells the neighbours that this node waits at a stage of a round.
SayWaiting = Callable[[int, Stage], None]


class Waits:
    """One node's waiting. Only the event loop's thread touches any of this."""

    def __init__(
        self, roster: Roster, votes: VoteRoute, bytes_received: BytesReceived, say_waiting: SayWaiting
    ) -> None:
        self._roster = roster
        self._votes = votes
        self._bytes_received = bytes_received
        self._say_waiting = say_waiting
        self._barrier = Barrier(roster)
        self._filled = asyncio.Event()
        self._alive: dict[NodeName, float] = {}  # when a peer last gave a sign of life, in the wait at hand

    async def gather(
        self, stage: Stage, place: Place, welcome: Iterable[NodeName], patience: float | None
    ) -> dict[NodeName, Any]:
        """The items of one stage of a round, in order of name: all that came until everybody awaited had sent theirs,
        or the time was up."""
        welcome = list(welcome)
        awaited = self._awaited(stage, place[0], welcome)  # asked first: opening takes what came early
        self._barrier.open(stage, place, welcome, awaited)
        try:
            if patience is None:
                await self._fill(None)
            else:
                await self._wait(patience, place[0], stage)
        except BaseException:
            self._barrier.close()
            raise
        return self._barrier.close()

    def _awaited(self, stage: Stage, round: int, welcome: list[NodeName]) -> list[NodeName]:
        if stage is not Stage.VOTE:
            return [peer for peer in welcome if self._roster[peer].is_awaited(stage, round)]
        reachable = set(self._votes.reachable(round))
        awaited = [peer for peer in welcome if peer in reachable and self._votes.awaits(peer, round)]
        return [peer for peer in awaited if not self._has_lost_vote(peer, round)]

    def _has_lost_vote(self, peer: NodeName, round: int) -> bool:
        """Whether a peer's vote went out before this node could take it: before there was a link, or before this node
        began. A link keeps its messages in order, so that a peer in this round has sent its vote of it."""
        sent = self._roster[peer].seen >= round and not self._votes.relayed
        return sent and not self._barrier.holds(peer, Stage.VOTE, (round, 0))

    async def _wait(self, patience: float, round: int, stage: Stage) -> None:
        """Wait for the awaited, and give up on those whose time is up. Twice in each deadline this node says that it
        waits, to those that may be waiting for it."""
        clock = asyncio.get_running_loop().time
        started = clock()
        self._alive = {}
        deadline, reminder = started + patience, started + patience / 2
        arriving = StillArriving(self._bytes_received, self._roster, any_message=stage in MERGING)
        while not await self._fill(min(deadline, reminder)):
            now = clock()
            self._alive.update(dict.fromkeys(filter(arriving.look, self._barrier.missing), now))
            if now >= reminder:
                reminder = now + patience / 2
                self._say_waiting(round, stage)
            if now >= deadline:
                latest = started + MOST_PATIENCES * patience
                until = {peer: min(self._alive.get(peer, started) + patience, latest) for peer in self._barrier.missing}
                late = [peer for peer, end in until.items() if end <= now]
                self._give_up(late, round, stage)
                if late:
                    waited, names = now - started, ", ".join(late)
                    log.warning("waited %.1f s in vain for %s", waited, names, extra={"event": "missed"})
                deadline = min((end for end in until.values() if end > now), default=now)

    def _give_up(self, late: list[NodeName], round: int, stage: Stage) -> None:
        """Peers that let their deadline pass are not waited for until they speak again."""
        for peer in late:
            self._barrier.forgive(peer)
            if stage is Stage.VOTE:
                self._votes.gave_up(peer, round)
            else:
                self._roster[peer].let_deadline_pass()
        self.look()

    async def _fill(self, until: float | None) -> bool:
        """Wait until everybody awaited has come, or that instant; whether they have."""
        if not self._barrier.complete:
            self._filled.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._filled.wait()
        return self._barrier.complete

    # --- what happens meanwhile

    def look(self) -> None:
        """Something has changed. Whoever can no longer be heard is not waited for; the wait may be over."""
        if self._votes.tell_missing():
            round = self.relayed_round
            for peer in [] if round is None else set(self._barrier.missing).difference(self._votes.reachable(round)):
                self._barrier.forgive(peer)
        if self._barrier.complete:
            self._filled.set()

    def sign_of_life(self, peer: NodeName) -> None:
        """A peer is well, though what is awaited has not come."""
        self._alive[peer] = asyncio.get_running_loop().time()

    def link_lost(self, peer: NodeName) -> None:
        """What a peer has not sent it will not send; but a relayed vote may come another way."""
        self._roster[peer].on(Event.LINK_DOWN)
        self.will_not_come(peer)

    def will_not_come(self, peer: NodeName) -> None:
        """Nothing more comes over this peer's own link for the stage that is waited in."""
        if self.relayed_round is None:
            self._barrier.forgive(peer)
        self.look()

    def forgive(self, peer: NodeName) -> None:
        """Wait no longer for this peer; what it sent before still counts."""
        self._barrier.forgive(peer)

    def wants(self, peer: NodeName, stage: Stage, place: Place) -> bool:
        """Whether something new from this peer would be taken: what is not wanted need not be decoded."""
        return self._barrier.wants(peer, stage, place)

    def arrive(self, peer: NodeName, stage: Stage, place: Place, item: Any, raw: bytes) -> Arrival:
        return self._barrier.arrive(peer, stage, place, item, raw)

    # --- where this node waits

    @property
    def round(self) -> int:
        """The last round that something was waited for in."""
        return self._barrier.round

    @property
    def place(self) -> tuple[Stage, int] | None:
        """The stage and round that are being waited for, if any."""
        return self._barrier.place

    @property
    def relayed_round(self) -> int | None:
        """The round whose relayed votes are being waited for, if any."""
        place = self._barrier.place
        return place[1] if self._votes.relayed and place is not None and place[0] is Stage.VOTE else None

    def is_merging(self, round: int) -> bool:
        """Whether parameters of this round's merge are being waited for."""
        return self._barrier.is_open(MERGING, round)


class StillArriving:
    """Whether what a peer sends is on its way, from one look to the next. Slow is not silent.

    The bytes of a message that is not whole yet are a sign of life. Whole messages are one only with `any_message`,
    in a merge, where many follow each other on a link: of a ballot, others that came prove that it was not behind
    them.
    """

    def __init__(self, bytes_received: BytesReceived, roster: Roster, any_message: bool) -> None:
        self._bytes_received, self._roster, self._any_message = bytes_received, roster, any_message
        self._before: dict[NodeName, tuple[int | None, int]] = {}

    def look(self, peer: NodeName) -> bool:
        received, messages = self._bytes_received(peer), self._roster[peer].messages
        before, messages_before = self._before.get(peer, (None, 0))
        self._before[peer] = received, messages
        came = received is not None and before is not None and received > before
        return came and (self._any_message or messages == messages_before)
