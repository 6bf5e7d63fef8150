"""One node: Algorithm 1, round by round, over a transport.

The simulator and the daemon run this same loop; they differ in the transport, in where the learner's work is done
(`compute`), and in who listens to the reports.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from p2p_tally.ids import NodeName, in_order
from p2p_tally.learning.consensus import Answer
from p2p_tally.learning.learner import Evaluation, Learner
from p2p_tally.learning.methods import METHODS, Sent
from p2p_tally.learning.schedule import channel, evaluates, merges
from p2p_tally.node.mailbox import Mailbox
from p2p_tally.node.merge import MergeExchange, expected_lengths
from p2p_tally.node.outbox import Outbox, framed_bytes
from p2p_tally.node.transport import Transport
from p2p_tally.protocol.ballots import BallotFormat, Form
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.ledger import Count, Ledger
from p2p_tally.protocol.messages import Ready, Stage, Vote
from topologies import Topology

Compute = Callable[..., Awaitable[Any]]


@dataclass
class RoundReport:
    """What one round was at one node."""

    round: int
    evaluation: Evaluation | None = None
    answers: list[Answer] = field(default_factory=list)  # what this node distilled on, in order of name
    merged: bool = False
    sent: dict[Stage, Count] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # by phase


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
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name
        self.learner = learner
        self.federation = learner.federation
        self.method = METHODS[self.federation.method]
        self.topology = topology
        self.transport = transport
        self.recorder = recorder
        self.compute = compute
        self.clock = clock
        self.round = 0
        # The round after which the channel opens; None while an automatic warm-up lasts.
        self.warmup = self.federation.warmup if isinstance(self.federation.warmup, int) else None

        self.ledger = Ledger()
        self.ballots = ballot_format(learner)
        limits = Limits.of(self.ballots.largest, merging=bool(self.federation.merge_every))
        members = [NodeName(member) for member in topology.members]
        peers = [member for member in members if member != name]
        self.mailbox = Mailbox(name, peers, limits, self.ballots, self.ledger)
        self.mailbox.expect_vectors(expected_lengths(name, members, len(learner.parameters)))
        self.outbox = Outbox(name, transport, self.ledger)
        self.exchange = MergeExchange(name, members, self.mailbox, self.outbox)

    async def run(self) -> None:
        """All rounds that are left."""
        await self.transport.start(self.deliver)
        try:
            while self.round < self.federation.rounds:
                await self._play(self.round + 1)
        finally:
            await self.transport.close()

    def deliver(self, peer: NodeName, frame: bytes) -> None:
        """A frame that came in over the transport."""
        self.mailbox.deliver(peer, frame, framed_bytes(peer, self.name, len(frame)))

    async def _play(self, r: int) -> None:
        """Round r of Algorithm 1."""
        report = RoundReport(r)
        watch = Stopwatch(self.clock, report.seconds)

        await self.compute(self.learner.train)
        watch.lap("train")

        now = channel(self.federation, r, self.warmup)
        if now.trains:
            own = await self.compute(self.learner.vote, r)
            watch.lap("vote")
            report.answers = await self._poll(r, own) if now.speaks else [own]
            watch.lap("barrier")
            if not self.method.distils_merged:
                await self.compute(self.learner.distill, r, report.answers, now)
                watch.lap("distill")
        elif self.warmup is None and self.method.waits and self.method.learns_from_probes:
            await self._wait_for_half(r)
            watch.lap("barrier")

        if merges(self.federation, r):
            await self._merge(r)
            report.merged = True
            watch.lap("merge")
        if now.trains and self.method.distils_merged:
            await self.compute(self.learner.distill, r, report.answers, now)
            watch.lap("distill")

        self.round = r
        if evaluates(self.federation, r):
            report.evaluation = await self.compute(self.learner.evaluate)
            watch.lap("evaluate")
        report.sent = self.ledger.settle()
        await self.recorder.record(self, report)

    async def _poll(self, r: int, own: Answer) -> list[Answer]:
        """Broadcast this node's answer, hear the neighbours'; all at hand, in order of name."""
        neighbours = self._neighbours(r)
        self.outbox.broadcast(neighbours, Vote(r, self.ballots.encode(own)))
        heard = await self.mailbox.gather(Stage.VOTE, r, neighbours)
        answers = {peer: item for peer, item in heard.items() if not isinstance(item, Ready)}
        answers[self.name] = own
        return [answers[member] for member in in_order(answers)]

    async def _wait_for_half(self, r: int) -> None:
        """An automatic warm-up: open the channel once the neighbourhood is right on half of the probes.

        A neighbour whose channel is open already sends a ballot; that opens ours too, so an opening spreads over a
        sparse graph by one hop a round, and over a mesh all nodes open in the same one.
        """
        neighbours = self._neighbours(r)
        right, of = await self.compute(self.learner.probe_accuracy, r)
        self.outbox.broadcast(neighbours, Ready(r, right, of))
        heard = await self.mailbox.gather(Stage.VOTE, r, neighbours)
        counts = [Ready(r, right, of)] + [item for item in heard.values() if isinstance(item, Ready)]
        accuracy = sum(count.right / count.of for count in counts) / len(counts)
        if len(counts) <= len(heard) or accuracy > 0.5:
            self.warmup = r

    async def _merge(self, r: int) -> None:
        vector = self.learner.export()
        if self.topology.is_complete(r):
            average = await self.exchange.all_reduce(r, vector)
        else:
            weights = {NodeName(peer): weight for peer, weight in self.topology.weights(self.name, r).items()}
            average = await self.exchange.mix(r, vector, weights)
        await self.compute(self.learner.merge, average)

    def _neighbours(self, r: int) -> list[NodeName]:
        return [NodeName(peer) for peer in self.topology.neighbours(self.name, r)]


class Stopwatch:
    """Seconds by phase: each lap is added under its name."""

    def __init__(self, clock: Callable[[], float], seconds: dict[str, float]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._last = clock()

    def lap(self, phase: str) -> None:
        now = self._clock()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._last
        self._last = now


def ballot_format(learner: Learner) -> BallotFormat:
    """How this learner's answers are written."""
    federation = learner.federation
    sent = METHODS[federation.method].sent
    forms: dict[Sent, Form] = {
        Sent.NOTHING: "byte",
        Sent.VOTES: federation.ballot,
        Sent.TOP_K: "top-k",
        Sent.SOFT: "soft",
    }
    return BallotFormat(forms[sent], learner.probes.votes_per_round, learner.classes, federation.top_k)
