"""What a daemon records: a line for each evaluated round, checkpoints, and counters for its metrics."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from p2p_tally.learning.consensus import Measures, measure, votes_of
from p2p_tally.learning.learner import Learner
from p2p_tally.node.node import Node
from p2p_tally.node.reports import RoundReport
from p2p_tally.node.service.checkpoint import Checkpoint, Checkpoints
from p2p_tally.node.service.metrics import Metrics
from p2p_tally.protocol.ledger import Count
from p2p_tally.protocol.messages import Stage

log = logging.getLogger(__name__)

# Called with each evaluated round, as a dictionary that becomes a line of JSON.
OnLine = Callable[[dict[str, Any]], None]

# Called with each round, evaluated or not, and the payload bytes sent since the run began.
OnRound = Callable[[RoundReport, int], None]

# About how many rounds of a run are logged.
LOGGED_ROUNDS = 20


class DaemonRecorder:
    """Records every round of one daemon."""

    def __init__(
        self,
        learner: Learner,
        checkpoints: Checkpoints,
        checkpoint_every: int,
        metrics: Metrics,
        wire: Callable[[], int],
        on_line: OnLine,
    ) -> None:
        """`wire`: bytes that this process has sent, with TCP and IP headers. `on_line`: called with each evaluated
        round."""
        self.learner = learner
        self.checkpoints = checkpoints
        self.checkpoint_every = checkpoint_every
        self._metrics = metrics
        self._wire = wire
        self._on_line = on_line
        self.payload = 0  # sent since the run began, also before the checkpoint that it resumed from
        self.framed = 0
        self.wire_before = 0  # sent by earlier processes of this run, up to the checkpoint
        self._since: dict[str, Count] = {}
        self._seconds: dict[str, float] = {}
        self.saved = 0  # the round of the last checkpoint
        self._logged = 0
        self._listeners: list[OnRound] = []

    def listen(self, listener: OnRound) -> None:
        """Call this function with every round from now on. It must be quick: the next round waits for it."""
        self._listeners.append(listener)

    def wants_all(self, round: int) -> bool:
        """A checkpoint holds all that the next round depends on."""
        return bool(self.checkpoint_every) and round % self.checkpoint_every == 0

    def book(self, sent: dict[Stage, Count]) -> None:
        for stage, count in sent.items():
            self.payload += count.payload
            self.framed += count.framed
            self._since.setdefault(stage.name.lower(), Count()).take(count)

    async def record(self, node: Node, report: RoundReport) -> None:
        self.book(report.sent)
        for phase, seconds in report.seconds.items():
            self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
        self._metrics.observe(report)
        for listener in self._listeners:
            listener(report, self.payload)
        if report.evaluation is not None:
            self._on_line(self._line(node, report))
            self._log_progress(node, report)
            self._since, self._seconds = {}, {}
        if self.wants_all(report.round):
            await self._save(node)

    def _log_progress(self, node: Node, report: RoundReport) -> None:
        """Log a line now and then, to show progress."""
        every = max(1, node.federation.rounds // LOGGED_ROUNDS)
        if report.evaluation is not None and report.round // every > self._logged // every:
            self._logged = report.round
            accuracy = 100 * report.evaluation.accuracy
            log.info("accuracy %.1f %%, %d bytes sent", accuracy, self.framed, extra={"event": "round"})

    async def finish(self, node: Node) -> None:
        """Write a last checkpoint, unless the node stopped in the middle of a round."""
        if self.checkpoint_every and node.position.between_rounds and self.saved != node.position.round:
            await self._save(node, prune=False)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue the byte counts of a run that was interrupted."""
        self.payload = checkpoint.notes["payload"]
        self.framed = checkpoint.notes["framed"]
        self.wire_before = checkpoint.notes.get("wire", 0)
        self.saved = checkpoint.round

    @property
    def wire_bytes(self) -> int:
        """Bytes sent since the run began, with TCP and IP headers."""
        return self.wire_before + self._wire()

    async def _save(self, node: Node, prune: bool = True) -> None:
        notes = {
            **node.position.notes(),
            "payload": self.payload,
            "framed": self.framed,
            "wire": self.wire_bytes,
        }
        checkpoint = Checkpoint(node.position.round, self.learner.snapshot(), notes)
        if await node.compute(self.checkpoints.save, checkpoint, prune):
            self.saved = checkpoint.round
        else:
            self._metrics.checkpoint_failed()

    def _line(self, node: Node, report: RoundReport) -> dict[str, Any]:
        assert report.evaluation is not None
        measures = self._measures(report)
        return {
            "name": node.name,
            "round": report.round,
            "accuracy": 100 * report.evaluation.accuracy,
            "loss": report.evaluation.loss,
            "own_accuracy": 100 * report.evaluation.own,
            "merged": report.merged,
            "plurality_right": measures.plurality_right if measures else None,
            "agreement": measures.agreement if measures else None,
            "margin": measures.margin if measures else None,
            "payload_bytes": self.payload,
            "framed_bytes": self.framed,
            "sent": {kind: {"payload": count.payload, "framed": count.framed} for kind, count in self._since.items()},
            "seconds": self._seconds,
        }

    def _measures(self, report: RoundReport) -> Measures | None:
        """Measures of the votes that this node tallied in the round; None where answers are no votes on probes."""
        if len(report.answers) < 2 or self.learner.method.sends.by_class:
            return None
        votes = np.stack([votes_of(answer) for answer in report.answers])
        labels = self.learner.probes.sample(report.answered)[1]
        return measure(votes, self.learner.classes, None if labels is None else labels.flatten().numpy())
