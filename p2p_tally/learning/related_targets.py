"""Consensus targets of related methods, to compare votes with. Each says what it is from, and what is simpler here.

A row of methods.py names one of them; `consensus.py` tells what the arguments are.
"""

from collections.abc import Sequence

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.learning.answers import unsure
from p2p_tally.learning.consensus import by_vote, mean_soft_label, tally

SHARPNESS = 0.1  # DS-FL's temperature
LEFT_OUT = 0.5  # IDKD: the share of a peer's answers that is taken to be out of its distribution


def majority(
    answers: Sequence[np.ndarray], classes: int, _federation: Federation, weights: np.ndarray | None = None
) -> np.ndarray:
    """The class with most votes, with certainty; the smallest of those that are even.

    FedCT: Abourayya and others, "Little is Enough", AAAI 2025, algorithm 1: peers label unlabelled public data, and the
    majority is the pseudo-label. There the whole public set is labelled every few rounds and then stays among each
    peer's data; here a few probes are labelled and learned from in every round.
    """
    shares = tally(np.array(answers, dtype=np.int64), classes, weights)
    certain = np.zeros_like(shares)
    np.put_along_axis(certain, shares.argmax(1)[:, None], 1.0, axis=1)
    certain[~shares.any(1)] = 0.0
    return certain


def sharpened(
    answers: Sequence[np.ndarray], classes: int, federation: Federation, weights: np.ndarray | None = None
) -> np.ndarray:
    """The mean of the peers' distributions, made certain by a softmax of low temperature.

    DS-FL: Itahara and others, "Distillation-based semi-supervised federated learning", IEEE TMC 2021, section 3.3:
    entropy reduction aggregation, with its temperature of 0.1.
    """
    raised = np.exp((mean_soft_label(answers, classes, federation, weights) - 1.0) / np.float32(SHARPNESS))
    certain: np.ndarray = raised / raised.sum(1, keepdims=True)
    return certain


def mean_of_confident(
    answers: Sequence[np.ndarray], classes: int, federation: Federation, weights: np.ndarray | None = None
) -> np.ndarray:
    """The mean over those peers that are confident: their largest probability is above that of half their ballot.

    IDKD: Ravikumar and others, "Homogenizing non-IID datasets via in-distribution knowledge distillation for
    decentralized learning", TMLR 2024, section 3: a peer labels what its detector, the largest probability, takes for
    its own distribution. There the threshold comes from a calibration set; here it is the median of the ballot. A soft
    label is sent for every probe, and who receives it leaves it out: the same result, for bytes that could be saved.
    """
    if len(answers[0]) == 1:
        return mean_soft_label(answers, classes, federation, weights)
    own = np.stack([~unsure(answer.max(1), LEFT_OUT) for answer in answers]).astype(float)  # [N, P]
    if weights is not None:
        own *= weights[:, None] if weights.ndim == 1 else weights
    total = own.sum(0)
    shares = own / np.where(total > 0, total, 1.0)
    if federation.robust_soft is not None:
        return mean_soft_label(answers, classes, federation, shares)
    return by_vote(answers, shares)
