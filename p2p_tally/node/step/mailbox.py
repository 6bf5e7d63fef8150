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
from p2p_tally.node.step.relay import Relays, Word
from p2p_tally.node.step.trickle import Received, Trickle
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
    Lost,
    Message,
    News,
    Ready,
    Relayed,
    Shard,
    Stage,
    Tidings,
    Vote,
    Waiting,
    Withdraw,
)

log = logging.getLogger(__name__)

IN_TIME = (Arrival.RECORDED, Arrival.EARLY)

# A peer that goes on saying that it waits is given this many times the usual at most.
MOST_PATIENCES = 10.0
# A node that was away passes on the words of so many rounds that it has not come to.
CATCHING_UP = 64
MERGING = (Stage.VECTOR, Stage.SCATTER, Stage.GATHER)


class Mailbox:
    """One node's incoming side."""

    def __init__(
        self, name: NodeName, peers: Iterable[NodeName], limits: Limits, ballots: BallotFormat, ledger: Ledger
    ) -> None:
        self.name = name
        self.limits = limits
        self.ballots = ballots
        self.rounds = MAX_NUMBER  # of the run
        self.ledger = ledger
        self.arrivals: Counter[str] = Counter()  # what became of messages, by arrival or reason of refusal
        self.missed: Counter[NodeName] = Counter()  # deadlines that a peer let pass
        # Peers that are not waited for: they let a deadline pass, or have not begun. What they send in time counts,
        # and brings them back.
        self.silent: set[NodeName] = set()
        self.unheard: set[NodeName] = set()  # likewise of those whose votes come from afar; their links are others'
        self.begun: set[NodeName] = set()  # said that they play
        self.left: set[NodeName] = set()  # said goodbye
        self.finished: set[NodeName] = set()  # of those, who had played all rounds
        self.labels: Callable[[int], np.ndarray | None] = lambda _: None  # of a round's probes, -1 where there is none
        self.seen: dict[NodeName, int] = {}  # the furthest round that a peer spoke of
        self.joined: dict[NodeName, int] = {}  # the round after which a peer plays
        self._withdrawn: dict[NodeName, int] = {}  # the last merge that a peer gave up
        self.relays: Relays | None = None  # where votes travel further than to the neighbours
        self.last_near: Callable[[], int] = lambda: MAX_NUMBER  # the furthest round that an honest peer can be in
        self.say_waiting: Callable[[int, Stage], None] = lambda _round, _stage: None  # tell the neighbours
        self._told_lost: set[NodeName] = set()  # the missed peers that the others know of
        self.answer_waiting: Callable[[NodeName, int], None] = lambda _peer, _round: None
        self.received: Received = lambda _peer: None
        self._messages: Counter[NodeName] = Counter()  # that came over a peer's link, whatever became of them
        self._alive: dict[NodeName, float] = {}  # when a peer last gave a sign of life while this node waits
        self._reachable: set[NodeName] = set()  # whose votes can come in the round that is waited in
        self._barrier = Barrier(peers)
        self._filled = asyncio.Event()

    async def gather(
        self, stage: Stage, place: Place, welcome: Iterable[NodeName], patience: float | None
    ) -> dict[NodeName, Any]:
        """The items of one stage of a round, in order of name: all that came until everybody awaited had sent theirs,
        or the time was up."""
        welcome = list(welcome)
        self._reachable = set(welcome) if self.relays is None else self.relays.reachable(place[0])
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
        up to a bound, and so has one whose bytes still trickle in over a thin link; this node says that it waits too,
        to those that may be waiting for it."""
        clock = asyncio.get_running_loop().time
        started = clock()
        self._alive = {}
        deadline, reminder = started + patience, started + patience / 2
        trickle = Trickle(self.received, self._messages, any_message=stage in MERGING)
        while not await self._fill(min(deadline, reminder)):
            now = clock()
            self._alive.update(dict.fromkeys(filter(trickle.goes_on, self._barrier.missing), now))
            if now >= reminder:
                reminder = now + patience / 2
                self.say_waiting(round, stage)
            if now >= deadline:
                latest = started + MOST_PATIENCES * patience
                until = {peer: min(self._alive.get(peer, started) + patience, latest) for peer in self._barrier.missing}
                late = [peer for peer, end in until.items() if end <= now]
                for peer in late:
                    self._barrier.forgive(peer)
                self._give_up(late, round, stage)
                if late:
                    waited, names = now - started, ", ".join(late)
                    log.warning("waited %.1f s in vain for %s", waited, names, extra={"event": "missed"})
                deadline = min((end for end in until.values() if end > now), default=now)

    def give_up(self, peers: list[NodeName]) -> None:
        """Peers to which no link came in time."""
        self.missed.update(peers)
        for peer in peers:
            self.lost(peer)
        if peers:
            log.warning("no link to %s in time", ", ".join(peers), extra={"event": "missed"})

    def _give_up(self, late: list[NodeName], round: int, stage: Stage) -> None:
        """Peers that let their deadline pass are not waited for until they speak again."""
        self.missed.update(late)
        if self.relays is not None and stage is Stage.VOTE:
            self.unheard.update(late)
            late = [peer for peer in late if self.relays.is_neighbour(peer, round)]
        self.silent.update(late)
        self._look()

    def _tell_lost(self, relays: Relays) -> None:
        """Let everyone know whom this node misses, once that has changed."""
        missed = self.silent - self.finished
        if missed != self._told_lost:
            self._told_lost = missed
            relays.tell_lost(missed)
            self._forgive_unreachable(relays)

    def _forgive_unreachable(self, relays: Relays) -> None:
        """Whoever cannot be heard any more is not waited for."""
        round = self._voting_place()
        if round is not None:
            for peer in set(self._barrier.missing) - relays.reachable(round):
                self._barrier.forgive(peer)

    def _voting_place(self) -> int | None:
        """The round whose votes are being waited for, where they are passed on: a lost link alone ends no such wait."""
        place = self._barrier.place
        return place[1] if self.relays is not None and place is not None and place[0] is Stage.VOTE else None

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
        self._messages[peer] += 1
        try:
            message = frames.decode(frame, self.limits)
            self.ledger.book_received(peer, message.stage, message.payload, framed)
            verdict: str = self._accept(peer, message) if self._has_round(message) else Arrival.TOO_FAR
        except PeerError as error:
            verdict = error.reason
            kept_protocol = not isinstance(error, FrameError)
            log.warning("refused: %s", error, extra={"event": "refused", "peer": peer, "reason": verdict})
        self.arrivals[verdict] += 1
        self._look()
        return kept_protocol

    def _has_round(self, message: Message) -> bool:
        """Whether the run has the round of which this speaks: no honest peer speaks of others."""
        inner = message.message if isinstance(message, Relayed | News) else message
        return getattr(inner, "round", 0) <= self.rounds

    def lost(self, peer: NodeName) -> None:
        """The link to a peer is gone: what it has not sent it will not send."""
        self.silent.add(peer)
        if self._voting_place() is None:
            self._barrier.forgive(peer)
        self._look()

    def found(self, peer: NodeName, *, awaited: bool) -> None:
        """There is a link to a peer. It is awaited at once, or once it says that it plays."""
        self.left.discard(peer)
        (self.silent.discard if awaited else self.silent.add)(peer)
        self._look()

    def _awaits(self, peer: NodeName, stage: Stage, round: int) -> bool:
        given_up = stage in MERGING and self._withdrawn.get(peer) == round
        if self.relays is not None and stage is Stage.VOTE:
            return peer not in self.unheard and self.joined.get(peer, 0) < round and peer in self._reachable
        went_on = stage is Stage.ANNOUNCE and self.seen.get(peer, 0) > round
        return peer not in self.silent and self.joined.get(peer, 0) < round and not (given_up or went_on)

    def _look(self) -> None:
        if self.relays is not None:
            self._tell_lost(self.relays)
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
            case News():
                if self.relays is None:
                    raise FrameError("news where votes travel one hop", reason="unknown-kind")
                origin = self.relays.origin_of(message)
                if not self.relays.is_new(peer, origin, message):
                    return Arrival.DUPLICATE
                self._heed_news(self.relays, origin, message.message)
            case _:
                self._heed(peer, message)
        return Arrival.RECORDED

    def _accept_word(self, via: NodeName, origin: NodeName, hops: int, word: Word) -> Arrival:
        """A ballot, or the count that stands in for the one that a node is not casting yet."""
        wanted = self._barrier.wants(origin, Stage.VOTE, (word.round, 0))
        if self.relays is not None and word.round >= self._barrier.round:
            if word.round > self.last_near():
                return self._left_behind_by(self.relays, via, origin, hops, word)
            self.relays.check(via, origin, hops, word.round)
        item: Any = word
        if isinstance(word, Vote):
            # Checked before it is kept, so that a bad ballot is never counted.
            item = self.ballots.decode(word.ballot, self.labels(word.round)) if wanted else None
        raw = word.ballot if isinstance(word, Vote) else f"{word.right}/{word.of}".encode()
        verdict = self._arrive(origin, Stage.VOTE, word.round, 0, item, raw, via)
        if self.relays is not None:
            if verdict in IN_TIME:
                self.unheard.discard(origin)
                self.relays.pass_on(via, origin, hops, word)
            elif verdict is Arrival.DUPLICATE:
                self.relays.came_again(via, origin, hops, word.round)
        return verdict

    def _left_behind_by(self, relays: Relays, via: NodeName, origin: NodeName, hops: int, word: Word) -> Arrival:
        """A word of a round that its origin could not be in, had it waited for this node: its word of the round at hand
        will not come. It is not held either: a relay must not fill the place of another's next words."""
        self._barrier.forgive(origin)
        if via == origin:
            self.seen[origin] = max(word.round, self.seen.get(origin, 0))
        if word.round <= self.last_near() + CATCHING_UP:  # those further down the tree are in step, and need it
            relays.check(via, origin, hops, word.round)
            relays.pass_through(origin, hops, word)
        return Arrival.TOO_FAR

    def _heed_news(self, relays: Relays, origin: NodeName, tidings: Tidings) -> None:
        """A word from afar about a node itself. Its link, if there is one, speaks for itself."""
        voting = self._voting_place()
        self._alive[origin] = asyncio.get_running_loop().time()
        match tidings:
            case Here() if tidings.round <= self.last_near():
                self.joined[origin] = tidings.round
                self.unheard.discard(origin)
                if voting is not None and voting <= tidings.round:
                    self._barrier.forgive(origin)
            case Waiting():
                if voting is not None and voting < tidings.round:
                    self._barrier.forgive(origin)  # it has gone on, and its vote has been lost on the way
                if tidings.at is Stage.VOTE:
                    relays.urge(tidings.round)
                self.answer_waiting(origin, tidings.round)
            case Lost():
                self._forgive_unreachable(relays)

    def _heed(self, peer: NodeName, message: Message) -> None:
        """A word about the peer itself: where it is, and what need not be waited for."""
        match message:
            case Here():
                self.begun.add(peer)
                self.joined[peer] = message.round
                self.silent.discard(peer)
                self._alive[peer] = asyncio.get_running_loop().time()
                place = self._barrier.place
                if place is not None and place[1] <= message.round:
                    self._barrier.forgive(peer)  # it is past what is waited for here
            case Waiting():
                self._alive[peer] = asyncio.get_running_loop().time()
                place = self._barrier.place
                lost = place is not None and _has_spoken((message.at, message.round), place)
                if lost and self._voting_place() is None:
                    self._barrier.forgive(peer)  # what it had to say will not come any more, not even from others
                self.answer_waiting(peer, message.round)
            case Withdraw():
                self._withdrawn[peer] = message.round
                if self._barrier.is_open(MERGING, message.round):
                    self._barrier.forgive(peer)
            case Bye():
                self.left.add(peer)
                if message.round >= self.rounds:
                    self.finished.add(peer)
                self.lost(peer)
            case _:
                raise FrameError(f"{message.kind.name.lower()} after the handshake", reason="unknown-kind")

    def _arrive(
        self, peer: NodeName, stage: Stage, round: int, part: int, item: Any, raw: bytes, via: NodeName | None = None
    ) -> Arrival:
        """`via`: the neighbour that it came from, where that may be another."""
        verdict = self._barrier.arrive(peer, stage, (round, part), item, raw)
        if verdict is Arrival.EQUIVOCATION:
            passed = "" if via in (None, peer) else f", passed on by {via}"
            log.warning(
                "a second %s for round %d%s: the first stands", stage.name.lower(), round, passed,
                extra={"event": "equivocation", "peer": peer},
            )  # fmt: skip
        if via not in (None, peer):
            return verdict  # it says nothing of the link to the peer, and not where the peer is: others may lie
        if verdict in IN_TIME:
            self.silent.discard(peer)
        if round > self.seen.get(peer, 0):
            self.seen[peer] = round
            place = self._barrier.place
            if place is not None and place[0] is Stage.ANNOUNCE and place[1] < round:
                self._barrier.forgive(peer)  # it does not merge: a link keeps its messages in order
        return verdict


def _has_spoken(theirs: tuple[Stage, int], ours: tuple[Stage, int]) -> bool:
    """Whether a peer that waits at one place has sent all it will ever send for another.

    Votes come before announcements, and these before parameters, of which several runs are in flight at once.
    """
    order = {Stage.VOTE: 0, Stage.ANNOUNCE: 1}
    here, there = (ours[1], order.get(ours[0], 2)), (theirs[1], order.get(theirs[0], 2))
    return there > here or (there == here and here[1] < 2)
