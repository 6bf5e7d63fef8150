"""AdamW of a block of peers: one call for all rows that have taken the same number of steps.

Knows no model and no round. n rows of W parameters.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from p2p_tally.learning.optimiser import FlatAdamW

# Rows that step in one call when only some of a block do. AdamW treats the last few floats of a call in another way
# than the others, so these must not depend on how peers are cut into blocks: a block is a whole number of 16 rows, and
# 16 rows of any length have no such floats.
FEW = 16


class RowsAdamW:
    """The AdamW of every row. Rows that miss a step fall behind: from then on they step with those that did too."""

    def __init__(self, parameters: Tensor, lr: float, weight_decay: float) -> None:
        self._parameters = parameters  # [n, W]
        self._all = FlatAdamW(parameters.view(-1), None, lr, weight_decay)
        self._steps = torch.zeros(len(parameters))  # [n]
        self._counts = self._steps.numpy()  # the same memory: numpy compares a few numbers ten times as fast

    @property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Means of the gradients and of their squares, [n, W] each."""
        state, shape = self._all.state, self._parameters.shape
        return state["mean"].view(shape), state["square"].view(shape)

    def step(self, gradient: Tensor, taking: Sequence[int] | None = None) -> None:
        """A step along rows of the gradient [n, W] of every row, or of those that are `taking` one."""
        counts = self._counts
        if taking is None and (counts == counts[0]).all():
            self._all.state["step"].fill_(float(counts[0]))
            self._all.step([gradient.view(-1)])
            counts += 1
            return
        chosen = np.arange(len(counts)) if taking is None else np.array(taking)
        for count in np.unique(counts[chosen]).tolist():
            alike = chosen[counts[chosen] == count]
            for few in np.split(alike, np.flatnonzero(np.diff(alike // FEW)) + 1):
                self._some(torch.from_numpy(few).to(gradient.device), count, gradient)
        counts[chosen] += 1

    def _some(self, rows: Tensor, count: float, gradient: Tensor) -> None:
        """A step of these rows, which have taken `count` steps: on a copy of them."""
        mean, square = self._moments
        parameters, moments = self._parameters[rows], {"mean": mean[rows], "square": square[rows]}
        state = {key: value.view(-1) for key, value in moments.items()} | {"step": gradient.new_full((), count)}
        FlatAdamW(parameters.view(-1), None, self._all.lr, self._all.weight_decay, state).step(
            [gradient[rows].view(-1)]
        )
        self._parameters[rows], mean[rows], square[rows] = parameters, moments["mean"], moments["square"]

    def row(self, row: int) -> list[Tensor]:
        """The state of one row, to read or to overwrite."""
        return [self._steps[row], *(moment[row] for moment in self._moments)]

    def state(self) -> dict[str, Tensor]:
        """Its three tensors by rows: [n], [n, W], [n, W]."""
        mean, square = self._moments
        return {"step": self._steps, "mean": mean, "square": square}

    def restore(self, state: dict[str, Tensor]) -> None:
        for key, tensor in self.state().items():
            tensor.copy_(state[key])
