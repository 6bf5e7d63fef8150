"""N peers as one batched model: the rounds of `node.py`, with tensors for messages. Thousands of peers on a laptop.

The rules of the round, seeds, batches, probes and bytes are the nodes' own. Only floats are summed in another order, so
parameters agree with theirs up to the last digits. No peer fails here: no message is missing or late.

Per peer memory is five vectors of its parameters: they, their gradient, AdamW's two, and what a merge makes of them;
where merges are coded about three more.
"""

import logging
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from p2p_tally.ids import derive_seed, ranked_names
from p2p_tally.learning.architectures import holders
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.overlap import uses_votes
from p2p_tally.learning.schedule import (
    begin_alike,
    channel_opens,
    evaluates,
    merge_is_due,
    sends_ballots,
    sends_changes,
)
from p2p_tally.learning.setup import Task, features_of, make_model
from p2p_tally.node.flows import flows
from p2p_tally.node.formats import ballot_format, merge_format
from p2p_tally.node.links.transport import Clock
from p2p_tally.node.reports import Stopwatch
from p2p_tally.node.traffic import Traffic, VotesSent, totals
from p2p_tally.protocol.ledger import Count
from p2p_tally.protocol.messages import Ready, Stage
from p2p_tally.runner.clock.clock import Played
from p2p_tally.runner.clock.messages import table_of
from p2p_tally.runner.runs.round_lines import RoundLog
from p2p_tally.runner.simulation.checkpoints import EngineState
from p2p_tally.runner.stacked.answers import Answers, Heard
from p2p_tally.runner.stacked.batched_model import layers_of
from p2p_tally.runner.stacked.block import some
from p2p_tally.runner.stacked.channels import NOT_YET, Channels, waiting
from p2p_tally.runner.stacked.coded_merge import CodedMerge
from p2p_tally.runner.stacked.convolutions import convolves
from p2p_tally.runner.stacked.lies import StackedLies
from p2p_tally.runner.stacked.merging import averages
from p2p_tally.runner.stacked.neighbourhoods import Neighbourhoods
from p2p_tally.runner.stacked.overlap import Asked, Result, make_pace
from p2p_tally.runner.stacked.peers import Peers
from p2p_tally.runner.stacked.survey import Surveyor
from p2p_tally.topologies import Topology

log = logging.getLogger(__name__)

# Where `--engine auto` stacks. Measured on two cores with perceptrons on digits, as a multiple of the speed of exact:
# 2.4 with 2 peers of 4,810 parameters, 6 with 8, 23 with 64; 1.3 with 8 peers of half a million; about 2 where no two
# peers have the same model. CNNs by CPU time: 1.6 and 1.4 (`scripts/bench/cnn.py`). Not every other module can be
# batched, and those that can gain little: `auto` leaves them to exact.
FASTER_FROM = 2
SMALL_MODEL = 1 << 20


def is_faster(task: Task) -> bool:
    """Whether to stack these peers rather than run them one by one."""
    if task.federation.nodes < FASTER_FROM:
        return False
    names = ranked_names(task.federation.nodes)
    models = (make_model(task, names[ranks[0]], ranks[0]) for ranks in holders(task.federation).values())
    return all(
        bool(layers_of(model) or convolves(model)) and sum(p.numel() for p in model.parameters()) <= SMALL_MODEL
        for model in models
    )


