"""`--exam K`: how far one node trusts each voter, by how often its votes were worse than chance. Pure arithmetic.

A judge knows the class of a probe by its label. Without labels it goes by its own vote, and only as far as it can trust
that: by K labelled examples of its own, which it does not train on and shows nobody. C classes, N voters, P probes.
"""

from collections.abc import Collection, Sequence

import numpy as np

# How much of a voter's share of bad rounds comes from the last one, where the judge is sure of the probes' classes.
RATE = 0.03
# A voter whose rounds are worse than chance more often than this loses weight, and at the second share all of it. To be
# worse than chance by bad luck is rare: with 16 probes and 10 classes, 3 rounds in 100 for one that is right on 30 %,
# but every other round for one that names classes at random.
SUSPECT, GONE = 0.2, 0.45
# What of a class's own figure comes from all classes together, in examples: a class has few of its own.
SHARED = 4.0


class Judge:
    """What one node thinks of its voters. It begins by trusting all."""

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self._bad: dict[int, float] = {}  # rank of a voter -> the share of its rounds that were worse than chance

    def weigh(self, voters: Sequence[int], votes: np.ndarray, truth: np.ndarray, sure: np.ndarray) -> np.ndarray:
        """The weight of each of the voters of these ranks, from 0 to 1 [N], with this round's votes [N, P] counted.

        `truth` [P]: the class that the judge takes each probe to be, below 0 where it does not know; `sure` [P]: the
        chance that it is right. A vote of C is no opinion.
        """
        known = truth >= 0
        chance = 1.0 / self._classes
        right = np.where(votes == truth, sure, (1.0 - sure) / max(1, self._classes - 1))  # [N, P]
        counted = known & (votes < self._classes)
        certainty = float(np.clip((sure[known] - chance) / (1.0 - chance), 0.0, 1.0).mean()) if known.any() else 0.0
        for voter, own, asked in zip(voters, right, counted, strict=True):
            before = self._bad.get(voter, 0.0)
            worse = float(own[asked].mean() < chance) if asked.any() else before
            self._bad[voter] = before + RATE * certainty * (worse - before)
        return self.weights(voters)

    def weights(self, voters: Sequence[int]) -> np.ndarray:
        bad = np.array([self._bad.get(voter, 0.0) for voter in voters])
        return np.clip((GONE - bad) / (GONE - SUSPECT), 0.0, 1.0)

    def distrusted(self) -> dict[int, float]:
        """The voters that have less than half of their weight, and the share of their rounds that were bad."""
        return {voter: bad for voter, bad in self._bad.items() if self.weights([voter])[0] < 0.5}

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Everything that the next round depends on."""
        return {"voters": np.array(list(self._bad), np.int64), "bad": np.array(list(self._bad.values()))}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self._bad = {int(voter): float(bad) for voter, bad in zip(state["voters"], state["bad"], strict=True)}


def by_majority(judgements: Sequence[Collection[int]]) -> list[int]:
    """The ranks that most judges distrust; `judgements`: those that each does."""
    named = {rank for judgement in judgements for rank in judgement}
    return sorted(rank for rank in named if 2 * sum(rank in one for one in judgements) > len(judgements))


def trust_in_own(said: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """The chance that a node's own vote is right, by the class that it names [C]: from its votes on its exam [K]."""
    right = said == labels
    overall = (right.sum() + 1.0) / (len(said) + 2.0)
    named = np.bincount(said, minlength=classes)
    chances: np.ndarray = (np.bincount(said[right], minlength=classes) + SHARED * overall) / (named + SHARED)
    return chances


def weighed(base: np.ndarray | None, trust: np.ndarray) -> np.ndarray | None:
    """The weights of a tally [N] or [N, P] (None: all the same) times the trust in each voter [N], with the same sums.

    Where all are trusted nothing changes."""
    if (trust == 1.0).all():
        return base
    given = np.full(len(trust), 1.0 / len(trust)) if base is None else base
    product = given * (trust if given.ndim == 1 else trust[:, None])
    total = product.sum(0)
    if given.ndim == 1 and not total:
        return base  # nobody is trusted, not even by itself: then all are alike
    shares: np.ndarray = product / np.where(total > 0, total, 1.0)
    return shares
