"""How reliable each voter is, class by class, estimated from the votes that a peer gets anyway.

After Dawid and Skene, "Maximum likelihood estimation of observer error-rates using the EM algorithm" (1979), as a
stream: a round is one step of expectation (which class is each probe's, given what is known of the voters) and one of
maximisation (what is known of the voters, given those classes), and older rounds count less and less. Where a probe has
a label, the label is its class.

Of each voter and class three counts are kept, not Dawid and Skene's whole table of C x C: how often the class was true,
how often the voter then said so, and how often the voter says it at all. Where a voter errs, it is taken to name other
classes as often as it does overall. So a peer that has never seen a class, or always names the same, tells little.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from p2p_tally.config import Federation

# What a round leaves of the counts before it: they remember about a hundred rounds.
MEMORY = 0.99
# Counts that every voter begins with in each class, and how many of them are right.
PRIOR, PRIOR_RIGHT = 4.0, 2.4
# No vote counts as more certain than this.
CERTAIN = 0.99


class Reliability:
    """What one peer has learned of its voters. C classes."""

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self._place: dict[int, int] = {}  # rank of a voter -> its row
        self._true = np.zeros((0, classes))  # how often the class was true
        self._right = np.zeros((0, classes))  # and the voter said so
        self._said = np.zeros((0, classes))  # how often the voter names the class

    def weigh(self, voters: Sequence[int], votes: np.ndarray, labels: np.ndarray | None) -> np.ndarray:
        """The weight of each vote [N, P], from the votes [N, P] of voters of these ranks; each probe's add up to 1.

        A vote of C is no opinion and weighs nothing. `labels` [P]: below 0 where there is none.
        """
        rows = self._rows(voters)
        right = self._chance_right(rows)  # [N, C]
        cast = votes < self._classes  # [N, P]
        known = np.where(cast, votes, 0)
        certain = np.minimum(np.take_along_axis(right, known, 1), CERTAIN)  # [N, P]: that the vote is right
        # The logarithm of the odds is the weight that makes a weighted plurality likeliest to be right.
        chance = 1.0 / self._classes
        odds = np.log(certain / (1.0 - certain)) - np.log(chance / (1.0 - chance))
        weights = np.where(cast, np.maximum(odds, 0.0), 0.0)
        self._learn(rows, known, cast, self._classes_of_probes(rows, known, cast, labels))
        total = weights.sum(0)
        return weights / np.where(total > 0, total, 1.0)

    def _rows(self, voters: Sequence[int]) -> np.ndarray:
        """The rows of these voters; new ones are added."""
        new = [voter for voter in voters if voter not in self._place]
        if new:
            self._place |= {voter: len(self._place) + more for more, voter in enumerate(new)}
            start = np.ones((len(new), self._classes))
            self._true = np.concatenate([self._true, PRIOR * start])
            self._right = np.concatenate([self._right, PRIOR_RIGHT * start])
            self._said = np.concatenate([self._said, start])
        return np.array([self._place[voter] for voter in voters])

    def _likelihoods(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each voter and class [N, C]: the chance that it names a class that is true, and the share that the class
        has of what it says."""
        said = self._said[rows]
        return self._right[rows] / self._true[rows], said / said.sum(1, keepdims=True)

    def _chance_right(self, rows: np.ndarray) -> np.ndarray:
        """The chance that a vote for each class is right [N, C], all classes being as common."""
        recall, share = self._likelihoods(rows)
        # Named wrongly: the sum over the other true classes t of (1 - recall_t) share_c / (1 - share_t).
        slips = (1.0 - recall) / np.maximum(1.0 - share, 1e-6)
        wrong = share * (slips.sum(1, keepdims=True) - slips)
        chance: np.ndarray = recall / (recall + wrong)
        return chance

    def _classes_of_probes(
        self, rows: np.ndarray, votes: np.ndarray, cast: np.ndarray, labels: np.ndarray | None
    ) -> np.ndarray:
        """How likely each class is each probe's own [P, C]: by the label, or by all votes together."""
        recall, share = self._likelihoods(rows)
        recall = np.clip(recall, 1.0 - CERTAIN, CERTAIN)
        logs = np.zeros((votes.shape[1], self._classes))
        for voter in range(len(rows)):
            slips = np.log((1.0 - recall[voter]) / np.maximum(1.0 - share[voter], 1e-6))  # [C]
            said = votes[voter][cast[voter]]
            against = slips[None, :] + np.log(share[voter][said])[:, None]
            against[np.arange(len(said)), said] = np.log(recall[voter][said])
            logs[cast[voter]] += against
        likely: np.ndarray = np.exp(logs - logs.max(1, keepdims=True))
        likely /= likely.sum(1, keepdims=True)
        if labels is not None:
            known = labels >= 0
            likely[known] = np.eye(self._classes)[labels[known]]
        return likely

    def _learn(self, rows: np.ndarray, votes: np.ndarray, cast: np.ndarray, likely: np.ndarray) -> None:
        kept = np.array([[PRIOR], [PRIOR_RIGHT], [1.0]]) * (1.0 - MEMORY)  # what fades gives way to the beginning
        true, right, said = (
            MEMORY * counts[rows] + back
            for counts, back in zip((self._true, self._right, self._said), kept, strict=True)
        )
        for voter in range(len(rows)):
            own = cast[voter]
            named, chances = votes[voter][own], likely[own]
            true[voter] += chances.sum(0)
            right[voter] += np.bincount(named, chances[np.arange(len(named)), named], self._classes)
            said[voter] += np.bincount(named, minlength=self._classes)
        self._true[rows], self._right[rows], self._said[rows] = true, right, said

    # --- state

    @property
    def state(self) -> dict[str, Tensor]:
        """Everything that the next round depends on, as named tensors."""
        counts = {"true": self._true, "right": self._right, "said": self._said}
        ranks = {"voters": torch.tensor(list(self._place), dtype=torch.int64)}
        return ranks | {key: torch.from_numpy(value) for key, value in counts.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._place = {int(voter): row for row, voter in enumerate(state["voters"])}
        self._true, self._right, self._said = (state[key].numpy().copy() for key in ("true", "right", "said"))


def weighs_by_reliability(federation: Federation) -> bool:
    return federation.tally_weights == "reliability"
