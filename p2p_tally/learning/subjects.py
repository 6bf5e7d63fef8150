"""What the answers of a round are about: its probes, or the classes, by a peer's own examples, or anchors (anchors.py).

A subject says which examples a peer looks at, what it sends of its answers for them, and which row of the target each
of them is taught by. The learner has one; `runner/stacked/subjects.py` has those of many peers at once. P examples.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.learning.anchors import Anchors
from p2p_tally.learning.consensus import Answer
from p2p_tally.learning.data import Examples, Normalise
from p2p_tally.learning.data.probes import ProbePool
from p2p_tally.learning.methods import Sends, method_of


class Subject(Protocol):
    def sample(self, round: int) -> tuple[Tensor, Tensor | None]:
        """The examples of a round: inputs and labels."""
        ...

    def read(self, outputs: Tensor) -> Tensor:
        """What the method's `answer` gets, of the model's outputs [..., P, O]."""
        ...

    def answer(self, given: Answer, labels: Tensor | None) -> Answer:
        """What is sent, from what the method's `answer` gives for each example."""
        ...

    def rows(self, target: Tensor, labels: Tensor | None) -> Tensor:
        """The row of the target that each example is taught by [P, C]."""
        ...

    def hear(self, answers: Sequence[Answer]) -> None:
        """All answers of a round, own included."""
        ...

    @property
    def state(self) -> dict[str, Tensor]:
        """What it keeps from one round to the next."""
        ...

    def restore(self, state: dict[str, Tensor]) -> None: ...


class Stateless:
    """What a subject has that keeps nothing."""

    def hear(self, answers: Sequence[Answer]) -> None:
        pass

    @property
    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        pass


class Probes(Stateless):
    """The public probes, the same at every peer: an answer for each, and a row of the target for each."""

    def __init__(self, pool: ProbePool) -> None:
        self._pool = pool

    def sample(self, round: int) -> tuple[Tensor, Tensor | None]:
        return self._pool.sample(round)

    def read(self, outputs: Tensor) -> Tensor:
        return outputs

    def answer(self, given: Answer, labels: Tensor | None) -> Answer:  # noqa: ARG002
        return given

    def rows(self, target: Tensor, labels: Tensor | None) -> Tensor:  # noqa: ARG002
        return target


class OwnClasses(Stateless):
    """The classes: the answer is a mean for each, over as many of the peer's own examples as others look at probes. An
    example is taught by the row of its label."""

    def __init__(
        self, private: Examples, count: int, classes: int, draw: torch.Generator, *, features: bool = False
    ) -> None:
        """`draw`: the peer's own generator. `features`: the means are of features, which stand before the logits."""
        self._features = features
        self._private = private
        self._count = count
        self._classes = classes
        self._draw = draw

    def sample(self, round: int) -> tuple[Tensor, Tensor | None]:  # noqa: ARG002
        return self._private.take(torch.randint(len(self._private), (self._count,), generator=self._draw))

    def read(self, outputs: Tensor) -> Tensor:
        return outputs[..., : -self._classes] if self._features else outputs

    def answer(self, given: Answer, labels: Tensor | None) -> Answer:
        assert isinstance(given, np.ndarray) and labels is not None
        return class_means(given, labels.cpu().numpy(), self._classes)

    def rows(self, target: Tensor, labels: Tensor | None) -> Tensor:
        assert labels is not None
        return target[labels]


def class_means(given: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """The table [..., C, 1 + D] of rows [..., P, D] with these labels [..., P]: how many rows a class has, and their
    mean. A class without any has zeros."""
    of_class = (labels[..., None, :] == np.arange(classes)[:, None]).astype(np.float32)  # [..., C, P]
    counts = of_class.sum(-1, keepdims=True)  # [..., C, 1]
    table: np.ndarray = np.concatenate([counts, of_class @ given / np.maximum(counts, 1)], -1)
    return table


def subject_of(
    federation: Federation,
    probes: ProbePool,
    private: Examples,
    classes: int,
    draw: torch.Generator,
    normalise: Normalise,
) -> Subject:
    """What the answers of a peer are about."""
    sends = method_of(federation).sends
    if sends is Sends.ANCHORS:
        return Anchors(federation, private, classes, draw, normalise)
    if sends.by_class:
        return OwnClasses(private, federation.probes_per_round, classes, draw, features=sends.features)
    return Probes(probes)
