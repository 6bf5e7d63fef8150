"""How the answers for a round's probes become one target distribution per probe, and how far answers agree.

All sums run in the order of the given list, which is the order of node names: the order of arrival changes no float.
P probes, C classes, N answers at hand (the node's own included). Everything is float32 in numpy, without torch.

A row of methods.py names one of the functions target(answers, classes, federation, weights) -> [P, C]. `weights` [N]
sum to 1; or [N, P], one for each vote, and those of a probe sum to 1, or are all 0. None means that all count the same.
A row of zeros in a target teaches nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.defence.soft import trimmed, trimmed_distributions
from p2p_tally.learning.merging import weighted_sum

if TYPE_CHECKING:
    from torch import Tensor

# One node's answer for the probes of a round: votes [P], soft labels [P, C], or classes and probabilities [P, k] each.
Answer = np.ndarray | tuple[np.ndarray, np.ndarray]

# Where peers may abstain, a probe teaches nothing with fewer votes than this. One peer's opinion is no consensus.
LEAST_CAST = 2

# The label of a probe that has none, in a pool where others have one.
NO_LABEL = -100


def votes_of(answer: Answer) -> np.ndarray:
    """The class that an answer puts first for each probe [P]."""
    if isinstance(answer, tuple):
        return answer[0][:, 0].astype(np.int64)
    return (answer.argmax(-1) if answer.ndim == 2 else answer).astype(np.int64)


def tally(votes: np.ndarray, classes: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Votes [N, P] as a histogram [P, C] whose rows sum to 1.

    `weights`: of the voters [N], or of each vote [N, P]; None: all count the same. A vote of C is no opinion: the tally
    of a probe is over the votes that were cast, and where fewer than LEAST_CAST were, its row is 0.
    """
    voters, probes = votes.shape
    if weights is not None and weights.ndim == 1:
        weights = np.repeat(weights, probes)
    cast = votes < classes
    whole = bool(cast.all())
    columns = classes if whole else classes + 1
    places = votes + np.arange(0, probes * columns, columns)  # [N, P], each vote's cell in the flat table
    # Whole counts are exact in any order; weighted ones are summed voter by voter, in the order given.
    spread = None if weights is None else weights.ravel()
    counted = np.bincount(places.ravel(), spread, probes * columns).reshape(probes, columns)
    if whole:
        shares: np.ndarray = (counted / voters if weights is None else counted).astype(np.float32)
        return shares
    return over_votes_cast(counted[:, :classes], cast.sum(0))


def counts(votes: np.ndarray, classes: int) -> np.ndarray:
    """How many of the votes [N, P] name each class [P, C]."""
    _, probes = votes.shape
    places = votes + np.arange(0, probes * (classes + 1), classes + 1)  # the last cell of a probe is no opinion
    return np.bincount(places.ravel(), minlength=probes * (classes + 1)).reshape(probes, -1)[:, :classes]


def beyond_chance(counted: np.ndarray) -> np.ndarray:
    """Fleiss' kappa [...] of counted votes [..., P, C]: how far voters agree beyond what chance would make them.

    1: all say the same of each probe. 0: they agree no more than if each drew its votes from the classes that all name,
    as often as all name them. Below 0: less than that. A probe with a single vote tells nothing.
    """
    cast = counted.sum(-1)  # [..., P]
    told = cast > 1
    agreeing = (counted * (counted - 1)).sum(-1) / np.where(told, cast * (cast - 1), 1)  # pairs of voters
    observed = (agreeing * told).sum(-1) / np.maximum(told.sum(-1), 1)
    named = (counted * told[..., None]).sum(-2)  # [..., C]
    by_chance = ((named / np.maximum(named.sum(-1), 1)[..., None]) ** 2).sum(-1)
    possible = 1.0 - by_chance
    kappa: np.ndarray = np.where(possible > 1e-9, (observed - by_chance) / np.maximum(possible, 1e-9), 0.0)
    return np.where(told.any(-1), kappa, 0.0)


def over_votes_cast(counted: np.ndarray, cast: np.ndarray) -> np.ndarray:
    """Counted votes [..., P, C] as shares of what was cast; `cast` [..., P]: the number of votes."""
    total = counted.sum(-1)
    enough = (cast >= LEAST_CAST) & (total > 0)
    shares: np.ndarray = counted * (enough / np.where(enough, total, 1.0))[..., None]
    return shares.astype(np.float32)


def inverse_agreement_weights(
    votes: np.ndarray, classes: int, blend: float, weights: np.ndarray | None = None
) -> np.ndarray:
    """Voter weights [N]: the given ones (None: all the same), blended with weights that grow with dissent.

    A voter's dissent is the share of the probes where its vote is not the plurality.
    """
    base = np.full(len(votes), 1.0 / len(votes)) if weights is None else weights
    assert base.ndim == 1, "--inverse-agreement has weights of its own for each voter"
    plurality = tally(votes, classes, weights).argmax(1)  # [P]
    dissent = 1.0 - (votes == plurality).mean(1)  # [N]
    if not dissent.any():
        return base
    blended: np.ndarray = (1.0 - blend) * base + blend * dissent / dissent.sum()
    return blended


