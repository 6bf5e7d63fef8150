"""The step of stacked peers by a row's own loss: autograd differentiates it with respect to the models' outputs."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from p2p_tally.runner.stacked.block import Slope
from p2p_tally.runner.stacked.channels import Channels
from p2p_tally.runner.stacked.subjects import StackedSubject


def slope_of_loss(
    loss: Callable[..., Tensor],
    subject: StackedSubject,
    classes: int,
    r: int,
    consensus: Tensor | None,
    now: Channels,
) -> Slope:
    """`consensus`: the target of each peer, or one for all; None where nobody has spoken. N peers, n of a block."""
    labels = subject.labels(r, None)
    rows = None if consensus is None else subject.taught(consensus, None)

    def slope(seen: Tensor, places: slice | list[int]) -> Tensor:
        def own(weights: np.ndarray) -> Tensor:
            return torch.from_numpy(weights[places].astype(np.float32)).to(seen.device)[:, None]  # [n, 1]

        with torch.enable_grad():
            outputs = seen.detach().mT.requires_grad_()  # [n, P, O]
            taught = None if rows is None else rows[places] if len(rows) > 1 else rows
            known = labels[places] if labels is not None and labels.dim() > 1 else labels
            total = loss(outputs, known, taught, own(now.label), own(now.consensus), classes)
            (found,) = torch.autograd.grad(total, outputs)
        return found.mT

    return slope
