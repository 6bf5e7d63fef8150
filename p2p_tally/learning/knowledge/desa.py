"""DeSA: each peer makes a few examples after its own (synthetic anchors) and sends them once; knowledge is about them.

Huang, Srinivas, Zhang, Li, "Overcoming Data and Model Heterogeneities in Decentralized Federated Learning via Synthetic
Anchors", ICML 2024 (arXiv 2405.11525), section 3: anchors by distribution matching, a regularisation of features
towards the anchors (REG), distillation of the others' answers on them (KD). The abstract and the authors' public code
were at hand, not the paper's text. What is simpler here: docs/methods.md. How anchors are made: `learning/anchors.py`.

P anchors of a peer, A of all that this peer has, C classes, D features.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from p2p_tally.config import Federation

if TYPE_CHECKING:
    from torch import Tensor


def by_name(
    answers: Sequence[np.ndarray], classes: int, _federation: Federation, weights: np.ndarray | None = None
) -> np.ndarray:
    """All answers for anchors, one below the other [m P, 2 + C]: the name of the anchors, what the answer counts (1 on
    the mean), and its probabilities. Ballots that have anchors themselves answer nothing."""
    found = [np.zeros((0, 2 + classes), np.float32)]
    for peer, table in enumerate(answers):
        if table[0, 0] >= classes:
            share = 1.0 if weights is None else float(weights[peer]) * len(answers)
            shares = np.full((len(table), 1), share, np.float32)
            found.append(np.concatenate([table[:, :1], shares, table[:, 1:]], 1))
    return np.concatenate(found)


def drawn_to_anchors(
    outputs: "Tensor",
    labels: "Tensor",
    rows: "Tensor | None",
    label_weight: "float | Tensor",
    consensus_weight: "float | Tensor",
    classes: int,
) -> "Tensor":
    """Cross-entropy to the labels (all examples) and to their makers' answers (anchors), and the mean square of what
    lies between a private example's features and the mean features of its class's anchors: a row's `loss`.

    Outputs [A + P, D + C] are features and logits, of the anchors and then of private examples. Rows [A + P, 1 + C] say
    how much an answer counts, 0 for an anchor without one, -1 for a private example; and the answer."""
    own, logs = outputs[..., :-classes], outputs[..., -classes:].log_softmax(-1)
    loss = -label_weight * logs.gather(-1, labels[..., None]).squeeze(-1).mean()
    if rows is None:
        return loss
    private = rows[:, 0] < 0
    shares = rows[:, 0].clamp_min(0.0)
    answered = (rows[:, 0] > 0).sum().clamp_min(1)
    loss = loss - consensus_weight * (shares * (rows[:, 1:] * logs).sum(-1)).sum() / answered
    anchors, anchor_labels = own[~private].detach(), labels[~private]
    of_class = (labels[private][:, None] == anchor_labels).to(own.dtype)  # [P, A]
    known = of_class.sum(-1, keepdim=True)
    centres = of_class @ anchors / known.clamp_min(1)  # [P, D]
    apart = (own[private] - centres).square().mean(-1) * (known[:, 0] > 0)
    return loss + consensus_weight * apart.mean()
