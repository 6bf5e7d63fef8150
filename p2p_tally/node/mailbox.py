"""What comes in: frames become checked items at the barrier, and the round loop waits here for a stage to fill.

A peer's mistake ends here: counted by reason, logged, dropped. Only the event loop's thread touches any of this.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from p2p_tally.errors import FrameError, PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.relay import Relays, Word
from p2p_tally.protocol import frames
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.barrier import Arrival, Barrier, Place
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.ledger import Ledger
from p2p_tally.protocol.messages import (
    MAX_NUMBER,
    Announce,
    Bye,
    Here,
    Message,
    Ready,
    Relayed,
    Shard,
    Stage,
    Vote,
    Waiting,
    Withdraw,
)

log = logging.getLogger(__name__)

IN_TIME = (Arrival.RECORDED, Arrival.EARLY)

# A peer that goes on saying that it waits is given this many times the usual at most.
MOST_PATIENCES = 10.0
MERGING = (Stage.VECTOR, Stage.SCATTER, Stage.GATHER)


class Mailbox:
    """One node's incoming side."""

    def __init__(
        self, name: NodeName, peers: Iterable[NodeName], limits: Limits, ballots: BallotFormat, ledger: Ledger
    ) -> None:
        self.name = name
        self.limits = limits
        self.ballots = ballots
        self.ledger = ledger
        self.arrivals: Counter[str] = Counter()  # what became of messages, by arrival or reason of refusal
        self.missed: Counter[NodeName] = Counter()  # deadlines that a peer let pass
        # Peers that are not waited for: they let a deadline pass, or have not begun. What they send in time counts,
        # and brings them back.
        self.silent: set[NodeName] = set()
        self.left: set[NodeName] = set()  # said goodbye
        self.labels: Callable[[int], np.ndarray | None] = lambda _: None  # of a round's probes, -1 where there is none
        self.seen: dict[NodeName, int] = {}  # the furthest round that a peer spoke of
        self.joined: dict[NodeName, int] = {}  # the round after which a peer plays
        self._withdrawn: dict[NodeName, int] = {}  # the last merge that a peer gave up
        self.relays: Relays | None = None  # where votes travel further than to the neighbours
        self.last_near: Callable[[], int] = lambda: MAX_NUMBER  # the furthest round that an honest peer can be in
        self.say_waiting: Callable[[int, Stage], None] = lambda _round, _stage: None  # tell the neighbours
        self.answer_waiting: Callable[[NodeName, int], None] = lambda _peer, _round: None
        self._alive: dict[NodeName, float] = {}  # when a peer last gave a sign of life while this node waits
        self._barrier = Barrier(peers)
        self._filled = asyncio.Event()

    async def gather(
        self, stage: Stage, place: Place, welcome: Iterable[NodeName], patience: float | None
    ) -> dict[NodeName, Any]:
        """The items of one stage of a round, in order of name: all that came until everybody awaited had sent theirs,
        or the time was up."""
        welcome = list(welcome)
        self._barrier.open(stage, place, welcome, [peer for peer in welcome if self._awaits(peer, stage, place[0])])
        try:
            if patience is None:
                await self._fill(None)
            else:
                await self._wait(patience, place[0], stage)
        except BaseException:
            self._barrier.close()
            raise
        return self._barrier.close()

    async def _wait(self, patience: float, round: int, stage: Stage) -> None:
        """Wait for the awaited; give up on those whose time is up. A peer that says it is itself waiting has more time,
        up to a bound; this node says so too, to those that may be waiting for it."""
        clock = asyncio.get_running_loop().time
        started = clock()
        self._alive = {}
        deadline, reminder = started + patience, started + patience / 2
        while not await self._fill(min(deadline, reminder)):
            now = clock()
            if now >= reminder:
                reminder = now + patience / 2
                self.say_waiting(round, stage)
            if now >= deadline:
                latest = started + MOST_PATIENCES * patience
                until = {peer: min(self._alive.get(peer, started) + patience, latest) for peer in self._barrier.missing}
                late = [peer for peer, end in until.items() if end <= now]
                for peer in late:
                    self._barrier.forgive(peer)
                self.silent.update(late)
                self.missed.update(late)
                if late:
                    waited, names = now - started, ", ".join(late)
                    log.warning("waited %.1f s in vain for %s", waited, names, extra={"event": "missed"})
                deadline = min((end for end in until.values() if end > now), default=now)

    async def _fill(self, until: float | None) -> bool:
        """Wait until everybody awaited has come, or that instant; whether they have."""
        if not self._barrier.complete:
            self._filled.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._filled.wait()
        return self._barrier.complete

    def deliver(self, peer: NodeName, frame: bytes, framed: int) -> bool:
        """A frame from a link. Never raises for what a peer did; False where it was no message at all."""
        kept_protocol = True
        try:
            message = frames.decode(frame, self.limits)
            self.ledger.book_received(peer, message.stage, message.payload, framed)
            verdict: str = self._accept(peer, message)
        except PeerError as error:
            verdict = error.reason
            kept_protocol = not isinstance(error, FrameError)
            log.warning("refused: %s", error, extra={"event": "refused", "peer": peer, "reason": verdict})
        self.arrivals[verdict] += 1
        self._look()
        return kept_protocol

    def lost(self, peer: NodeName) -> None:
        """The link to a peer is gone: what it has not sent it will not send."""
        self.silent.add(peer)
        self._barrier.forgive(peer)
        self._look()

    def found(self, peer: NodeName, *, awaited: bool) -> None:
        """There is a link to a peer. It is awaited at once, or once it says that it plays."""
        self.left.discard(peer)
        (self.silent.discard if awaited else self.silent.add)(peer)

    def _awaits(self, peer: NodeName, stage: Stage, round: int) -> bool:
        given_up = stage in MERGING and self._withdrawn.get(peer) == round
        return peer not in self.silent and self.joined.get(peer, 0) < round and not given_up

    def _look(self) -> None:
        if self._barrier.complete:
            self._filled.set()

    def _accept(self, peer: NodeName, message: Message) -> Arrival:
        match message:
            case Vote() | Ready():
                return self._accept_word(peer, peer, 1, message)
            case Relayed():
                if self.relays is None:
                    raise FrameError("a relayed vote where votes travel one hop", reason="unknown-kind")
                return self._accept_word(peer, self.relays.origin_of(message), message.hops, message.message)
            case Announce():
                return self._arrive(peer, Stage.ANNOUNCE, message.round, 0, message, message.present + message.base)
            case Shard():
                # Length and values are checked where they are used: only there it is known who takes part.
                return self._arrive(peer, message.stage, message.round, message.part, message.data, message.data)
            case _:
                self._heed(peer, message)
        return Arrival.RECORDED

    def _accept_word(self, via: NodeName, origin: NodeName, hops: int, word: Word) -> Arrival:
        """A ballot, or the count that stands in for the one that a node is not casting yet."""
        wanted = self._barrier.wants(origin, Stage.VOTE, (word.round, 0))
        if self.relays is not None and wanted:
            if word.round > self.last_near():
                return Arrival.TOO_FAR  # a relay must not fill the place of another's next words
            self.relays.check(via, origin, hops, word.round)
        item: Any = word
        if isinstance(word, Vote):
            # Checked before it is kept, so that a bad ballot is never counted.
            item = self.ballots.decode(word.ballot, self.labels(word.round)) if wanted else None
        raw = word.ballot if isinstance(word, Vote) else f"{word.right}/{word.of}".encode()
        verdict = self._arrive(origin, Stage.VOTE, word.round, 0, item, raw)
        if self.relays is not None and verdict in IN_TIME:
            self.relays.pass_on(origin, hops, word)
        return verdict

    def _heed(self, peer: NodeName, message: Message) -> None:
        """A word about the peer itself: where it is, and what need not be waited for."""
        match message:
            case Here():
                self.joined[peer] = message.round
                self.silent.discard(peer)
                self._alive[peer] = asyncio.get_running_loop().time()
                place = self._barrier.place
                if place is not None and place[1] <= message.round:
                    self._barrier.forgive(peer)  # it is past what is waited for here
            case Waiting():
                self._alive[peer] = asyncio.get_running_loop().time()
                place = self._barrier.place
                if place is not None and _has_spoken((message.at, message.round), place):
                    self._barrier.forgive(peer)  # what it had to say is lost: it will not come any more
                self.answer_waiting(peer, message.round)
            case Withdraw():
                self._withdrawn[peer] = message.round
                if self._barrier.is_open(MERGING, message.round):
                    self._barrier.forgive(peer)
            case Bye():
                self.left.add(peer)
                self.lost(peer)
            case _:
                raise FrameError(f"{message.kind.name.lower()} after the handshake", reason="unknown-kind")

    def _arrive(self, peer: NodeName, stage: Stage, round: int, part: int, item: Any, raw: bytes) -> Arrival:
        verdict = self._barrier.arrive(peer, stage, (round, part), item, raw)
        if verdict in IN_TIME:
            self.silent.discard(peer)
        elif verdict is Arrival.EQUIVOCATION:
            log.warning(
                "a second %s for round %d: the first stands", stage.name.lower(), round,
                extra={"event": "equivocation", "peer": peer},
            )  # fmt: skip
        if round > self.seen.get(peer, 0):
            self.seen[peer] = round
        return verdict


def _has_spoken(theirs: tuple[Stage, int], ours: tuple[Stage, int]) -> bool:
    """Whether a peer that waits at one place has sent all it will ever send for another.

    Votes come before announcements, and these before parameters, of which several runs are in flight at once.
    """
    order = {Stage.VOTE: 0, Stage.ANNOUNCE: 1}
    here, there = (ours[1], order.get(ours[0], 2)), (theirs[1], order.get(theirs[0], 2))
    return there > here or (there == here and here[1] < 2)
