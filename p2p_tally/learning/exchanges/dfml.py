"""DFML: a peer trains its own model and those of its neighbours together, on its private data: each learns from labels
and from the others.

Khalil, Estiri, Beitollahi, Asadi, Hemati, Li, Zhang and Chen, "DFML: Decentralized Federated Mutual Learning", TMLR
2024 (arXiv 2402.01863; its abstract, its introduction and a summary of its objective were at hand): the loss of each
model is (1 - a) times its cross-entropy with a re-weighted softmax, and a times its divergence from the others; a goes
up and down in cycles; peak models are kept. Simplifications: docs/methods.md. k neighbours, W parameters, B examples.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from p2p_tally.config import Federation
from p2p_tally.learning.exchanges.dpfl import every_link
from p2p_tally.learning.exchanges.exchange import Exchange
from p2p_tally.learning.exchanges.pame import all_alike

if TYPE_CHECKING:
    from torch import Tensor

    from p2p_tally.learning.own import Own


class Peak:
    """The model after a merge, how many merges there were, and the model where distillation last weighed most. Vectors
    [W], or [n, W] for many nodes at once."""

    def __init__(self, start: "Tensor", cycle: int) -> None:
        self._cycle = cycle
        self._peak = start.clone()
        self._merges = start.new_zeros(*start.shape[:-1], 1)

    def step(self, average: "Tensor") -> "Tensor":
        self._merges += 1
        at_top = self._merges % self._cycle == self._cycle // 2
        self._peak.copy_(average.where(at_top, self._peak))
        return average

    @property
    def state(self) -> dict[str, "Tensor"]:
        return {"peak": self._peak, "merges": self._merges}


def peak(start: "Tensor", federation: Federation) -> Peak:
    return Peak(start, federation.mutual_cycle)


def peak_answers(parameters: "Tensor", state: "Mapping[str, Tensor]", federation: Federation) -> "Tensor":
    """The peak model; before there is one, the model itself."""
    known = state["merges"].view(-1, 1) >= federation.mutual_cycle // 2
    return state["peak"].view_as(parameters).where(known, parameters)


def weight_of_others(merge: int, cycle: int) -> float:
    """a of a merge, from the first: from 0 at the ends of a cycle to 1 in its middle, along a cosine."""
    return (1.0 - math.cos(2.0 * math.pi * merge / cycle)) / 2.0


def mutual_losses(logits: "Tensor", labels: "Tensor", log_shares: "Tensor", others: float) -> "Tensor":
    """The loss of each of n > 1 models [n] on one batch, from their logits [n, B, C].

    The softmax of the cross-entropy is weighted by the shares of the classes in the peer's own data [C]; the divergence
    is the mean over the other models q of KL(q || p), and they are not pulled."""
    models = len(logits)
    weighted = (logits + log_shares).log_softmax(-1)
    supervised = -weighted.gather(-1, labels.expand(models, -1)[..., None]).mean((1, 2))
    own = logits.log_softmax(-1)
    given = own.detach()
    said = given.exp()
    entropy = -(said * given).sum(-1)  # [n, B]
    crossed = -(((said.sum(0) - said) / (models - 1)) * own).sum(-1)
    distilled = (crossed - (entropy.sum(0) - entropy) / (models - 1)).mean(1)
    return (1.0 - others) * supervised + others * distilled


def mutual(gathered: "Tensor", own: "Own", federation: Federation) -> "Tensor":
    """One's own model of [1 + k, W], after --local-steps steps in which all were trained together. Neighbours whose
    models say nothing finite are left out; a peer alone keeps its own."""
    import torch  # noqa: PLC0415 - rows are read without it

    from p2p_tally.learning.optimiser import FlatAdamW  # noqa: PLC0415

    merge = int(own.state["merges"]) + 1
    rows = gathered[[place for place, row in enumerate(gathered) if not place or math.isfinite(own(row))]]
    if len(rows) == 1:
        return rows[0]
    adamw = FlatAdamW(rows.view(-1), None, federation.lr, federation.weight_decay)
    for step in range(federation.local_steps):
        x, labels = own.batch("mutual", merge, step)
        leaf = rows.clone().requires_grad_()
        with torch.enable_grad():
            losses = mutual_losses(
                own.logits(leaf, x), labels, own.log_shares, weight_of_others(merge, federation.mutual_cycle)
            )
        adamw.step([torch.autograd.grad(losses.sum(), leaf)[0].view(-1)])
    return rows[0]


MUTUAL = Exchange(links=every_link, weights=all_alike, takes=mutual, bounds=False)
