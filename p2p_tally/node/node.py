"""One node: Algorithm 1, round by round, over a transport.

The simulator and the daemon run this same loop; they differ in the transport, in where the learner's work is done
(`compute`), in how long they wait (`deadlines`), and in who listens to the reports.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from p2p_tally.ids import NodeName, in_order
from p2p_tally.learning.consensus import Answer, measure
from p2p_tally.learning.learner import Learner, votes_of
from p2p_tally.learning.methods import Sends, method_of
from p2p_tally.learning.schedule import Channel, channel, drifted, evaluates, merges, next_words
from p2p_tally.node.ballot_format import ballot_format
from p2p_tally.node.links.outbox import Outbox, framed_bytes
from p2p_tally.node.links.plan import LinkPlan
from p2p_tally.node.links.transport import Clock, Transport
from p2p_tally.node.merges.exchange import MergeExchange
from p2p_tally.node.merges.ring import RingExchange
from p2p_tally.node.reports import RoundReport, Stopwatch
from p2p_tally.node.step.mailbox import Mailbox
from p2p_tally.node.step.relay import Relays
from p2p_tally.protocol import frames
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.deadlines import Deadlines, default_quorum
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.handshake import majority_round
from p2p_tally.protocol.ledger import Ledger
from p2p_tally.protocol.messages import (
    Bye,
    Hello,
    Here,
    Message,
    Ready,
    Stage,
    Vote,
    Waiting,
)
from p2p_tally.topologies import Topology

log = logging.getLogger(__name__)

# Those who wait far away are answered together, at most this often.
ANSWER_SECONDS = 0.2

Compute = Callable[..., Awaitable[Any]]


class Abandoned(Exception):
    """A round that cannot be finished: this node is asked to stop, and so were those it waits for."""


class LeftBehind(Exception):
    """The neighbours have gone on without this node."""

    def __init__(self, theirs: int) -> None:
        super().__init__(theirs)
        self.theirs = theirs


class Recorder(Protocol):
    async def record(self, node: "Node", report: RoundReport) -> None: ...


async def compute_here(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do the learner's work at once, on this thread."""
    return work(*arguments)


