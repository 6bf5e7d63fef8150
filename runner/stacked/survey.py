"""How stacked peers do at an evaluated round: on the test set, and compared with each other on some probes.

Knows no round and no graph. Perceptrons are surveyed block by block, all that is asked in one visit, because the
arithmetic of an evaluation is several times that of a round. n peers of a block, C classes, P probes.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from p2p_tally.learning.consensus import PairwiseKL
from p2p_tally.learning.evaluation import Evaluation, evaluation_batch
from p2p_tally.learning.setup import Task
from p2p_tally.runner.runs.round_lines import Survey
from p2p_tally.runner.stacked.block import Block
from p2p_tally.runner.stacked.peers import Peers
from p2p_tally.runner.stacked.rows_adamw import FEW

# Inputs in one product: what a hidden layer makes of them for a block of peers should stay in a core's cache.
INPUTS = 200

Judged = tuple[np.ndarray, np.ndarray]  # right answers [n], and summed cross-entropy [n]


class Visit(NamedTuple):
    """What was found at a block."""

    judged: Judged | None  # None where its peers are evaluated one by one
    votes: Tensor  # [n, P]
    kl: list[PairwiseKL]  # of a few peers each


class Surveyor:
    """Surveys all peers of a federation."""

    def __init__(self, task: Task, stack: Peers) -> None:
        self._stack = stack
        self._test = task.test
        self._batches: list[tuple[Tensor, Tensor]] = []
        for indices in torch.split(torch.arange(len(task.test)), evaluation_batch(task.test)):
            x, y = task.test.take(indices)
            assert y is not None
            self._batches.append((x, y.flatten().to(stack.device)))
        self._count = sum(len(y) for _, y in self._batches)

    def survey(self, probes: Tensor, there: np.ndarray) -> Survey:
        """Of those who are `there` [N]; they are compared on these probes."""
        stack = self._stack
        alone: dict[int, Evaluation] = {}
        for group in stack.groups:
            if not group.is_perceptron:
                # A batch of the test set fills the machine by itself: one peer after the other.
                alone.update(zip(group.ranks, (learner.evaluate() for learner in group.learners()), strict=True))
            group.refresh_statistics()
        visits = stack.each(lambda block: self._visit(block, probes, there[block.rows]))
        accuracy, loss = np.full(len(there), np.nan), np.full(len(there), np.nan)
        for block, visit in zip(stack.blocks, visits, strict=True):
            if visit.judged is not None:
                right, summed = visit.judged
                accuracy[block.rows], loss[block.rows] = right / self._count, summed / self._count
        for rank, found in alone.items():
            accuracy[rank], loss[rank] = found.accuracy, found.loss
        accuracy[~there] = loss[~there] = np.nan
        votes = stack.by_rank([visit.votes for visit in visits]).cpu().numpy()[there]
        compared = sum((few for visit in visits for few in visit.kl), PairwiseKL())
        return Survey(accuracy, loss, votes, compared.mean())

    def _visit(self, block: Block, probes: Tensor, there: np.ndarray) -> Visit:
        judged = self._judged(block) if block.is_perceptron else None
        logs = measured(block, probes).log_softmax(1)
        return Visit(judged, choices(logs), compared(logs, there))

    def _judged(self, block: Block) -> Judged:
        right, loss = np.zeros(len(block), np.int64), np.zeros(len(block))
        for x, y in self._batches:
            more_right, more_loss = right_and_loss(measured(block, x), y)
            right += more_right
            loss += more_loss
        return right, loss


def measured(block: Block, x: Tensor) -> Tensor:
    """Logits [n, C, B] on inputs that all share, a part of them at a time."""
    if not block.is_perceptron:
        return block.measured(x)
    parts = [block.measured(part) for part in torch.split(x, INPUTS)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def choices(logs: Tensor) -> Tensor:
    """The class with the largest value [n, B] in [n, C, B]; among equals the first."""
    largest = logs.amax(1, keepdim=True)
    if not largest.isfinite().all():
        return logs.max(1).indices
    # C minus the class where a value is the largest and 0 elsewhere: a search for the place takes three times as long.
    down = torch.arange(logs.shape[1], 0, -1, dtype=logs.dtype, device=logs.device).view(1, -1, 1)
    first = torch.addcmul(down, (logs - largest).sign_(), down).amax(1)
    return (logs.shape[1] - first).long()


def compared(logs: Tensor, there: np.ndarray) -> list[PairwiseKL]:
    """Of log-probabilities [n, C, P] of peers of whom some are `there` [n]: sums over a few at a time. Blocks are whole
    numbers of those few, so the order of the sums is the same for every number of threads."""
    parts = []
    for start in range(0, len(logs), FEW):
        few, own = logs[start : start + FEW], there[start : start + FEW]
        if not own.all():
            few = few[torch.from_numpy(np.flatnonzero(own)).to(few.device)]
        parts.append(PairwiseKL.of(few, few.exp(), classes=1))
    return parts


def right_and_loss(logits: Tensor, labels: Tensor) -> Judged:
    """Of logits [n, C, B] and labels [B] that all share: right answers [n], and summed cross-entropy [n]."""
    logs = logits.log_softmax(1)
    own = logs.gather(1, labels.expand(len(logs), 1, -1)).squeeze(1)  # [n, B]
    # The vote is the class with the largest value, so it is right where the label has that value: two classes of a
    # trained model are never exactly equal. To search for the class takes ten times as long. A model that has diverged
    # has no largest value, and needs that search.
    largest = logs.amax(1)
    right = (own == largest if largest.isfinite().all() else logs.argmax(1) == labels).sum(1)
    return right.cpu().numpy(), -own.sum(1).double().cpu().numpy()
