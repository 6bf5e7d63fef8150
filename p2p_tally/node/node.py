"""One node: Algorithm 1, round by round.

The simulator and the daemon run this same loop. They differ in the transport, in the thread that does the learner's
work (`compute`), in the timeouts (`deadlines`), and in what they record (`recorder`). The package step/ keeps the node
in step with the others, and merges/ averages parameters.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from p2p_tally.ids import NodeName
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.schedule import channel, evaluates, merge_is_due, waits_for_half
from p2p_tally.node.formats import ballot_format
from p2p_tally.node.handover import Handover, state_size
from p2p_tally.node.links.outbox import MakeOutbox, Outbox
from p2p_tally.node.links.transport import Clock, Transport
from p2p_tally.node.merger import Compute, Merger
from p2p_tally.node.merges.choice import make_exchange
from p2p_tally.node.merges.exchange import Peers, members_digest
from p2p_tally.node.merges.outer import OuterState
from p2p_tally.node.overlap.merger import LateMerger
from p2p_tally.node.overlap.poll import LatePoll
from p2p_tally.node.poll import Heard, Poll
from p2p_tally.node.position import Position
from p2p_tally.node.reports import RoundReport, Stopwatch
from p2p_tally.node.step.handovers import Handovers
from p2p_tally.node.step.inbox import ListDoor
from p2p_tally.node.step.step import Abandoned, LeftBehind, Step
from p2p_tally.node.step.witness import Witness
from p2p_tally.protocol.deadlines import Deadlines
from p2p_tally.protocol.ledger import Count, Ledger
from p2p_tally.protocol.messages import Stage
from p2p_tally.topologies import Topology

log = logging.getLogger(__name__)


class Recorder(Protocol):
    def wants_all(self, round: int) -> bool:
        """Whether nothing may be under way when this round is recorded."""
        ...

    async def record(self, node: "Node", report: RoundReport) -> None:
        """A round is finished."""
        ...

    def book(self, sent: dict[Stage, Count]) -> None:
        """What was sent after the last round, by a node that was asked to stop."""
        ...


async def compute_here(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do the learner's work at once, on this thread."""
    return work(*arguments)


class Node:
    """A participant: a learner among its peers."""

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
        least_present: int | None = 1,
        lists: ListDoor | None = None,
        witness: Witness | None = None,
        make_outbox: MakeOutbox = Outbox,
    ) -> None:
        self.name = name
        self.learner = learner
        self.federation = learner.federation
        self.method = method_of(self.federation)
        self.topology = topology
        self.transport = transport
        self.compute = compute
        self.position = Position(self.federation, topology.last_round(name, self.federation.rounds))
        self.ledger = Ledger()
        self.ballots = ballot_format(self.federation, learner.probes.votes_per_round, learner.classes, learner.features)
        self.outbox = make_outbox(name, transport, self.ledger)
        deadlines = deadlines or Deadlines()
        handovers = Handovers(name, topology, self.position, state_size(learner))
        self.step = Step(
            name, self.federation, topology, transport, self.outbox, self.position, self.ballots,
            learner.probes.labels_of, deadlines, clock, least_present, handovers, lists, witness,
        )  # fmt: skip
        step, outbox = self.step, self.outbox
        self.handover = Handover(name, learner, topology, self.position, step, handovers, outbox, compute, deadlines)
        signed = None if lists is None else members_digest(topology)
        peers = Peers(
            name, step.roster, outbox, step.gather, step.inbox.refuse, step.attendance.least, signed, step.merges_with,
            deadlines.timeout, lambda: step.waits.arriving,
        )  # fmt: skip
        outer = OuterState(learner.handed_over(), self.position)
        exchange = make_exchange(self.federation, topology, peers, learner.feedback, outer, learner.parameters.layout)
        polled = (name, learner, topology, step, self.ballots, quorum)
        merging = (learner, step, self.position, exchange, compute)
        if learner.late is None:
            self.poll, self.merger = Poll(*polled), Merger(*merging)
        else:  # --overlap
            self.poll = LatePoll(*polled, late=learner.late, warmup=lambda: self.position.warmup)
            self.merger = LateMerger(*merging, late=learner.late)
        self._recorder = recorder
        self._clock = clock

    async def run(self, announce: bool = True) -> None:
        """Play all rounds that are left, or until asked to stop. The caller starts and ends the transport. `announce`:
        tell the neighbours in which round this node starts. Not needed where they know."""
        if announce:
            self.step.announcer.here()
        try:
            while self.position.goes_on:
                try:
                    await self.handover.join(self.position.round + 1)
                    await self.step.ready(self.position.round + 1, self.handover.give_asked)
                    await self.handover.give(self.position.round + 1)
                    await self._play(self.position.round + 1)
                except LeftBehind as behind:
                    self.step.rejoin(behind.theirs)
            if self.position.round < self.position.last:  # stopped: its last checkpoint is for a run that goes on
                await self._settle()
                self._recorder.book(self.ledger.settle())
        except Abandoned:
            log.info("round %d abandoned", self.position.round + 1, extra={"event": "abandoned"})
        finally:
            self.merger.cancel()
        self.position.end()
        self.step.announcer.bye()

    async def _play(self, r: int) -> None:
        """Round r of Algorithm 1."""
        report = RoundReport(r)
        watch = Stopwatch(self._clock, report.seconds)

        self.step.begin_round(r)
        self.position.begin_round()
        await self.compute(self.learner.train, r)
        watch.lap("train")
        if report.merge_ended(await self.merger.finish()):
            watch.lap("merge")

        now = channel(self.federation, r, self.position.warmup)
        heard = Heard(r, {}, now, None)
        if now.trains:
            self.position.enter("vote")
            own = await self.compute(self.learner.vote, r)
            watch.lap("vote")
            heard = await self.poll.hear(r, own, now)
            report.heard(heard.round, heard.answers)
            watch.lap("barrier")
            if not self.method.distils_merged:
                await self._distill(heard)
                watch.lap("distill")
        elif waits_for_half(self.federation, self.position.warmup):
            if await self.poll.opens(r, *await self.compute(self.learner.probe_accuracy, r)):
                self.position.opened(r)
            watch.lap("barrier")

        agreement = self.poll.agreement(report.answers) if heard.channel.speaks else None
        if merge_is_due(self.federation, r, self.position.merged_at, agreement):
            self.position.enter("merge")
            report.merge_ended(await self.merger.merge(r))
            watch.lap("merge")
        if heard.channel.trains and self.method.distils_merged and report.merged:
            await self._distill(heard)
            watch.lap("distill")

        self.position.finish_round()
        if evaluates(self.federation, r):
            self.position.enter("evaluate")
            report.evaluation = await self.compute(self.learner.evaluate)
            watch.lap("evaluate")
        if self._recorder.wants_all(r):
            await self._settle()
        report.sent = self.ledger.settle()
        await self._recorder.record(self, report)

    async def _distill(self, heard: Heard) -> None:
        self.position.enter("distill")
        if heard.channel.trains:
            answers = list(heard.answers.values())
            await self.compute(self.learner.distill, heard.round, answers, heard.channel, heard.weights)

    async def _settle(self) -> None:
        """Wait for what is under way. What comes is used in the next round, and is in a checkpoint of this one."""
        await self.merger.settle()
        await self.poll.settle()