class Node:
    """A participant: a learner, its neighbours, and the round it is in."""

    def __init__(
        self,
        name: NodeName,
        learner: Learner,
        topology: Topology,
        transport: Transport,
        recorder: Recorder,
        compute: Compute = compute_here,
        clock: Clock = time.perf_counter,
        deadlines: Deadlines | None = None,
        quorum: int | None = None,
    ) -> None:
        self.name = name
        self.learner = learner
        self.federation = learner.federation
        self.method = method_of(self.federation)
        self.topology = topology
        self.transport = transport
        self.recorder = recorder
        self.compute = compute
        self.clock = clock
        self.deadlines = deadlines or Deadlines()
        self.quorum = quorum
        self.round = 0  # the last one finished
        self.phase = "waiting"
        self.stopping = False
        self.between_rounds = True  # nothing of the next round has been done yet
        self._told_afar = -math.inf  # when those afar that wait were last told that this node is at work
        # The round after which the channel opens; None while an automatic warm-up lasts.
        self.warmup = self.federation.warmup if isinstance(self.federation.warmup, int) else None

        self.merged_at = 0  # the last round in which this node merged with others, or tried to

        self.ledger = Ledger()
        self.ballots = ballot_format(learner)
        members = [NodeName(member) for member in topology.members]
        limits = Limits.of(self.ballots.largest, len(members), merging=bool(self.federation.merge_every))
        peers = [member for member in members if member != name]
        self.mailbox = Mailbox(name, peers, limits, self.ballots, self.ledger)
        if self.ballots.form == "coded":
            self.mailbox.labels = learner.probes.labels_of
        self.mailbox.answer_waiting = self._answer_waiting
        self.mailbox.say_waiting = self._say_waiting
        self.mailbox.received = transport.received
        self.mailbox.rounds = self.federation.rounds
        self.outbox = Outbox(name, transport, self.ledger)
        # Where the graph stays, all links do.
        self.plan = LinkPlan(name, topology, self.federation) if topology.varies else None
        self.relays: Relays | None = None
        if self.federation.hops != 1:
            self.relays = self.mailbox.relays = Relays(
                name, topology, self.federation.hops, self.outbox, lambda: self.round + 1
            )
            near = lru_cache(4)(lambda round: next_words(self.federation, round)[-1])
            self.mailbox.last_near = lambda: near(self.round + 1)
        coding = ChangeFormat(self.federation.merge_precision, self.federation.merge_top_k)
        common = name, members, self.mailbox, self.outbox, self.deadlines.timeout, coding
        if self.federation.merge_over == "ring" and topology.ring is not None and len(members) > 1:
            self.exchange: MergeExchange = RingExchange([NodeName(member) for member in topology.ring], *common)
        else:
            self.exchange = MergeExchange(*common)

    async def run(self, announce: bool = True) -> None:
        """All rounds that are left, or until asked to stop. The transport has been started and is closed by others.

        Without `announce` the neighbours are not told where this node begins: they know.
        """
        if announce:
            self._tell_all(Here(self.round))
            self._tell_afar(Here(self.round))
        try:
            while self.round < self.federation.rounds and not self.stopping:
                try:
                    await self._play(self.round + 1)
                except LeftBehind as behind:
                    self._rejoin(behind.theirs)
        except Abandoned:
            log.info("round %d abandoned", self.round + 1, extra={"event": "abandoned"})
        self.phase = "done" if self.round >= self.federation.rounds else "stopped"
        self._tell_all(Bye(self.round))
        if self.relays is not None:
            self.relays.over = True

    async def _play(self, r: int) -> None:
        """Round r of Algorithm 1."""
        report = RoundReport(r)
        watch = Stopwatch(self.clock, report.seconds)

        if self.plan is not None:
            self.transport.want(self.plan.needed(r))
        self.phase = "train"
        self.between_rounds = False
        await self.compute(self.learner.train)
        watch.lap("train")

        now, weights = channel(self.federation, r, self.warmup), None
        if now.trains:
            self.phase = "vote"
            own = await self.compute(self.learner.vote, r)
            watch.lap("vote")
            polled = await self._poll(r, own) if now.speaks else {self.name: own}
            report.answers = list(polled.values())
            now = self._with_quorum(now, r, report.answers)
            weights = self._weights(r, polled) if now.speaks else None
            watch.lap("barrier")
            if not self.method.distils_merged:
                await self._distill(r, report.answers, now, weights)
                watch.lap("distill")
        elif self.warmup is None and self.method.waits and self.method.learns_from_probes:
            await self._wait_for_half(r)
            watch.lap("barrier")

        report.due = self._merge_is_due(r, report.answers if now.speaks else [])
        if report.due:
            self.phase = "merge"
            report.merged = await self._merge(r)
            watch.lap("merge")
        if now.trains and self.method.distils_merged and report.merged:
            await self._distill(r, report.answers, now, weights)
            watch.lap("distill")

        self.round = r
        self.between_rounds = True
        if evaluates(self.federation, r):
            self.phase = "evaluate"
            report.evaluation = await self.compute(self.learner.evaluate)
            watch.lap("evaluate")
        report.sent = self.ledger.settle()
        await self.recorder.record(self, report)

    async def _poll(self, r: int, own: Answer) -> dict[NodeName, Answer]:
        """Broadcast this node's answer, hear the others'; all at hand, in order of name."""
        if not self.ballots.can_say(own):  # others wait for a word all the same: none of the probes right
            log.warning("round %d: the model has diverged, no ballot", r, extra={"event": "diverged"})
            heard = await self._hear(r, Ready(r, 0, self.ballots.count))
        else:
            heard = await self._hear(r, Vote(r, self.ballots.encode(own, self.mailbox.labels(r))))
            heard[self.name] = self.ballots.heard(own)
        answers = {peer: item for peer, item in heard.items() if not isinstance(item, Ready)}
        return {member: answers[member] for member in in_order(answers)}

    def _weights(self, r: int, polled: dict[NodeName, Answer]) -> np.ndarray | None:
        """How much each of the answers counts; None where all count alike."""
        if self.federation.tally_weights == "uniform":
            return None
        row = self.topology.mixed_weights(self.name, r, self.federation.hops)
        weights = np.array([row.get(member, 0.0) for member in polled])
        weights /= weights.sum()
        return weights

    async def _wait_for_half(self, r: int) -> None:
        """An automatic warm-up: open the channel once the neighbourhood is right on half of the probes.

        A neighbour whose channel is open already sends a ballot; that opens ours too, so an opening spreads over a
        sparse graph by one hop a round, and over a mesh all nodes open in the same one.
        """
        right, of = await self.compute(self.learner.probe_accuracy, r)
        # A channel that will never speak is each node's own affair.
        silent = self.method.sends is Sends.NOTHING or self.federation.alpha == 1
        heard = {} if silent else await self._hear(r, Ready(r, right, of))
        counts = [Ready(r, right, of)] + [item for item in heard.values() if isinstance(item, Ready)]
        # In fractions: a sum of floats depends on its order, and peers at exactly a half would open in other rounds.
        right_on_average = sum(Fraction(count.right, count.of) for count in counts) / len(counts)
        some_are_open = len(counts) <= len(heard)
        if some_are_open or right_on_average > Fraction(1, 2):
            self.warmup = r

    async def _hear(self, r: int, own: Vote | Ready) -> dict[NodeName, Any]:
        """Send this node's word for round r to its neighbours, and wait for that of all within reach."""
        self._check_in_step(r)
        self.phase = "barrier"
        await self._have_links(r)
        neighbours, audible = self._neighbours(r), self._audible(r)
        if self.relays is None:
            self.outbox.broadcast(neighbours, own)
        else:
            self.relays.speak(r, own)
        started = self.clock()
        heard: dict[NodeName, Any] = await self.mailbox.gather(Stage.VOTE, (r, 0), audible, self.deadlines.timeout())
        if len(heard) == len(audible):
            self.deadlines.saw(self.clock() - started)
        self._leave_if_others_left(neighbours)
        return heard

    def _with_quorum(self, now: Channel, r: int, answers: list[Answer]) -> Channel:
        """Below the quorum a consensus is no consensus: the round learns from labels alone."""
        audible = len(self._audible(r))
        needed = self.quorum or default_quorum(audible + 1)
        if not now.speaks or len(answers) >= needed:
            return now
        if audible:  # who has nobody to hear in this round misses nobody
            event = {"event": "no-quorum"}
            log.warning("%d votes, quorum %d: no consensus this round", len(answers), needed, extra=event)
        return Channel(now.label, 0.0)

    async def _distill(self, r: int, answers: list[Answer], now: Channel, weights: np.ndarray | None) -> None:
        self.phase = "distill"
        if now.trains:
            await self.compute(self.learner.distill, r, answers, now, weights)

    def _merge_is_due(self, r: int, answers: list[Answer]) -> bool:
        """By the clock; or by the answers that all peers of a mesh have, and so decide alike."""
        if self.federation.merge_when == "clock":
            return merges(self.federation, r)
        if len(answers) < 2:
            return False
        votes = np.stack([votes_of(answer) for answer in answers])  # [N, P]
        return drifted(self.federation, r, self.merged_at, measure(votes, self.learner.classes, None).agreement)

    async def _merge(self, r: int) -> bool:
        """Exchange parameters and take the mean; False where the merge was not completed and all is as before."""
        by_clock = self.federation.merge_when == "clock"
        if by_clock:
            self._check_in_step(r)
        await self._have_links(r)
        vector = self.learner.export()
        if isinstance(self.exchange, RingExchange):
            merged = await self.exchange.around(r, vector)
        elif self.topology.is_complete(r):
            merged = await self.exchange.all_reduce(r, vector, self.learner.feedback)
        else:
            weights = {NodeName(peer): weight for peer, weight in self.topology.weights(self.name, r).items()}
            merged = await self.exchange.mix(r, vector, weights)
        self._leave_if_others_left(self._neighbours(r))
        if self.exchange.alone and not by_clock:
            # Others saw other votes, or merged lately when this node was away: it asks again next round.
            return False
        self.merged_at = r
        if merged is None:
            log.warning("merge of round %d not completed: kept as it was", r, extra={"event": "merge-skipped"})
            return False
        await self.compute(self.learner.merge, merged.average, merged.kept)
        return True

    async def _have_links(self, r: int) -> None:
        """Where links come and go: what is said before there is one is lost."""
        if self.plan is None:
            return
        partners = [peer for peer in self._neighbours(r) if peer not in self.mailbox.silent]
        self.mailbox.give_up(await self.transport.linked(partners, self.deadlines.timeout()))

    def _check_in_step(self, r: int) -> None:
        """Raise LeftBehind where most neighbours of round r have gone past it without this node's word.

        In good faith they cannot: to go on they need the very message that this node is about to send.
        """
        seen, silent = self.mailbox.seen, self.mailbox.silent
        # One that is there and has not spoken yet is no further than this node: the first to speak is no majority.
        rounds = [seen.get(peer, 0) for peer in self._neighbours(r) if peer in seen or peer not in silent]
        theirs = majority_round(rounds) if rounds else 0
        if theirs > r:
            raise LeftBehind(theirs)

    def _rejoin(self, theirs: int) -> None:
        """Go on in the round after the one that the neighbours are in, so that this node's word is there in time."""
        behind, self.round = self.round, min(theirs + 1, self.federation.rounds)
        log.warning("behind: from round %d to %d", behind, self.round, extra={"event": "catch-up"})
        self._tell_all(Here(self.round))
        self._tell_afar(Here(self.round))

    def _leave_if_others_left(self, neighbours: list[NodeName]) -> None:
        """Asked to stop, this node finishes its round; but not a round that others, asked too, have not played."""
        if self.stopping and any(peer in self.mailbox.left for peer in neighbours):
            raise Abandoned

    def _neighbours(self, r: int) -> list[NodeName]:
        return [NodeName(peer) for peer in self.topology.neighbours(self.name, r)]

    def _audible(self, r: int) -> list[NodeName]:
        """Whose votes of round r are for this node's tally: those within so many hops."""
        return self._neighbours(r) if self.relays is None else self.relays.audible(r)

    def _tell_all(self, message: Message) -> None:
        """The neighbours; once a run on a graph that changes has begun, everybody that there is a link to."""
        near = self.plan is None or not self.round
        self.outbox.broadcast(self._neighbours(max(1, self.round)) if near else self.transport.open_links(), message)

    def _tell_afar(self, here: Here) -> None:
        """Where votes come from afar: this node is there again, and misses others than it may have said before."""
        if self.relays is not None and here.round:
            self.relays.tell(here)
            self.relays.tell_lost(self.mailbox.silent)

    def _say_waiting(self, r: int, at: Stage) -> None:
        self.outbox.broadcast(self._neighbours(r), Waiting(r, at))
        if self.relays is not None and at is Stage.VOTE:
            self.relays.tell(Waiting(r, at))
            self.relays.urge(r)

    # --- what the transport tells

    def deliver(self, peer: NodeName, frame: bytes) -> bool:
        return self.mailbox.deliver(peer, frame, framed_bytes(peer, self.name, len(frame)))

    def link_up(self, peer: NodeName, hello: Hello) -> None:
        if self.relays is not None:
            self.relays.welcome(peer)
        known = self.plan is not None and self.phase != "waiting" and peer not in self.mailbox.silent
        if known and hello.running:  # a link that the schedule made: neither end has missed anything
            self.mailbox.joined[peer] = max(hello.round, self.mailbox.joined.get(peer, 0))
            return
        # What a running peer said of the round it is in may have gone out before there was a link to carry it.
        self.mailbox.joined[peer] = hello.round + 1 if hello.running else 0
        self.mailbox.found(peer, awaited=hello.running or known or self.phase == "waiting")
        if self.phase != "waiting" and not known:
            self.outbox.send(peer, Here(self.round), frames.encode(Here(self.round)))

    def _answer_waiting(self, peer: NodeName, r: int) -> None:
        """A peer waits in round r: if this node is not so far, it is at work or waits for its links, and says so."""
        if self.round >= r:
            return
        here = Here(self.round)
        if self.relays is None or peer in self._neighbours(r):
            self.outbox.send(peer, here, frames.encode(here))
        elif self.clock() > self._told_afar + ANSWER_SECONDS:
            self._told_afar = self.clock()
            self.relays.tell(here)  # to all at once: others wait too

    def link_down(self, peer: NodeName) -> None:
        self.mailbox.lost(peer)
