"""What the answers of stacked peers are about: the arrays of `learning/subjects.py`. N peers, P examples, C classes."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from p2p_tally.errors import ConfigError
from p2p_tally.learning.consensus import Answer
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.setup import Task
from p2p_tally.learning.subjects import class_means
from p2p_tally.runner.stacked.block import some
from p2p_tally.runner.stacked.peers import Peers


class StackedSubject(Protocol):
    def look(self, r: int, voting: np.ndarray) -> list[Tensor]:
        """Block by block, what those who are voting [N] answer by: logits [n, C, P], or features [n, D, P]."""
        ...

    def answers(self, given: Answer) -> Answer:
        """What each peer sends, from what the method's `answer` gives for the examples of all [N, P, ...]."""
        ...

    def labels(self, r: int, rows: Tensor | None) -> Tensor | None:
        """Of the examples: [P] where all have the same, else [n, P] of the peers of these rows, None for all."""
        ...

    def taught(self, consensus: Tensor, rows: Tensor | None) -> Tensor:
        """The row of the target for each example, [n, P, T] or [1, P, C], from the targets of all, or one for all."""
        ...


class SharedProbes:
    """The probes of a round, the same for all."""

    def __init__(self, task: Task, stack: Peers) -> None:
        self._task = task
        self._stack = stack

    def look(self, r: int, voting: np.ndarray) -> list[Tensor]:
        x, _ = self._task.probes.sample(r)
        return self._stack.each(lambda block: block.look(x, some(voting[block.rows])))

    def answers(self, given: Answer) -> Answer:
        return given

    def labels(self, r: int, rows: Tensor | None) -> Tensor | None:  # noqa: ARG002
        _, labels = self._task.probes.sample(r)
        return None if labels is None else labels.flatten().to(self._stack.device)

    def taught(self, consensus: Tensor, rows: Tensor | None) -> Tensor:
        return consensus if rows is None or len(consensus) == 1 else consensus[rows]


class OwnExamples:
    """The classes, by each peer's own examples."""

    def __init__(self, task: Task, stack: Peers) -> None:
        self._classes = task.classes
        self._count = task.federation.probes_per_round
        self._features = method_of(task.federation).sends.features
        if self._features and not all(group.is_perceptron for group in stack.groups):
            raise ConfigError(
                f"--engine stacked: --method {task.federation.method} reads the features of perceptrons alone; "
                f"accepted for --model {task.federation.model} is --engine exact"
            )
        self._stack = stack
        self._labels: Tensor | None = None  # [N, P], of the last look

    def look(self, r: int, voting: np.ndarray) -> list[Tensor]:  # noqa: ARG002
        count, features = self._count, self._features
        seen = self._stack.each(lambda block: block.look_at_own(count, some(voting[block.rows]), features=features))
        self._labels = self._stack.by_rank([labels for _, labels in seen])
        return [outputs[:, : -self._classes] if features else outputs for outputs, _ in seen]

    def answers(self, given: Answer) -> Answer:
        assert isinstance(given, np.ndarray) and self._labels is not None
        return class_means(given, self._labels.cpu().numpy(), self._classes)

    def labels(self, r: int, rows: Tensor | None) -> Tensor | None:  # noqa: ARG002
        assert self._labels is not None
        return self._labels if rows is None else self._labels[rows]

    def taught(self, consensus: Tensor, rows: Tensor | None) -> Tensor:
        labels = self.labels(0, rows)
        assert labels is not None
        own = torch.arange(len(labels), device=labels.device) if rows is None else rows
        return consensus[0][labels] if len(consensus) == 1 else consensus[own[:, None], labels]


def stacked_subject(task: Task, stack: Peers) -> StackedSubject:
    if not method_of(task.federation).sends.stackable:
        raise ConfigError(
            f"--engine stacked: peers of --method {task.federation.method} look at other examples, and at other "
            "numbers of them; accepted is --engine exact"
        )
    by_class = method_of(task.federation).sends.by_class
    return OwnExamples(task, stack) if by_class else SharedProbes(task, stack)
