"""Averages of parameter vectors, summed in the order given (that of node names), and DiLoCo's outer step."""

from collections.abc import Sequence

import numpy as np
import torch
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


class OuterNesterov:
    """DiLoCo's outer optimiser: the last merged model, and the momentum of its changes.

    Every peer of a mesh keeps the same state, because it is fed the same mean.
    """

    def __init__(self, start: Tensor, lr: float, momentum: float) -> None:
        self.lr = lr
        self.momentum = momentum
        self.anchor = start.clone()  # [W]
        self.velocity = torch.zeros_like(start)  # [W]

    def step(self, average: Tensor) -> Tensor:
        """The next merged model [W] from the mean of the peers' models; the change against the last is the gradient."""
        gradient = self.anchor - average
        self.velocity.mul_(self.momentum).add_(gradient)
        self.anchor.sub_(gradient.add_(self.velocity, alpha=self.momentum), alpha=self.lr)
        return self.anchor
