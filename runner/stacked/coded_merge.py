"""A coded merge of all stacked peers: what the nodes' parcels do run by run, on rows of a matrix.

No peer fails here, so all have one base, and every merge over a complete graph sends changes.
"""

import numpy as np
import torch
from torch import Tensor

from p2p_tally.protocol.changes import ChangeFormat, fits
from p2p_tally.protocol.segments import runs, segments
from p2p_tally.runner.stacked.neighbourhoods import Neighbourhoods


class CodedMerge:
    """The merges of N peers with W parameters each."""

    def __init__(self, parameters: Tensor, coding: ChangeFormat, common_start: bool) -> None:
        nodes, width = parameters.shape
        self._coding = coding
        start = parameters[0].cpu().numpy().copy() if common_start else np.zeros(width, np.float32)
        self._base = start  # [W]
        self._kept = np.zeros((nodes, width), np.float32)  # what each peer kept back

    @property
    def coding(self) -> ChangeFormat:
        """That of the next merge over a complete graph; since zeros a change is the model, and every part is sent."""
        return self._coding if self._base.any() else self._coding.dense

    def mean(self, parameters: Tensor) -> tuple[Tensor, np.ndarray] | None:
        """The mean [1, W] over all, and what each would then keep back [N, W]; None where it cannot be coded."""
        vectors = parameters.cpu().numpy()
        nodes, width = vectors.shape
        kept = vectors - self._base
        kept += self._kept
        if not fits(kept):
            return None
        coding = self.coding
        average = np.empty(width, np.float32)
        for owner, segment in enumerate(segments(width, nodes)):
            for run in runs(segment):
                received = coding.rounded(kept[:, run])  # [N, n]
                own = kept[owner, run].copy()
                kept[:, run] -= received
                received[owner] = own  # it does not travel
                mean = received.sum(0, dtype=np.float32)  # in order of name, as the rows are
                mean /= np.float32(nodes)
                restored = coding.rounded(mean)
                kept[owner, run] = (mean - restored) * np.float32(nodes)
                average[run] = self._base[run] + restored
        return torch.from_numpy(average)[None].to(parameters.device), kept

    def settle(self, merged: Tensor, kept: np.ndarray) -> None:
        """The merge is completed: everybody has `merged` [W]."""
        self._base = merged.cpu().numpy().copy()
        self._kept = kept

    def state(self) -> dict[str, Tensor]:
        return {"merge.base": torch.from_numpy(self._base), "merge.kept": torch.from_numpy(self._kept)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._base = state["merge.base"].numpy().copy()
        self._kept = state["merge.kept"].numpy().copy()

    def mix(self, parameters: Tensor, graph: Neighbourhoods) -> Tensor | None:
        """The means [N, W] with neighbours' rounded parameters; what rounding took stays in each peer's own."""
        vectors = parameters.cpu().numpy()
        if not fits(vectors):
            return None
        rounded = np.empty_like(vectors)
        for run in runs(slice(0, vectors.shape[1])):
            rounded[:, run] = self._coding.dense.rounded(vectors[:, run])
        sent = torch.from_numpy(rounded).to(parameters.device)
        return graph.mix(sent).add_(parameters - sent)