class Stacked:
    """A federation whose peers are batched by architecture."""

    def __init__(
        self, task: Task, topology: Topology, device: str, threads: int, clock: Clock = time.perf_counter
    ) -> None:
        self.task = task
        self.federation = task.federation
        self.method = method_of(self.federation)
        self.topology = topology
        self.clock = clock
        self.stack = Peers(task, device, threads)
        self.lies = StackedLies(self.federation, self.stack.blocks)
        self.names = self.stack.names
        self.device = self.stack.device
        self.ballots = ballot_format(self.federation, task.probes.votes_per_round, task.classes, features_of(task))
        self.answers = Answers(task, self.stack, self.ballots)
        self.pace = make_pace(self.federation, self.stack)
        self.surveyor = Surveyor(task, self.stack)
        self.coded = None
        self.merge_format = merge_format(self.federation)
        if sends_changes(self.federation):
            self.coded = CodedMerge(self.stack.parameters, self.merge_format, begin_alike(self.federation))
        # Peers that merge have one architecture.
        parameters = self.stack.groups[0].template.parameters
        self.traffic = Traffic(self.federation, topology, self.ballots, len(parameters), parameters.layout)
        # The round after which each peer's channel is open; NOT_YET while an automatic warm-up lasts.
        warmup = self.federation.warmup
        self.opened = np.full(len(self.names), warmup if isinstance(warmup, int) else NOT_YET)  # [N]
        self.round = 0  # the last one finished
        self.merged_at = 0  # the last round in which all merged
        self._graphs: dict[int, tuple[Neighbourhoods, Neighbourhoods]] = {}

    # --- the rounds

    def play(self, lines: RoundLog) -> None:
        if not self.round:
            torch.manual_seed(derive_seed(self.federation.seed, "dropout"))
        with self.stack:
            for r in range(self.round + 1, self.federation.rounds + 1):
                self._play(r, lines)
                self.round = r

    def distrusted(self, honest: int) -> list[int]:
        return [] if self.answers.judges is None else self.answers.judges.distrusted(honest)

    def peers(self) -> Iterator[Learner]:
        """Each peer's model in turn, in one learner."""
        return self.stack.learners()

    def state(self) -> EngineState:
        drawn = {"drawn": torch.get_rng_state()}
        if self.device.type == "cuda":
            drawn["drawn on cuda"] = torch.cuda.get_rng_state(self.device)
        merges = {} if self.coded is None else self.coded.state()
        return EngineState(
            self.stack.state() | merges | self.answers.state() | self.pace.state() | drawn,
            {"opened": self.opened.tolist(), "merged_at": self.merged_at},
        )

    def restore(self, round: int, state: EngineState) -> None:
        self.round = round
        self.opened, self.merged_at = np.array(state.notes["opened"]), state.notes["merged_at"]
        self.stack.restore(state.tensors)
        if self.coded is not None:
            self.coded.restore(state.tensors)
        self.answers.restore(state.tensors)
        self.pace.restore(state.tensors)
        torch.set_rng_state(state.tensors["drawn"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state.tensors["drawn on cuda"], self.device)

    def _play(self, r: int, lines: RoundLog) -> None:
        """Round r of Algorithm 1, at every peer."""
        said: list[VotesSent] = []
        seconds: dict[str, float] = {}
        watch = Stopwatch(self.clock, seconds)
        graph, audience = self._graph(r)
        there = graph.there  # [N]
        handed = self._hand_over(r)

        self.stack.each(lambda block: block.train(r, some(there[block.rows])) if there[block.rows].any() else None)
        watch.lap("train")
        merged = self._take(r - 1, self.pace.came())
        watch.lap("merge")

        now = Channels.of(self.federation, r, self.opened, there)
        voting, speaking = now.trains, now.speaks & uses_votes(self.federation, r)  # [N]
        wait = there & waiting(self.federation, self.opened)
        # Measured before the peers look at the probes: `distill` needs the forward pass of that look.
        ready = self._ready(r) if wait.any() else None
        mute = np.zeros_like(speaking)  # whose model has diverged, so that its answer has no ballot
        heard = Heard(r, now)
        if voting.any():
            logits = self._look(r, voting)
            watch.lap("vote")
            if speaking.any():
                mute = speaking & ~self.answers.can_be_sent(logits)
                speaking &= ~mute
                said = [*self.answers.said(r, logits, speaking), (Ready(r, 0, self.ballots.count), mute)]
            heard = self._hear(self.pace.asked(Asked(r, logits)))
            watch.lap("barrier")
            if heard.round != r:
                self._look_again(heard)
            if not self.method.distils_merged:
                self._distill(heard)
                watch.lap("distill")
        if ready is not None:
            said += self._wait_for_half(r, audience, ready, wait, speaking, mute)
            watch.lap("barrier")

        due = merge_is_due(self.federation, r, self.merged_at, heard.agreement)
        format = None if not due else self.merge_format if self.coded is None else self.coded.format
        sent = totals(self.traffic.round(r, said, format, handed.__getitem__))
        messages = flows(self.traffic, r, said, format, handed.__getitem__)
        merged = (due and self._merge(graph, r)) or merged
        watch.lap("merge")
        if heard.channels.trains.any() and self.method.distils_merged and merged:
            self._look_again(heard)  # the models have changed since they voted
            self._distill(heard)
            watch.lap("distill")

        lines.clock.play(r, lambda: table_of(messages), Played.together(there, seconds))
        self._record(r, graph, sent, merged, watch, seconds, lines)

    def _record(
        self,
        r: int,
        graph: Neighbourhoods,
        sent: dict[Stage, Count],
        merged: bool,
        watch: Stopwatch,
        seconds: dict[str, float],
        lines: RoundLog,
    ) -> None:
        """Count what a round took; of an evaluated round write the line, of those who took part."""
        if not evaluates(self.federation, r):
            lines.book(sent, seconds)
            return
        survey = self.surveyor.survey(lines.probes, graph.there)
        watch.lap("evaluate")
        lines.book(sent, seconds)
        lines.write(r, survey, merged)

    def _graph(self, r: int) -> tuple[Neighbourhoods, Neighbourhoods]:
        """The neighbourhoods over links, for merges, and those within so many hops, for tallies."""
        phase = self.topology.phase(r)
        if phase not in self._graphs:
            if self.topology.period is None:
                self._graphs.clear()  # no graph comes again
            settings, links = self.federation, Neighbourhoods(self.topology, r)
            plain = settings.hops == 1 and settings.tally_weights == "uniform"
            self._graphs[phase] = (
                links,
                links if plain else Neighbourhoods(self.topology, r, settings.hops, settings.tally_weights),
            )
        return self._graphs[phase]

    def _hand_over(self, r: int) -> dict[int, tuple[int | None, int]]:
        """Newcomers of a round get what a donor has. For each donor: when its channel opened, and its last merge."""
        topology, told = self.topology, {}
        for member in topology.newcomers(r):
            for giver in topology.donors(member, r)[:1]:
                newcomer, donor = topology.rank(member), topology.rank(giver)
                opened = int(self.opened[donor])
                told[donor] = None if opened == NOT_YET else opened, self.merged_at
                self.opened[newcomer] = opened
                if self.federation.merge_every:
                    self.stack.hand_over(donor, newcomer)
                if self.coded is not None:
                    self.coded.taken_over(newcomer)
        return told

    # --- probes

    def _look(self, r: int, voting: np.ndarray) -> list[Tensor]:
        self.answers.examine(r, voting)
        return self.lies.answered(r, self.answers.subject.look(r, voting))

    def _look_again(self, heard: Heard) -> None:
        """Below the quorum there may be nothing to learn from."""
        taking = heard.channels.trains
        if taking.any():
            x, _ = self.task.probes.sample(heard.round)
            self.stack.each(lambda block: block.look_again(x, some(taking[block.rows])))

    def _hear(self, asked: Asked | None) -> Heard:
        """What the peers learn from a poll that is over; None: none is."""
        if asked is None:
            return Heard(0, Channels.closed(len(self.names)))
        return self.answers.hear(asked, self.opened, *self._graph(asked.round))

    def _distill(self, heard: Heard) -> None:
        taking = heard.channels.trains
        if not taking.any():
            return
        slope = self.answers.slope(heard.round, heard.consensus, heard.channels)
        self.stack.each(
            lambda block: block.distill(slope, some(taking[block.rows])) if taking[block.rows].any() else None
        )

    # --- an automatic warm-up

    def _ready(self, r: int) -> tuple[np.ndarray, int]:
        """How many of a round's labelled probes each peer gets right [N], and of how many."""
        x, _ = self.task.probes.sample(r)
        parts = self.stack.measured(x, lambda logits: logits.mT.contiguous().argmax(-1).cpu())
        return self.task.probes.count_right(r, self.stack.by_rank(parts).numpy())  # of votes [N, P]

    def _wait_for_half(
        self,
        r: int,
        audience: Neighbourhoods,
        ready: tuple[np.ndarray, int],
        waiting: np.ndarray,
        speaking: np.ndarray,
        mute: np.ndarray,
    ) -> list[VotesSent]:
        """Open the channels whose warm-up ends with this round; the counts that those who are `waiting` [N] send.

        Those who are `mute` send a count of none right.
        """
        right, of = ready
        opening = waiting & channel_opens(right, of, 0)
        said: list[VotesSent] = []
        if sends_ballots(self.federation):
            said = [(Ready(r, count, of), waiting & (right == count)) for count in np.unique(right[waiting]).tolist()]
            # Whole numbers, which floats add up exactly.
            counts, rights = audience.sums((waiting | mute).astype(float)), audience.sums(waiting * right.astype(float))
            opening = waiting & channel_opens(rights, of * counts, audience.sums(speaking.astype(float)))
        self.opened[opening] = r
        return said

    # --- merging

    def _merge(self, graph: Neighbourhoods, r: int) -> bool:
        """Merge; False where it was not completed, or its result is not used yet."""
        self.merged_at = r
        parameters = self.lies.contributed(r, self.stack.contributions())
        stack, settings = self.stack, self.federation
        found = averages(parameters, graph, settings, self.topology, r, self.coded, stack.own, stack.layout)
        return self._take(r, self.pace.begun(found, stack, r == settings.rounds))

    def _take(self, r: int, result: Result | None) -> bool:
        """Use the result of the merge of round r; False where there is none."""
        if result is None:
            return False
        (average, kept), since = result
        there = self._graph(r)[0].there
        if average is None or not torch.isfinite(average.sum()):
            # Nodes would refuse each other's vectors one by one. Here all peers merge, or none.
            log.warning("merge of round %d not completed: parameters are not finite", r)
            return False
        average = self.lies.taken(average)
        merged = self.stack.each(
            lambda block: block.merge(
                average[block.rows] if len(average) > 1 else average,
                some(there[block.rows]),
                None if since is None else since[block.rows],
            )
        )
        if self.coded is not None and kept is not None:
            # Where members change, the first block may hold nobody who took part.
            common = self.stack.parameters[int(there.argmax())] if since is None else merged[0][0]
            self.coded.settle(common, kept, there)
        return True
