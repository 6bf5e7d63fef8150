"""What merges of changes build on: the vector that all came out of the last one with, and what rounding kept back.

Both change only when a merge is completed, and both are part of a checkpoint.
"""

import hashlib

import numpy as np
import torch
from torch import Tensor

# Long enough that two vectors never share a name by accident.
NAME_BYTES = 8


class ErrorFeedback:
    """One node's side of merges in which peers send their change since a common base.

    Rounding a change keeps something back, the residual; it is added to the next change, so that nothing is lost, only
    late. Peers compare their bases by name: one that missed a merge, or has rejoined, has another.
    """

    def __init__(self, start: Tensor, common_start: bool) -> None:
        """The first base is what all peers have in common: their start, or else nothing, a vector of zeros."""
        self._base = start.detach().cpu().clone() if common_start else torch.zeros(start.shape)  # [W]
        self._residual = torch.zeros_like(self._base)  # [W]
        self.name = self._name()

    @property
    def base(self) -> np.ndarray:
        return self._base.numpy()

    @property
    def residual(self) -> np.ndarray:
        return self._residual.numpy()

    @property
    def state(self) -> dict[str, Tensor]:
        return {"base": self._base, "residual": self._residual}

    def settle(self, merged: np.ndarray, kept: np.ndarray) -> None:
        """A merge is completed: everybody has `merged`, and this node kept `kept` back."""
        self.base[:] = merged
        self.residual[:] = kept
        self.name = self._name()

    def restored(self) -> None:
        """The state has been written to from outside."""
        self.name = self._name()

    def _name(self) -> bytes:
        """Of the base: a digest of its values, so that equal names mean equal bases whatever led to them."""
        return hashlib.sha256(self.base.astype("<f4", copy=False).data).digest()[:NAME_BYTES]
