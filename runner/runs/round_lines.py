"""A line for each evaluated round of a simulation: bytes and seconds since the last line, and how the peers compare.

Both engines use it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from p2p_tally.learning.consensus import mean_pairwise_kl, measure
from p2p_tally.learning.evaluation import Evaluation
from p2p_tally.learning.setup import Task
from p2p_tally.protocol.ledger import Count
from p2p_tally.protocol.messages import Stage
from p2p_tally.runner.clock.clock import NoClock, VirtualClock
from p2p_tally.runner.runs.run import RoundLine, Run

# Probes on which the peers are compared at an evaluated round: enough for a share within a few per cent.
COMPARED_PROBES = 256

OnLine = Callable[[RoundLine], None]


@dataclass(frozen=True)
class Survey:
    """How N nodes do at an evaluated round, of which n take part."""

    accuracy: np.ndarray  # [N], share of the test set that is right; not a number for a node that does not take part
    loss: np.ndarray  # [N], mean cross-entropy
    votes: np.ndarray  # [n, P], on the probes of the log
    pairwise_kl: float

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation | None], logs: Tensor) -> Self:
        """From the evaluation of each node, None for one that does not take part, and the log-probabilities [n, P, C]
        of those who do."""
        accuracy = np.array([found.accuracy if found else math.nan for found in evaluations])
        loss = np.array([found.loss if found else math.nan for found in evaluations])
        return cls(accuracy, loss, logs.argmax(-1).numpy(), mean_pairwise_kl(logs))


class RoundLog:
    """Adds up what the rounds cost, and passes a line for each evaluated round to the run and to every listener."""

    def __init__(
        self, task: Task, run: Run, listeners: Sequence[OnLine], clock: VirtualClock | NoClock | None = None
    ) -> None:
        self.run = run
        self.clock = clock or NoClock()  # hears of every round
        self._listeners = list(listeners)
        self.task = task
        pool = task.probes.examples
        count = max(1, min(len(pool), COMPARED_PROBES // pool.probes_each))
        self.probes, labels = pool.take(torch.arange(count))
        self.labels = None if labels is None else labels.flatten().numpy()  # [P], of `probes`
        self.votes: np.ndarray | None = None  # [n, P], of the last line
        self.voters: list[str] = []  # whose they are: those who took part in that round
        self.total = Count()  # sent by all peers since the run began
        self._since: dict[Stage, Count] = {}
        self._seconds: dict[str, float] = {}

    def listen(self, listener: OnLine) -> None:
        """Call `listener` with every line from now on."""
        self._listeners.append(listener)

    def resume(self, lines: Sequence[RoundLine], total: Count) -> None:
        """Start after these lines of an interrupted run."""
        self.run.lines.extend(lines)
        self.total = total

    def book(self, sent: Mapping[Stage, Count], seconds: Mapping[str, float]) -> None:
        """Add the bytes that one node (or all nodes) sent in a round, and the seconds that it took."""
        for stage, count in sent.items():
            self.total.take(count)
            self._since.setdefault(stage, Count()).take(count)
        for phase, spent in seconds.items():
            self._seconds[phase] = self._seconds.get(phase, 0.0) + spent

    def write(self, round: int, survey: Survey, merged: bool) -> None:
        """The line of an evaluated round."""
        nodes = len(survey.accuracy)
        self.votes = survey.votes
        self.voters = [self.run.names[rank] for rank in np.flatnonzero(~np.isnan(survey.accuracy)).tolist()]
        measures = measure(self.votes, self.task.classes, self.labels)
        reading = self.clock.reading
        line = RoundLine(
            round=round,
            accuracy=_values(100 * survey.accuracy),
            loss=_values(survey.loss),
            merged=merged,
            plurality_right=measures.plurality_right,
            agreement=measures.agreement,
            margin=measures.margin,
            pairwise_kl=survey.pairwise_kl,
            payload_bytes=self.total.payload / nodes,
            framed_bytes=self.total.framed / nodes,
            sent={
                stage.name.lower(): {"payload": count.payload / nodes, "framed": count.framed / nodes}
                for stage, count in self._since.items()
            },
            seconds={phase: spent / nodes for phase, spent in self._seconds.items()},
            hours=reading.hours if reading else None,
            idle=reading.idle if reading else None,
        )
        self._since, self._seconds = {}, {}
        self.run.lines.append(line)
        for listener in self._listeners:
            listener(line)


def _values(found: np.ndarray) -> list[float]:
    """As lines have them. Every NaN is the same object, so that equal lines are equal."""
    return [math.nan if math.isnan(value) else value for value in found.tolist()]
