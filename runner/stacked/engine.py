"""N peers as one batched model: the rounds of `node.py`, with tensors for messages. Thousands of peers on a laptop.

Schedule, seeds, batches, probes and bytes are those of the nodes themselves; floats are summed in another order, so
parameters agree to about their last digits and no further. No peer fails here: nothing is ever missing or late.

Per peer memory is five vectors of its parameters: they, their gradient, AdamW's two, and what a merge makes of them;
where merges are coded about three more.
"""

import logging
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from p2p_tally.ids import derive_seed, ranked_names
from p2p_tally.learning.architectures import holders
from p2p_tally.learning.consensus import measure
from p2p_tally.learning.learner import Learner, answer
from p2p_tally.learning.methods import METHODS, Sent
from p2p_tally.learning.objectives import NO_LABEL, blended_target
from p2p_tally.learning.schedule import CLOSED, Channel, channel, drifted, evaluates, merges
from p2p_tally.learning.setup import Task, make_model
from p2p_tally.node.ballot_format import ballot_format
from p2p_tally.node.links.transport import Clock
from p2p_tally.node.reports import Stopwatch
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.deadlines import default_quorum
from p2p_tally.protocol.messages import Here, Ready, Vote
from p2p_tally.runner.runs.round_lines import RoundLog
from p2p_tally.runner.simulation.checkpoints import EngineState
from p2p_tally.runner.stacked import bytes as stacked_bytes
from p2p_tally.runner.stacked.batched_model import layers_of
from p2p_tally.runner.stacked.block import Block
from p2p_tally.runner.stacked.coded_merge import CodedMerge
from p2p_tally.runner.stacked.neighbourhoods import Neighbourhoods
from p2p_tally.runner.stacked.peers import Peers
from p2p_tally.topologies import Topology

log = logging.getLogger(__name__)

# Where `auto` stacks. Measured on two cores with perceptrons on digits: 2.4 times as fast as exact at 2 peers of 4,810
# parameters, 6 at 8, 23 at 64; 1.3 at 8 peers of half a million; about 2 where no two peers have the same model. Other
# models gain little on a CPU (a CNN 1.2), and not every module can be batched: those are left to exact unless stacked
# is asked for.
FASTER_FROM = 2
SMALL_MODEL = 1 << 20


def is_faster(task: Task) -> bool:
    """Whether to stack these peers rather than run them one by one."""
    if task.federation.nodes < FASTER_FROM:
        return False
    names = ranked_names(task.federation.nodes)
    models = (make_model(task, names[ranks[0]], ranks[0]) for ranks in holders(task.federation).values())
    return all(layers_of(model) and sum(p.numel() for p in model.parameters()) <= SMALL_MODEL for model in models)