def histogram(
    answers: Sequence[np.ndarray], classes: int, federation: Federation, weights: np.ndarray | None = None
) -> np.ndarray:
    """The share of the votes that each class has; --inverse-agreement gives more weight to voters who dissent."""
    votes = np.array(answers, dtype=np.int64)  # [N, P]
    if federation.inverse_agreement:
        weights = inverse_agreement_weights(votes, classes, federation.inverse_agreement, weights)
    return tally(votes, classes, weights)


def mean_soft_label(
    answers: Sequence[np.ndarray], _classes: int, federation: Federation, weights: np.ndarray | None = None
) -> np.ndarray:
    """The mean of the peers' distributions; with --robust-soft without the extremes."""
    if federation.robust_soft is not None:
        return trimmed_distributions(np.stack(answers), weights, trimmed(federation.robust_soft))
    if weights is not None and weights.ndim == 2:
        return by_vote(answers, weights)
    if weights is not None:
        return weighted_sum(answers, weights.tolist())
    total = answers[0].copy()
    for answer in answers[1:]:
        total += answer
    mean: np.ndarray = total / np.float32(len(answers))
    return mean


def by_vote(answers: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """The mean of distributions [P, C] with weights for each voter and probe [N, P]."""
    total = np.zeros_like(answers[0])
    for answer, weight in zip(answers, weights, strict=True):
        total += answer * weight[:, None].astype(np.float32)
    return total


def mean_top_k(
    answers: Sequence[tuple[np.ndarray, np.ndarray]],
    classes: int,
    federation: Federation,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """The mean of the peers' distributions over their likeliest classes, each of which sums to 1."""
    probes = len(answers[0][0])
    if federation.robust_soft is not None:
        whole = np.zeros((len(answers), probes, classes), np.float32)
        for voter, (indices, probabilities) in enumerate(answers):
            whole[voter, np.arange(probes)[:, None], indices] = probabilities
        return mean_soft_label(list(whole), classes, federation, weights)
    total = np.zeros((probes, classes), np.float32)
    rows = np.arange(probes)[:, None]
    for voter, (indices, probabilities) in enumerate(answers):
        counted = probabilities if weights is None else probabilities * _column(weights[voter])
        total[rows, indices] += counted  # an answer names no class twice
    return total / np.float32(len(answers)) if weights is None else total


def _column(weight: np.ndarray) -> np.ndarray:
    """One voter's weight, or its weights [P] as a column."""
    column: np.ndarray = np.asarray(weight, np.float32)[..., None]
    return column


@dataclass(frozen=True)
class Measures:
    """How a set of votes on the same probes agrees, each a mean over the probes."""

    agreement: float  # share of the votes that the plurality has
    margin: float  # that share minus the runner-up's
    plurality_right: float | None  # share of labelled probes where the plurality is the label; None without labels


def measure(votes: np.ndarray, classes: int, labels: np.ndarray | None) -> Measures:
    """Measures of votes [N, P]; among equal counts the smallest class is the plurality. A probe on which fewer than two
    peers have an opinion counts as one without agreement."""
    shares = tally(votes, classes)  # [P, C]
    plurality = shares.argmax(1)  # [P]
    first = shares.max(1)
    np.put_along_axis(shares, plurality[:, None], 0, axis=1)
    known = None if labels is None else labels != NO_LABEL
    right = None if known is None or not known.any() else float((plurality == labels)[known].mean())
    return Measures(float(first.mean()), float((first - shares.max(1)).mean()), right)


@dataclass(frozen=True)
class PairwiseKL:
    """The sums over nodes from which Lemma 1's disagreement follows: the mean of KL(f_n || f_m) over ordered pairs and
    probes. It takes O(N) instead of O(N^2): the sum over pairs of p_n (log p_n - log p_m) needs only the sums of p and
    of log p over the nodes. Sums of several groups of nodes add up.
    """

    nodes: int = 0
    own: "Tensor | float" = 0.0  # [P], the sum of p log p over nodes and classes
    probabilities: "Tensor | float" = 0.0  # over the nodes: [P, C] or [C, P]
    logs: "Tensor | float" = 0.0
    classes: int = 2  # the axis of the classes, of three

    @classmethod
    def of(cls, logs: "Tensor", probabilities: "Tensor", classes: int = 2) -> "PairwiseKL":
        """Of nodes on the first axis, and their classes on this one."""
        logs, probabilities = logs.double(), probabilities.double()
        own = (probabilities * logs).sum((0, classes))
        return cls(len(logs), own, probabilities.sum(0), logs.sum(0), classes)

    def __add__(self, other: "PairwiseKL") -> "PairwiseKL":
        return PairwiseKL(
            self.nodes + other.nodes,
            self.own + other.own,
            self.probabilities + other.probabilities,
            self.logs + other.logs,
            other.classes,
        )

    def mean(self) -> float:
        if self.nodes < 2:
            return 0.0
        cross = (self.probabilities * self.logs).sum(self.classes - 1)  # type: ignore[union-attr]
        return float(((self.nodes * self.own - cross) / (self.nodes * (self.nodes - 1))).mean().clamp(min=0))


def mean_pairwise_kl(log_probabilities: "Tensor") -> float:
    """Lemma 1's disagreement from logs [N, P, C]."""
    logs = log_probabilities.double()
    return PairwiseKL.of(logs, logs.exp()).mean()
