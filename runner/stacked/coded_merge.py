"""A coded merge of all stacked peers: what `node/merges` does run by run, on rows of a matrix.

No peer fails here. So all have the same base, and every merge over a complete graph sends changes.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from p2p_tally.node.formats import format_since
from p2p_tally.protocol.changes import ChangeFormat, fits
from p2p_tally.protocol.segments import runs, segments

# The mean of one run of all participants, in order of name, as the one at this place among them sums it.
MeanOfRun = Callable[[Sequence[np.ndarray], int], np.ndarray]


class CodedMerge:
    """The merges of N peers with W parameters each."""

    def __init__(self, parameters: Tensor, format: ChangeFormat, common_start: bool) -> None:
        nodes, width = parameters.shape
        self._format = format
        start = parameters[0].cpu().numpy().copy() if common_start else np.zeros(width, np.float32)
        self._base = start  # [W]
        self._kept = np.zeros((nodes, width), np.float32)  # what rounding kept back at each peer

    @property
    def format(self) -> ChangeFormat:
        """That of the next merge over a complete graph."""
        return format_since(self._base, self._format)

    def mean(self, parameters: Tensor, there: np.ndarray, mean_of: MeanOfRun) -> tuple[Tensor, np.ndarray] | None:
        """The mean [1, W] over those who take part, and what rounding then keeps back at each of them [n, W]; None
        where it cannot be coded. `there` [N]: who takes part. `mean_of`: the mean of the runs of all."""
        rows = slice(None) if there.all() else there  # a slice copies nothing
        vectors = parameters.cpu().numpy()[rows]
        nodes, width = vectors.shape
        kept = vectors - self._base
        kept += self._kept[rows]
        if not fits(kept):
            return None
        format = self.format
        average = np.empty(width, np.float32)
        for owner, segment in enumerate(segments(width, nodes)):
            for run in runs(segment):
                received = format.rounded(kept[:, run])  # [N, n]
                own = kept[owner, run].copy()
                kept[:, run] -= received
                received[owner] = own  # it does not travel
                mean = mean_of(list(received), owner)  # in order of name, as the rows are
                restored = format.rounded(mean)
                kept[owner, run] = (mean - restored) * np.float32(nodes)
                average[run] = self._base[run] + restored
        return torch.from_numpy(average)[None].to(parameters.device), kept

    def settle(self, merged: Tensor, kept: np.ndarray, there: np.ndarray) -> None:
        """The merge is completed: all who took part have `merged` [W]."""
        self._base = merged.cpu().numpy().copy()
        self._kept[there] = kept

    def taken_over(self, newcomer: int) -> None:
        """A newcomer has nothing of its own left to send."""
        self._kept[newcomer] = 0.0

    def state(self) -> dict[str, Tensor]:
        return {"merge.base": torch.from_numpy(self._base), "merge.kept": torch.from_numpy(self._kept)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._base = state["merge.base"].numpy().copy()
        self._kept = state["merge.kept"].numpy().copy()

    def sent_to_neighbours(self, parameters: Tensor) -> Tensor | None:
        """The parameters [N, W] as neighbours get them; None where they cannot be coded."""
        vectors = parameters.cpu().numpy()
        if not fits(vectors):
            return None
        rounded = np.empty_like(vectors)
        for run in runs(slice(0, vectors.shape[1])):
            rounded[:, run] = self._format.dense.rounded(vectors[:, run])
        return torch.from_numpy(rounded).to(parameters.device)