class Stacked:
    """A federation whose peers are batched by architecture."""

    def __init__(
        self, task: Task, topology: Topology, device: str, threads: int, clock: Clock = time.perf_counter
    ) -> None:
        self.task = task
        self.federation = task.federation
        self.method = METHODS[self.federation.method]
        self.topology = topology
        self.clock = clock
        self.stack = Peers(task, device, threads)
        self.names = self.stack.names
        self.device = self.stack.device
        self.ballots = ballot_format(self.stack.groups[0].template)
        coding = ChangeFormat(self.federation.merge_precision, self.federation.merge_top_k)
        # A peer alone has nobody to send a change to.
        sends_changes = not coding.plain and bool(self.federation.merge_every) and len(self.names) > 1
        self.coded = CodedMerge(self.stack.parameters, coding, self.method.common_start) if sends_changes else None
        over_ring = self.federation.merge_over == "ring" and topology.ring is not None and len(self.names) > 1
        self.ring = tuple(map(topology.rank, topology.ring or ())) if over_ring else None
        # The round after which each peer's channel opens; 0 is no round, None an automatic warm-up that lasts.
        warmup = self.federation.warmup
        self.warmup: list[int | None] = [warmup if isinstance(warmup, int) else None] * len(self.names)
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

    def peers(self) -> Iterator[Learner]:
        """Each peer's model in turn, in one learner."""
        return self.stack.learners()

    def state(self) -> EngineState:
        drawn = {"drawn": torch.get_rng_state()}
        if self.device.type == "cuda":
            drawn["drawn on cuda"] = torch.cuda.get_rng_state(self.device)
        merges = {} if self.coded is None else self.coded.state()
        return EngineState(self.stack.state() | merges | drawn, {"warmup": self.warmup, "merged_at": self.merged_at})

    def restore(self, round: int, state: EngineState) -> None:
        self.round = round
        self.warmup, self.merged_at = state.notes["warmup"], state.notes["merged_at"]
        self.stack.restore(state.tensors)
        if self.coded is not None:
            self.coded.restore(state.tensors)
        torch.set_rng_state(state.tensors["drawn"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state.tensors["drawn on cuda"], self.device)

    def _play(self, r: int, lines: RoundLog) -> None:
        """Round r of Algorithm 1, at every peer."""
        sent: stacked_bytes.Sent = {}
        seconds: dict[str, float] = {}
        watch = Stopwatch(self.clock, seconds)
        graph, audience = self._graph(r)
        if r == 1:
            stacked_bytes.broadcast(sent, graph, Here(0))

        self.stack.each(Block.train)
        watch.lap("train")

        now = self._channels(r)
        voting = np.array([one.trains for one in now])  # [N]
        speaking = np.array([one.speaks for one in now])
        waits = self.method.waits and self.method.learns_from_probes
        waiting = np.array([waits and opened is None for opened in self.warmup])
        ready = self._ready(r) if waiting.any() else None  # measured first: a look at the probes must stay the last
        mute = np.zeros_like(speaking)  # whose model has diverged, so that there is no ballot for what it would say
        target = agreement = None
        if voting.any():
            logits = self._look(r, voting)
            watch.lap("vote")
            if speaking.any():
                mute = speaking & ~self._can_say(logits)
                speaking &= ~mute
                target = self._poll(sent, r, logits, speaking) if speaking.any() else None
                if mute.any():
                    self._send(sent, r, Ready(r, 0, self.ballots.count), mute)
                now = self._with_quorum(audience, now, speaking)
                agreement = self._agreement(logits) if self.federation.merge_when == "drift" else None
            watch.lap("barrier")
            if not self.method.distils_merged:
                self._distill(r, target, now)
                watch.lap("distill")
        if ready is not None:
            self._wait_for_half(sent, r, ready, waiting, speaking, mute)
            watch.lap("barrier")

        merged = self._merge_is_due(r, agreement) and self._merge(sent, graph, r)
        watch.lap("merge")
        taking = np.array([one.trains for one in now])  # below a quorum there may be nothing to learn from
        if taking.any() and self.method.distils_merged and merged:
            self._look(r, taking)  # the models have changed since they voted
            self._distill(r, target, now)
            watch.lap("distill")

        if evaluates(self.federation, r):
            evaluations = self.stack.evaluate()
            watch.lap("evaluate")
            lines.book(sent, seconds)
            logs = self.stack.each(lambda block: block.measured(lines.probes).log_softmax(1).mT.contiguous().cpu())
            lines.write(r, evaluations, merged, self.stack.by_rank(logs))  # [N, P, C]
        else:
            lines.book(sent, seconds)

    def _graph(self, r: int) -> tuple[Neighbourhoods, Neighbourhoods]:
        """The neighbourhoods of links, and those whose votes are tallied together."""
        phase = self.topology.phase(r)
        if phase not in self._graphs:
            if self.topology.period is None:
                self._graphs.clear()  # it will not come again
            settings, links = self.federation, Neighbourhoods(self.topology, r)
            plain = settings.hops == 1 and settings.tally_weights == "uniform"
            self._graphs[phase] = (
                links,
                links if plain else Neighbourhoods(self.topology, r, settings.hops, settings.tally_weights),
            )
        return self._graphs[phase]

    def _send(self, sent: stacked_bytes.Sent, r: int, word: Vote | Ready, senders: np.ndarray) -> None:
        """Book a word of this size from the senders [N] to all within reach."""
        links, audience = self._graph(r)
        stacked_bytes.broadcast(sent, links, word, senders)
        if audience.reach is not None:
            stacked_bytes.relay(sent, audience.reach, word, senders)

    # --- probes

    def _channels(self, r: int) -> list[Channel]:
        known = {opened: channel(self.federation, r, opened) for opened in set(self.warmup)}
        return [known[opened] for opened in self.warmup]

    def _look(self, r: int, voting: np.ndarray) -> list[Tensor]:
        x, _ = self.task.probes.sample(r)
        return self.stack.each(lambda block: block.look(x, _some(voting[block.rows])))

    def _poll(self, sent: stacked_bytes.Sent, r: int, logits: list[Tensor], speaking: np.ndarray) -> Tensor:
        """What every peer's neighbourhood answers: [N, P, C], or [1, P, C] where all hear the same."""
        _, audience = self._graph(r)
        if self.method.sent is Sent.VOTES:
            votes = self._votes(logits)
            self._book_votes(sent, r, votes, speaking)
            histogram = audience.tally(votes, self.task.classes, speaking, self.federation.inverse_agreement)
            return torch.from_numpy(histogram).to(self.device)
        self._book_votes(sent, r, None, speaking)
        rows = [_distribution(part.mT, self.method.sent, self.ballots) for part in logits]
        return audience.mean(self.stack.by_rank(rows), speaking)

    def _can_say(self, logits: list[Tensor]) -> np.ndarray:
        """Who has a ballot for its answer [N]: all votes are classes, but probabilities may be none."""
        if self.method.sent is Sent.VOTES:
            return np.ones(len(self.names), bool)
        return self.stack.by_rank([part.amax(1).isfinite().all(1) for part in logits]).cpu().numpy()

    def _votes(self, logits: list[Tensor]) -> np.ndarray:
        return self.stack.by_rank([part.mT.contiguous().argmax(-1) for part in logits]).cpu().numpy()  # [N, P]

    def _book_votes(self, sent: stacked_bytes.Sent, r: int, votes: np.ndarray | None, speaking: np.ndarray) -> None:
        if self.ballots.form != "coded" or votes is None:  # every ballot is as long as any other
            self._send(sent, r, Vote(r, bytes(self.ballots.largest)), speaking)
            return
        labels = self.task.probes.labels_of(r)
        lengths = np.zeros(len(votes), np.int64)  # [N]
        for peer in np.flatnonzero(speaking):
            lengths[peer] = len(self.ballots.encode(votes[peer], labels))
        for length in np.unique(lengths[speaking]).tolist():
            self._send(sent, r, Vote(r, bytes(length)), speaking & (lengths == length))

    def _with_quorum(self, graph: Neighbourhoods, now: list[Channel], speaking: np.ndarray) -> list[Channel]:
        """As a node's: below the quorum the round learns from labels alone. It happens as an opening spreads, and to
        who is left over in a matching."""
        if speaking.all() and graph.degree.all():
            return now
        heard = np.broadcast_to(graph.sums(speaking.astype(float)), len(now))
        return [
            Channel(one.label, 0.0) if one.speaks and voters < default_quorum(degree + 1) else one
            for one, voters, degree in zip(now, heard.tolist(), graph.degree.tolist(), strict=True)
        ]

    def _distill(self, r: int, consensus: Tensor | None, now: list[Channel]) -> None:
        taking = np.array([one.trains for one in now])
        if not taking.any():
            return
        target = self._target(r, consensus, now)
        self.stack.each(
            lambda block: (
                block.distill(target[block.rows] if len(target) > 1 else target, _some(taking[block.rows]))
                if taking[block.rows].any()
                else None
            )
        )

    def _target(self, r: int, consensus: Tensor | None, now: list[Channel]) -> Tensor:
        """What each peer learns from [N, P, C], by the weights of its channel; [1, P, C] where all learn the same."""
        _, labels = self.task.probes.sample(r)
        labels = None if labels is None else labels.flatten().to(self.device)
        extra = self.federation.disagreement_weight if self.method.sent is Sent.VOTES else 0.0

        def blend(one: Channel, target: Tensor | None) -> Tensor:
            blended = blended_target(self.task.classes, labels, target, one.label, one.consensus, extra)
            return blended if blended.dim() == 3 else blended.unsqueeze(0)

        kinds = set(now)
        if len(kinds) == 1:
            return blend(now[0], consensus if now[0].speaks else None)
        target = torch.zeros(len(now), self.ballots.count, self.task.classes, device=self.device)
        for one in kinds - {CLOSED}:
            rows = torch.tensor([peer for peer, its in enumerate(now) if its == one], device=self.device)
            own = consensus if consensus is None or len(consensus) == 1 else consensus[rows]
            target[rows] = blend(one, own if one.speaks else None)
        return target

    # --- an automatic warm-up

    def _ready(self, r: int) -> tuple[np.ndarray, int]:
        """How many of a round's labelled probes each peer gets right [N], and of how many."""
        x, labels = self.task.probes.sample(r)
        assert labels is not None
        labels = labels.flatten()
        parts = self.stack.each(lambda block: block.measured(x).mT.contiguous().argmax(-1).cpu())
        votes = self.stack.by_rank(parts)  # [N, P]
        return (votes == labels).sum(1).numpy(), max(1, int((labels != NO_LABEL).sum()))

    def _wait_for_half(
        self,
        sent: stacked_bytes.Sent,
        r: int,
        ready: tuple[np.ndarray, int],
        waiting: np.ndarray,
        speaking: np.ndarray,
        mute: np.ndarray,
    ) -> None:
        """A channel opens once its neighbourhood is right on half of the probes, or has one that is open.

        Those who are `mute` have none right.
        """
        right, of = ready
        _, audience = self._graph(r)
        opening = waiting & (2 * right > of)
        if not (self.method.sent is Sent.NOTHING or self.federation.alpha == 1):
            for count in np.unique(right[waiting]).tolist():
                self._send(sent, r, Ready(r, count, of), waiting & (right == count))
            # Whole numbers, which floats add up exactly: as a node's fractions do.
            counts, rights = audience.sums((waiting | mute).astype(float)), audience.sums(waiting * right.astype(float))
            opening = waiting & ((2 * rights > of * counts) | (audience.sums(speaking.astype(float)) > 0))
        for peer in np.flatnonzero(opening):
            self.warmup[peer] = r

    # --- merging

    def _agreement(self, logits: list[Tensor]) -> float | None:
        """How far the votes of all agree."""
        if self.method.sent is Sent.SOFT and self.ballots.precision != "float32":  # rounding can make equals
            logits = [_distribution(part.mT, self.method.sent, self.ballots).mT for part in logits]
        votes = self._votes(logits)
        return measure(votes, self.task.classes, None).agreement if len(votes) > 1 else None

    def _merge_is_due(self, r: int, agreement: float | None) -> bool:
        if self.federation.merge_when == "clock":
            return merges(self.federation, r)
        due = agreement is not None and drifted(self.federation, r, self.merged_at, agreement)
        self.merged_at = r if due else self.merged_at
        return due

    def _merge(self, sent: stacked_bytes.Sent, graph: Neighbourhoods, r: int) -> bool:
        parameters = self.stack.parameters
        if self.ring is None:
            stacked_bytes.merge(sent, graph, r, parameters.shape[1], self.coded)
        else:
            stacked_bytes.ring_merge(sent, self.ring, r, parameters.shape[1])
        average: Tensor | None  # [N, W] or [1, W]
        kept = None
        if self.ring is not None:
            average = parameters.mean(0, keepdim=True)
        elif self.coded is None:
            average = graph.mix(parameters)
        elif graph.complete:
            average, kept = self.coded.mean(parameters) or (None, None)
        else:
            average = self.coded.mix(parameters, graph)
        if average is None or not torch.isfinite(average.sum()):
            # Nodes would refuse each other's vectors one by one; here a merge is everybody's or nobody's.
            log.warning("merge of round %d not completed: parameters are not finite", r)
            return False
        self.stack.each(lambda block: block.merge(average[block.rows] if len(average) > 1 else average))
        if self.coded is not None and kept is not None:
            self.coded.settle(parameters[0], kept)
        return True


def _some(chosen: np.ndarray) -> Sequence[int] | None:
    """The chosen rows; None for all of them."""
    return None if chosen.all() else np.flatnonzero(chosen).tolist()


def _distribution(logits: Tensor, sent: Sent, ballots: BallotFormat) -> Tensor:
    """What peers say of each probe, from logits [n, P, C], as those who hear it have it: distributions [n, P, C]."""
    if sent is Sent.SOFT and ballots.precision == "float32":
        return logits.softmax(-1)
    said = ballots.heard(answer(logits, sent, ballots.k))
    if not isinstance(said, tuple):
        return torch.from_numpy(said).to(logits.device)
    indices, probabilities = said
    rows = torch.zeros(logits.shape)
    rows.scatter_(-1, torch.from_numpy(indices), torch.from_numpy(probabilities))
    return rows.to(logits.device)
