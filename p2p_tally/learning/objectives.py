"""The loss of Algorithm 1, on the logits of one forward pass. P probes, C classes."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from p2p_tally.config import Federation
from p2p_tally.learning.consensus import NO_LABEL


def distillation_loss(
    logits: Tensor,
    labels: Tensor | None,
    consensus: Tensor | None,
    *,
    label_weight: float,
    consensus_weight: float,
    disagreement_weight: float = 0.0,
    by_margin: bool = False,
) -> Tensor:
    """alpha CE(f, y) + lambda_r (1 - alpha) KL(H || f), a mean over the probes, up to a constant without gradient.

    KL(H || f) is the cross-entropy to H minus the entropy of H, which no parameter changes. So both terms are
    cross-entropies of the same log f, and their weighted sum is one cross-entropy to one blended target: one pass.
    """
    target = blended_target(
        logits.shape[-1], labels, consensus, label_weight, consensus_weight, disagreement_weight, by_margin
    )
    return F.cross_entropy(logits, target, reduction="sum") / len(logits)


def blended_target(
    classes: int,
    labels: Tensor | None,
    consensus: Tensor | None,
    label_weight: float,
    consensus_weight: float | Tensor,
    disagreement_weight: float = 0.0,
    by_margin: bool = False,
) -> Tensor:
    """alpha y + lambda_r (1 - alpha) H, row by row [P, C]; a term of weight 0 is left out. For many peers at once with
    a weight for each: H [n, P, C], and the weights [n, 1, 1].

    `disagreement_weight` b scales each probe's share of H by 1 + b (1 - max H), `by_margin` by its margin: how far the
    first class is above the second. The label term is a mean over the probes that have a label.
    """
    parts = []
    if isinstance(consensus_weight, Tensor) or consensus_weight:
        assert consensus is not None
        weight = consensus_weight
        if disagreement_weight:
            weight = consensus_weight * (1.0 + disagreement_weight * (1.0 - consensus.amax(-1, keepdim=True)))
        if by_margin:
            weight = weight * margin(consensus)
        parts.append(consensus * weight)
    if label_weight:
        assert labels is not None
        parts.append(one_hot(labels, classes, label_weight))
    return parts[0] if len(parts) == 1 else parts[0].add_(parts[1])


def margin(consensus: Tensor) -> Tensor:
    """How far the first class of each row is above the second [..., P, 1]: 0 where two are even, 1 where all agree."""
    best = consensus.topk(2, -1).values
    return best[..., :1] - best[..., 1:]


def one_hot(labels: Tensor, classes: int, weight: float) -> Tensor:
    """Rows [..., P, C] with a weight at the label. Where some have no label, the others get more: the sum stays."""
    rows = torch.zeros(*labels.shape, classes, device=labels.device)
    present = labels != NO_LABEL
    count = int(present.sum())
    if count == labels.numel():
        return rows.scatter_(-1, labels[..., None], weight)
    if count:
        rows[present] = one_hot(labels[present], classes, weight * labels.numel() / count)
    return rows


def probe_loss(federation: Federation, weighs_disagreement: bool) -> Callable[..., Tensor]:
    """`distillation_loss` with the weights that options give, as a loss of a method's row is called."""

    def loss(
        logits: Tensor, labels: Tensor | None, rows: Tensor | None, label: float, consensus: float, _classes: int
    ) -> Tensor:
        return distillation_loss(
            logits,
            labels,
            rows,
            label_weight=label,
            consensus_weight=consensus,
            disagreement_weight=federation.disagreement_weight if weighs_disagreement else 0.0,
            by_margin=federation.consensus_weight == "margin",
        )

    return loss
