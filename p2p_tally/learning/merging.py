"""Averages of parameter vectors, summed in the order given (that of node names), and what a merge does with them.

A row of methods.py names a function merge_step(start, federation) -> MergeStep. No torch is imported here: a tensor
brings its own methods.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from p2p_tally.config import Federation

if TYPE_CHECKING:
    from torch import Tensor


def mean(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """The plain mean, in float32: one sum in order, one division."""
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    total /= np.float32(len(vectors))
    return total


def weighted_sum(vectors: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """The mean with mixing weights that sum to 1, in float32."""
    total = np.zeros_like(vectors[0])
    term = np.empty_like(vectors[0])
    for vector, weight in zip(vectors, weights, strict=True):
        total += np.multiply(vector, np.float32(weight), out=term)
    return total


class MergeStep(Protocol):
    """What a merge makes of the peers' mean. Parameters are [W], or [n, W] for many nodes at once."""

    def step(self, average: "Tensor") -> "Tensor":
        """The next parameters, from the mean of the peers' parameters."""
        ...

    @property
    def state(self) -> dict[str, "Tensor"]:
        """The tensors that the next step depends on, by name. A checkpoint keeps them and writes into them."""
        ...


class Replace:
    """The mean becomes the model."""

    def step(self, average: "Tensor") -> "Tensor":
        return average

    @property
    def state(self) -> dict[str, "Tensor"]:
        return {}


class OuterNesterov:
    """DiLoCo's outer optimiser: the last merged model, and the momentum of its changes.

    Every peer of a mesh keeps the same state, because each gets the same mean.
    """

    def __init__(self, start: "Tensor", lr: float, momentum: float) -> None:
        self._lr = lr
        self._momentum = momentum
        self._anchor = start.clone()
        self._velocity = start.new_zeros(start.shape)

    @property
    def state(self) -> dict[str, "Tensor"]:
        return {"anchor": self._anchor, "velocity": self._velocity}

    def step(self, average: "Tensor") -> "Tensor":
        """The change of the mean against the last merged model is the gradient."""
        gradient = self._anchor - average
        self._velocity.mul_(self._momentum).add_(gradient)
        self._anchor.sub_(gradient.add_(self._velocity, alpha=self._momentum), alpha=self._lr)
        return self._anchor


def replace(_start: "Tensor", _federation: Federation) -> MergeStep:
    return Replace()


def outer_nesterov(start: "Tensor", federation: Federation) -> MergeStep:
    return OuterNesterov(start, federation.outer_lr, federation.outer_momentum)
