"""What a merge rule keeps from one merge to the next, such as DiLoCo's momentum, and how it becomes the same again.

Nodes that take part in the same merges have the same outer state. After a merge that failed here, or in which not all
members took part, others may have another one. Then a node puts a digest of its own into its announcements, and where
those of a merge differ the outer state is averaged together with the parameters. So after the first merge of all there
is one model again. It must not know how a merge sends its runs.
"""

import numpy as np
from torch import Tensor, from_numpy

from p2p_tally.ids import digest
from p2p_tally.node.merges.exchange import Merged
from p2p_tally.node.position import Position

# Bytes of a name. Two states never share one by accident.
NAME_BYTES = 16


class OuterState:
    """The outer state of one node. Without tensors there is none: then it has no name and nothing is done."""

    def __init__(self, tensors: dict[str, Tensor], position: Position) -> None:
        """`tensors`: as a learner hands them over; these are written when a merge makes them the same again."""
        self._tensors = [value for key, value in tensors.items() if key.startswith(("outer.", "student."))]
        self._position = position

    @property
    def name(self) -> bytes:
        """For announcements; empty as long as all members are known to have the same."""
        if not self._tensors or not self._position.apart:
            return b""
        return bytes.fromhex(digest(self.vector().data))[:NAME_BYTES]

    def vector(self) -> np.ndarray:
        """All of it, a copy, in float32."""
        flat = [tensor.detach().cpu().reshape(-1).numpy() for tensor in self._tensors]
        return np.concatenate(flat, dtype="<f4") if flat else np.empty(0, "<f4")

    def settle(self, merged: Merged) -> Merged:
        """A merge among all has ended: take the mean of the outer states, if there is one."""
        if merged.outer is not None:
            start = 0
            for tensor in self._tensors:
                values = merged.outer[start : start + tensor.numel()]
                tensor.copy_(from_numpy(values).view(tensor.shape))
                start += tensor.numel()
        self._position.keeps_apart(merged.average is None or not merged.whole)
        return merged
