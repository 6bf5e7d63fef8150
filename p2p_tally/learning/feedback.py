"""State of merges that send changes: the result of the last merge, and the part of the change that was not sent.

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

    What rounding or top-k leaves out of a change is the residual. It is added to the next change: it comes late, but it
    is not lost. Peers compare their bases by name: a peer that missed a merge, or has rejoined, has another base.
    """

    def __init__(self, start: Tensor, common_start: bool) -> None:
        """The first base is the common start, or where peers start differently a vector of zeros."""
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
        """A merge is completed: every peer has `merged`, and `kept` of this node's change was not sent."""
        self.base[:] = merged
        self.residual[:] = kept
        self.name = self._name()

    def restored(self) -> None:
        """A checkpoint has been written into the state: name the base again."""
        self.name = self._name()

    def taken_over(self) -> None:
        """A peer's base has been written into the state: nothing of this node's own change is left to send."""
        self._residual.zero_()
        self.name = self._name()

    def _name(self) -> bytes:
        """The base's name is a digest of its values: equal names mean equal bases."""
        return hashlib.sha256(self.base.astype("<f4", copy=False).data).digest()[:NAME_BYTES]
