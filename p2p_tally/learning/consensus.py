"""From what the peers sent for a round's probes to one target distribution per probe.

Everything is taken in the order of the given list, which is that of node names, so arrival order cannot change
a float. P probes, C classes, N ballots at hand (one's own included).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from p2p_tally.learning.merging import weighted_sum
from p2p_tally.learning.objectives import NO_LABEL

# One node's answer for the probes of a round: votes [P], soft labels [P, C], or classes and probabilities [P, k] each.
Answer = np.ndarray | tuple[np.ndarray, np.ndarray]


def tally(votes: np.ndarray, classes: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Votes [N, P] as a histogram [P, C] that sums to 1; `weights` [N] where voters do not count alike."""
    voters, probes = votes.shape
    places = votes + np.arange(0, probes * classes, classes)  # [N, P], each vote's cell in the flat table
    spread = None if weights is None else np.repeat(weights, probes)
    # Whole counts are exact in any order; weighted ones are summed voter by voter, in the order given.
    counted = np.bincount(places.ravel(), spread, probes * classes).reshape(probes, classes)
    histogram: np.ndarray = (counted / voters if weights is None else counted).astype(np.float32)
    return histogram


def inverse_agreement_weights(
    votes: np.ndarray, classes: int, blend: float, weights: np.ndarray | None = None
) -> np.ndarray:
    """Voter weights [N]: the given ones (all alike), blended with some that grow with dissent from the plurality."""
    base = np.full(len(votes), 1.0 / len(votes)) if weights is None else weights
    plurality = tally(votes, classes, weights).argmax(1)  # [P]
    dissent = 1.0 - (votes == plurality).mean(1)  # [N]
    if not dissent.any():
        return base
    blended: np.ndarray = (1.0 - blend) * base + blend * dissent / dissent.sum()
    return blended


def from_votes(
    answers: Sequence[np.ndarray], classes: int, inverse_agreement: float = 0.0, weights: np.ndarray | None = None
) -> Tensor:
    """The histogram of the votes; `weights` [N], which sum to 1, where voters do not count alike."""
    votes = np.array(answers, dtype=np.int64)  # [N, P]
    if inverse_agreement:
        weights = inverse_agreement_weights(votes, classes, inverse_agreement, weights)
    return torch.from_numpy(tally(votes, classes, weights))


def from_soft(answers: Sequence[np.ndarray], weights: np.ndarray | None = None) -> Tensor:
    """The mean of the peers' distributions [P, C], summed in the order given."""
    if weights is not None:
        return torch.from_numpy(weighted_sum(answers, weights.tolist()))
    total = answers[0].copy()
    for answer in answers[1:]:
        total += answer
    return torch.from_numpy(total / np.float32(len(answers)))


def from_top_k(
    answers: Sequence[tuple[np.ndarray, np.ndarray]], classes: int, weights: np.ndarray | None = None
) -> Tensor:
    """The mean of the peers' truncated distributions [P, C], each already made to sum to 1."""
    mean = torch.zeros(len(answers[0][0]), classes)
    for voter, (indices, probabilities) in enumerate(answers):
        counted = probabilities.copy() if weights is None else probabilities * np.float32(weights[voter])
        mean.scatter_add_(1, torch.from_numpy(indices.astype(np.int64)), torch.from_numpy(counted))
    return mean / len(answers) if weights is None else mean


@dataclass(frozen=True)
class Measures:
    """How a set of votes on the same probes agrees, each a mean over the probes."""

    agreement: float  # share of the votes that the plurality has
    margin: float  # that share minus the runner-up's
    plurality_right: float | None  # share of labelled probes where the plurality is the label; None without labels


def measure(votes: np.ndarray, classes: int, labels: np.ndarray | None) -> Measures:
    """Measures of votes [N, P]; among equal counts the smallest class is the plurality."""
    histogram = tally(votes, classes)  # [P, C]
    plurality = histogram.argmax(1)  # [P]
    first = histogram.max(1)
    np.put_along_axis(histogram, plurality[:, None], 0, axis=1)
    known = None if labels is None else labels != NO_LABEL
    right = None if known is None or not known.any() else float((plurality == labels)[known].mean())
    return Measures(float(first.mean()), float((first - histogram.max(1)).mean()), right)


def mean_pairwise_kl(log_probabilities: Tensor) -> float:
    """Lemma 1's disagreement: the mean of KL(f_n || f_m) over ordered pairs n != m and probes, from logs [N, P, C].

    The double sum over pairs is worked out in O(N): sum over pairs of p_n (log p_n - log p_m) needs only the sums
    of p and of log p over the nodes.
    """
    nodes = log_probabilities.shape[0]
    if nodes < 2:
        return 0.0
    logs = log_probabilities.double()
    probabilities = logs.exp()
    own = (probabilities * logs).sum((0, 2))  # [P]
    cross = (probabilities.sum(0) * logs.sum(0)).sum(1)  # [P]
    return float(((nodes * own - cross) / (nodes * (nodes - 1))).mean().clamp(min=0))
