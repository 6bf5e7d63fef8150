"""FD, federated distillation: for each class the mean distribution of a peer's own examples; no public data at all.

Jeong, Oh, Kim, Park, Bennis, Kim, "Communication-Efficient On-Device Machine Learning: Federated Distillation and
Augmentation under Non-IID Private Data", arXiv 1811.11479, section 2 and algorithm 1: the mean of the others' mean
distributions of a class is a second target for private examples of that class. What is simpler here: docs/methods.md.
"""

from collections.abc import Sequence

import numpy as np

from p2p_tally.config import Federation


def mean_of_holders(
    answers: Sequence[np.ndarray], _classes: int, _federation: Federation, weights: np.ndarray | None = None
) -> np.ndarray:
    """Of each class the mean [C, D] over the peers that have examples of it, from tables [C, 1 + D].

    However many examples: each peer counts once, or by its weight. A class that nobody has is a row of zeros."""
    total = np.zeros_like(answers[0][:, 1:])  # [C, D]
    shares = np.zeros((len(total), 1), np.float32)  # [C, 1]
    for peer, table in enumerate(answers):
        weight = np.float32(1.0 if weights is None else weights[peer])
        held = weight * (table[:, :1] > 0)
        total += held * table[:, 1:]
        shares += held
    mean: np.ndarray = total / np.where(shares > 0, shares, np.float32(1))
    return mean
