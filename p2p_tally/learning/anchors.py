"""Anchors: examples that a peer makes after its own, and what answers about them are. See `knowledge/desa.py`.

They are made by distribution matching (Zhao and Bilen, "Dataset Condensation with Distribution Matching", WACV 2023;
its text was not at hand): random features of them have the mean, class by class, that those of the peer's own examples
have. New random features are drawn for each step. They begin as noise with the mean and the spread of their class, not
as examples. Still they are made from private data, and who gets them learns something of it.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.consensus import Answer
from p2p_tally.learning.data import Examples, Normalise
from p2p_tally.option_types import ANCHOR_NAMES as NAMES
from p2p_tally.option_types import LARGEST_FEATURE

STEPS = 100
STEP_SIZE = 0.05  # Adam's, in units of the examples' spread
RANDOM_FEATURES = 128
MOST = 256  # of a class's own examples that are matched


def make_anchors(inputs: Tensor, labels: Tensor, count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Anchors [P, D] and their labels [P], class after class, as many of each class as of any other that is there.
    `inputs` [n, D]: one's own examples."""
    held = torch.tensor(sorted(set(labels.tolist())))
    made_labels = held[torch.arange(count) % len(held)].sort().values
    middle, spread = inputs.mean(), inputs.std().clamp_min(1e-6)
    matched = {
        label: ((inputs[labels == label] - middle) / spread)[:MOST] for label in sorted(set(made_labels.tolist()))
    }
    noise = torch.randn(count, inputs.shape[1], generator=draw)
    made = torch.stack(
        [
            matched[label].mean(0) + row * matched[label].std(0, correction=0)
            for label, row in zip(made_labels.tolist(), noise, strict=True)
        ]
    )
    made.requires_grad_()
    optimiser = torch.optim.Adam([made], STEP_SIZE)
    for _ in range(STEPS):
        weights = torch.randn(inputs.shape[1], RANDOM_FEATURES, generator=draw) / inputs.shape[1] ** 0.5
        shifts = torch.randn(RANDOM_FEATURES, generator=draw)
        loss = made.new_zeros(())
        for label, own in matched.items():
            apart = _means(made[made_labels == label], weights, shifts) - _means(own, weights, shifts)
            loss = loss + apart.square().sum()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    low, high = inputs.min(0).values, inputs.max(0).values
    found = (made.detach() * spread + middle).clamp(low, high)  # no value that no example has
    return found.clamp(-LARGEST_FEATURE, LARGEST_FEATURE), made_labels


def _means(inputs: Tensor, weights: Tensor, shifts: Tensor) -> Tensor:
    return F.relu(inputs @ weights + shifts).mean(0)


def name_of(table: np.ndarray) -> int:
    """What answers name these anchors [P, 1 + D] by."""
    return int.from_bytes(hashlib.sha256(table.astype("<f4").tobytes()).digest()[:4], "little") % NAMES


class Anchors:
    """A subject (subjects.py): the anchors of this peer and of those that have sent theirs, own first.

    The first answer is the own anchors. From then on a peer answers for these, and learns its neighbours' answers for
    theirs; and as many private examples as it made anchors are drawn to the anchors' features."""

    def __init__(
        self, federation: Federation, private: Examples, classes: int, draw: torch.Generator, normalise: Normalise
    ) -> None:
        """`draw`: the peer's own generator."""
        self._private = private
        self._count = federation.probes_per_round
        self._classes = classes
        self._draw = draw
        x, y = private.take(torch.arange(len(private)))
        assert y is not None
        self._normalise = normalise if x.dtype == torch.uint8 else (lambda raw: raw)
        x = self._normalise(x)
        self._shape = x.shape[1:]
        _check(federation, x, y, normalise)
        maker = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=draw)))
        made, labels = make_anchors(x.reshape(len(x), -1), y.flatten(), self._count, maker)
        self._known = torch.cat([labels[:, None].float(), made], 1)[None]  # [m, P, 1 + D], own first
        self._told = torch.zeros((), dtype=torch.bool)  # whether others have been sent them
        self._names: list[int] = []  # of the anchors in the last sample

    def sample(self, round: int) -> tuple[Tensor, Tensor | None]:  # noqa: ARG002
        x, y = self._private.take(torch.randint(len(self._private), (self._count,), generator=self._draw))
        assert y is not None
        rows = self._known.flatten(0, 1)
        self._names = [name_of(table.numpy()) for table in self._known]
        anchors = rows[:, 1:].reshape(-1, *self._shape)
        return torch.cat([anchors, self._normalise(x)]), torch.cat([rows[:, 0].long(), y.flatten()])

    def read(self, outputs: Tensor) -> Tensor:
        return outputs[..., -self._classes :]

    def answer(self, given: Answer, labels: Tensor | None) -> Answer:  # noqa: ARG002
        assert isinstance(given, np.ndarray)
        if not self._told:
            self._told.fill_(True)
            return self._known[0].numpy().copy()
        name = np.full((self._count, 1), self._classes + self._names[0], np.float32)
        return np.concatenate([name, given[: self._count]], 1)

    def rows(self, target: Tensor, labels: Tensor | None) -> Tensor:
        assert labels is not None
        result = target.new_zeros(len(labels), 1 + self._classes)
        result[len(self._names) * self._count :, 0] = -1.0
        for place, name in enumerate(self._names):
            found = target[target[:, 0] == self._classes + name]
            if len(found):  # of two who name the same the first by name of the peer
                result[place * self._count : (place + 1) * self._count] = found[: self._count, 1:]
        return result

    def hear(self, answers: Sequence[Answer]) -> None:
        """Keep the anchors among what came."""
        known = {name_of(table.numpy()) for table in self._known}
        for table in answers:
            assert isinstance(table, np.ndarray)
            if table[0, 0] < self._classes and name_of(table) not in known:
                known.add(name_of(table))
                self._known = torch.cat([self._known, torch.from_numpy(table.astype(np.float32))[None]])

    @property
    def state(self) -> dict[str, Tensor]:
        return {"known": self._known, "told": self._told}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._known, self._told = state["known"].clone(), state["told"].clone()


def _check(federation: Federation, x: Tensor, y: Tensor, normalise: Normalise) -> None:
    refused = f"--data {federation.data}: the method {federation.method} makes examples, "
    if not x.is_floating_point() or y.dim() != 1:
        raise ConfigError(f"{refused}and can make none of text; accepted are inputs of numbers with a label each")
    if not torch.equal(normalise(x[:2]), x[:2]) and normalise(x[:2]).shape != x[:2].shape:
        raise ConfigError(f"{refused}and these inputs become others when they are normalised; accepted is {x.dtype}")
