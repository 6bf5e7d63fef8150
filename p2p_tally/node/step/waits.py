"""Waits for the others at a stage of a round: for whom, how long, and when the wait is over.

The timeout of a peer starts again with each sign of life: it says that it waits too, or bytes of its message still
come over a slow link. That does not go on for ever: what a node waits in vain, and what it waits for one peer much
longer than for most, lowers the score of that peer (protocol/scores.py). Every wait of half a timeout or more is
logged, with its reason.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from p2p_tally.ids import NodeName
from p2p_tally.node.step.votes import VoteRoute
from p2p_tally.protocol.barrier import HELD_AHEAD, RUNS_HELD_AHEAD, Arrival, Barrier, Place
from p2p_tally.protocol.lateness import Lateness
from p2p_tally.protocol.messages import Stage
from p2p_tally.protocol.peers import MERGING, Event, Roster
from p2p_tally.protocol.scores import Offence

log = logging.getLogger(__name__)

# Bytes that have come over a peer's link, including parts of messages; None where they are not counted.
BytesReceived = Callable[[NodeName], int | None]

# Where words do not count for ever: fewer bytes in half a timeout are words, not parameters.
WORTH_WAITING = 1024

# Tells the neighbours that this node waits at a stage of a round.
SayWaiting = Callable[[int, Stage], None]

# Those of these peers that pause before a round that this node plays.
Pausing = Callable[[int, Iterable[NodeName]], Collection[NodeName]]


class Leeway(NamedTuple):
    """What one wait allows the peers."""

    share: float = 1.0  # of a timeout: how long each has
    heeded: float = math.inf  # by how many timeouts that time is longer if it says that it waits too
    runs_ahead: int = RUNS_HELD_AHEAD  # how many of its runs of parameters are held before they are awaited


USUAL = Leeway()


class Waits:
    """The waits of one node. All of this runs on the event loop's thread."""

    def __init__(
        self,
        roster: Roster,
        votes: VoteRoute,
        bytes_received: BytesReceived,
        say_waiting: SayWaiting,
        longest: float = math.inf,
        pausing: Pausing | None = None,
        *,
        bounds_slow: bool = True,
        rounds_late: int = 0,
    ) -> None:
        """`longest`: seconds that no wait may exceed. `pausing`: None where nobody pauses. `bounds_slow`: whether it
        costs a peer something that it is much slower than most. `rounds_late`: how many rounds after its own the votes
        of a round are awaited."""
        self._roster = roster
        self._votes = votes
        self._bytes_received = bytes_received
        self._say_waiting = say_waiting
        self._longest = longest
        self._pausing = pausing
        self._barrier = Barrier(roster, HELD_AHEAD + 2 * rounds_late)
        self._filled = asyncio.Event()
        # The present wait: when it began, its timeout (without one there is no clock), and when each peer last gave a
        # sign of life.
        self._started = 0.0
        self._timeout: float | None = None
        self._heeded_until = math.inf
        self._alive: dict[NodeName, float] = {}
        self._lateness = Lateness()
        self.arriving = 0.0  # seconds of the last wait in which bytes of those awaited kept coming
        self._bounds_slow = bounds_slow
        self._scored: float | None = None  # until when the scores know of time

    async def gather(
        self,
        stage: Stage,
        place: Place,
        accepted: Iterable[NodeName],
        seconds: float | None,
        leeway: Leeway = USUAL,
    ) -> dict[NodeName, Any]:
        """Wait until all awaited peers have sent their items of a stage, or the time is up. Returns what came, in order
        of name. Items from any `accepted` peer are recorded, awaited or not. `seconds`: the timeout. Bytes that come
        give a peer more time, whatever the leeway."""
        accepted = list(accepted)
        awaited = self._awaited(stage, place[0], accepted)  # asked first: opening takes what came early
        if self._pausing is not None:
            awaited = list(set(awaited).difference(self._pausing(place[0], awaited)))
        self._started, self._timeout, self.arriving = asyncio.get_running_loop().time(), seconds, 0.0
        self._heeded_until = self._started + (math.inf if seconds is None else leeway.heeded * seconds)
        self._barrier.open(stage, place, accepted, awaited, leeway.runs_ahead)
        try:
            if seconds is None:
                await self._fill(None)
            else:
                self._lateness.begin(place[0], self._started, awaited, self._barrier.missing)
                await self._wait(leeway.share * seconds, place[0], stage)
                self._lateness.end(asyncio.get_running_loop().time())
                self._charge_late(seconds, stage)
        except BaseException:
            self._barrier.close()
            raise
        return self._barrier.close()

    @property
    def usual(self) -> float | None:
        """Seconds after which half of those that the last wait was for had come; None if fewer came."""
        return self._lateness.usual

    def pass_time(self) -> bool:
        """Tell the scores how much time has passed. False: where there are no deadlines there is no time."""
        if self._timeout is None:
            return False
        now = asyncio.get_running_loop().time()
        self._roster.pass_time(now - (now if self._scored is None else self._scored), self._timeout)
        self._scored = now
        return True

    def _awaited(self, stage: Stage, round: int, accepted: list[NodeName]) -> list[NodeName]:
        if stage is not Stage.VOTE:
            return [peer for peer in accepted if self._roster[peer].is_awaited(stage, round)]
        reachable = set(self._votes.reachable(round))
        awaited = [peer for peer in accepted if peer in reachable and self._votes.awaits(peer, round)]
        return [peer for peer in awaited if not self._has_lost_vote(peer, round)]

    def _has_lost_vote(self, peer: NodeName, round: int) -> bool:
        """Whether a peer sent its vote before this node could receive it: before there was a link, or before this node
        began. A link keeps messages in order, so a peer that is in this round has sent its vote of it."""
        sent = self._roster[peer].seen >= round and not self._votes.relayed
        return sent and not self._barrier.holds(peer, Stage.VOTE, (round, 0))

    async def _wait(self, seconds: float, round: int, stage: Stage) -> None:
        """Wait for the awaited peers, and give up on those whose time is up. Twice in each timeout this node tells the
        others that it waits, because they may be waiting for it."""
        clock, started = asyncio.get_running_loop().time, self._started
        self.pass_time()
        self._alive = {}
        deadline, reminder = started + seconds, started + seconds / 2
        looked, came = started, False
        arriving = StillArriving(
            self._bytes_received,
            self._roster,
            any_message=stage in MERGING,
            least=1 if math.isinf(self._heeded_until) else WORTH_WAITING,
        )
        while not await self._fill(min(deadline, reminder)):
            now = clock()
            progressed = list(filter(arriving.progressed, self._barrier.missing))
            self._alive.update(dict.fromkeys(progressed, now))
            came = bool(progressed)
            self.arriving += (now - looked) * came
            looked = now
            if now >= reminder:
                reminder = now + seconds / 2
                self._say_waiting(round, stage)
            if now >= deadline:
                until = {peer: self._end_for(peer, seconds) for peer in self._barrier.missing}
                late = [peer for peer, end in until.items() if end <= now]
                if late:
                    waited, names = now - started, ", ".join(late)
                    log.warning("waited %.1f s in vain for %s", waited, names, extra={"event": "missed"})
                self._give_up(late, round, stage)
                deadline = min((end for end in until.values() if end > now), default=now)
        self.arriving += (clock() - looked) * came

    def _end_for(self, peer: NodeName, seconds: float) -> float:
        """When the wait for this peer ends."""
        most = min(self._roster[peer].score.deadlines * seconds, self._longest)
        return min(self._alive.get(peer, self._started) + seconds, self._started + most)

    def _give_up(self, late: list[NodeName], round: int, stage: Stage) -> None:
        """Peers that missed their deadline are not waited for until they send something again."""
        for peer in late:
            self._stop(peer)
            if stage is Stage.VOTE:
                self._votes.gave_up(peer, round)
            else:
                self._roster[peer].let_deadline_pass()
        self.update()

    async def _fill(self, until: float | None) -> bool:
        """Wait until all awaited items have come, or this time is reached. Returns whether all have come."""
        if not self._barrier.complete:
            self._filled.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._filled.wait()
        return self._barrier.complete

    # --- what happens during a wait

    def update(self) -> None:
        """Something has changed. Stop waiting for peers that cannot be reached any more; the wait may be over."""
        if self._votes.tell_missing():
            round = self.relayed_round
            for peer in [] if round is None else set(self._barrier.missing).difference(self._votes.reachable(round)):
                self._stop(peer, "it cannot be reached")
        if self._pausing is not None and self.place is not None:
            for peer in self._pausing(self.place[1], self._barrier.missing):
                self._stop(peer, "it is paused")
        if self._barrier.complete:
            self._filled.set()

    def _stop(self, peer: NodeName, why: str = "") -> None:
        """Do not wait for this peer any longer. If this node has waited for it in vain, that costs patience, and is
        logged if it was long. Without `why` the caller has logged it."""
        if self._timeout is not None and self._barrier.awaits(peer):
            waited = asyncio.get_running_loop().time() - self._started
            if why and waited >= self._timeout / 2:
                extra = {"event": "missed", "peer": peer, "reason": why}
                log.warning("waited %.1f s in vain: %s", waited, why, extra=extra)
            if self._roster[peer].kept_waiting(waited / self._timeout):
                text = "waited too often in vain: it is not awaited until it plays again"
                log.warning(text, extra={"event": "out-of-patience", "peer": peer})
        self._barrier.stop_awaiting(peer)

    def _charge_late(self, seconds: float, stage: Stage) -> None:
        """What came long after that of most costs its sender as much as it took longer. Runs of parameters take as long
        as a link needs for them, and are no matter of this."""
        if not self._bounds_slow or stage in MERGING:
            return
        for peer, excess in self._lateness.excesses().items():
            known = self._roster[peer]
            was_there = known.is_there
            known.charge(Offence.SLOW, excess / seconds)
            if was_there and not known.is_there:
                text = "is much slower than most: from now on it is awaited for a part of the time"
                log.warning(text, extra={"event": "out-of-patience", "peer": peer})

    def sign_of_life(self, peer: NodeName) -> None:
        """A peer is alive, although its item has not come."""
        now = min(asyncio.get_running_loop().time(), self._heeded_until)
        self._alive[peer] = max(now, self._alive.get(peer, now))

    def link_lost(self, peer: NodeName) -> None:
        """The link to a peer has ended: nothing more comes over it. A relayed vote may still come over another path."""
        self._roster[peer].on(Event.LINK_DOWN)
        self.will_not_come(peer, "its link has ended")

    def will_not_come(self, peer: NodeName, why: str) -> None:
        """Nothing more comes over this peer's own link for the present stage."""
        if self.relayed_round is None:
            self._stop(peer, why)
        self.update()

    def stop_awaiting(self, peer: NodeName, why: str) -> None:
        """Do not wait for this peer any longer. What it has sent still counts."""
        self._stop(peer, why)

    def wants(self, peer: NodeName, stage: Stage, place: Place) -> bool:
        """Whether a new item from this peer would be recorded or held. If not, there is no need to decode it."""
        return self._barrier.wants(peer, stage, place)

    def arrive(
        self, peer: NodeName, stage: Stage, place: Place, item: Any, raw: bytes | memoryview, link: int = 0
    ) -> Arrival:
        awaited = self._timeout is not None and self._barrier.awaits(peer)
        arrival = self._barrier.arrive(peer, stage, place, item, raw, link)
        if awaited and arrival is Arrival.RECORDED:
            self._lateness.came(peer, asyncio.get_running_loop().time())
            self._log_if_slow(peer, stage)
        return arrival

    def _log_if_slow(self, peer: NodeName, stage: Stage) -> None:
        waited = asyncio.get_running_loop().time() - self._started
        if self._timeout is not None and waited >= self._timeout / 2:
            extra = {"event": "slow", "peer": peer}
            log.info("waited %.1f s for its %s", waited, stage.name.lower(), extra=extra)

    # --- where this node waits

    @property
    def round(self) -> int:
        """The last round in which this node waited for something."""
        return self._barrier.round

    @property
    def place(self) -> tuple[Stage, int] | None:
        """The stage and the round of the present wait; None if there is none."""
        return self._barrier.place

    @property
    def relayed_round(self) -> int | None:
        """The round, if this node waits for relayed votes now; otherwise None."""
        place = self._barrier.place
        return place[1] if self._votes.relayed and place is not None and place[0] is Stage.VOTE else None

    def is_merging(self, round: int) -> bool:
        """Whether this node waits for parameters of this round's merge now."""
        return self._barrier.is_open(MERGING, round)


class StillArriving:
    """Whether a message of a peer is still arriving: a slow peer is not a silent one.

    The bytes of an incomplete message are a sign of life. Complete messages are one only with `any_message`: in a merge
    many messages follow each other on a link. While a ballot is awaited they are not, because the ballot was not among
    them.
    """

    def __init__(self, bytes_received: BytesReceived, roster: Roster, any_message: bool, least: int = 1) -> None:
        """`least`: how many bytes are a sign of life."""
        self._bytes_received, self._roster, self._any_message = bytes_received, roster, any_message
        self._least = least
        self._before: dict[NodeName, tuple[int | None, int]] = {}

    def progressed(self, peer: NodeName) -> bool:
        """Whether bytes have come since the last call."""
        received, messages = self._bytes_received(peer), self._roster[peer].messages
        before, messages_before = self._before.get(peer, (None, 0))
        self._before[peer] = received, messages
        came = received is not None and before is not None and received - before >= self._least
        return came and (self._any_message or messages == messages_before)
