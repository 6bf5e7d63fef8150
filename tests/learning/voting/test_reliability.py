"""How reliable each voter is: learned from votes alone, from labels where there are any, and kept over a restart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.learning.voting.reliability import PRIOR, PRIOR_RIGHT, Reliability

CLASSES = 4


class Votes:
    """Rounds of votes: `skills` is each voter's chance to be right; otherwise it names any other class."""

    def __init__(self, skills: list[float], seed: int = 0) -> None:
        self._skills = np.array(skills)[:, None]
        self._random = np.random.default_rng(seed)

    def round(self, probes: int = 32) -> tuple[np.ndarray, np.ndarray]:
        truth = self._random.integers(0, CLASSES, probes)
        wrong = (truth + self._random.integers(1, CLASSES, (len(self._skills), probes))) % CLASSES
        right = self._random.random((len(self._skills), probes)) < self._skills
        return np.where(right, truth, wrong), truth


def mean_weights(estimate: Reliability, votes: Votes, rounds: int, *, labelled: bool) -> np.ndarray:
    """Each voter's mean weight in the last of so many rounds."""
    for _ in range(rounds):
        cast, truth = votes.round()
        weights = estimate.weigh(range(len(cast)), cast, truth if labelled else None)
    mean: np.ndarray = weights.mean(1)
    return mean


def test_at_first_all_count_the_same() -> None:
    votes = np.array([[0, 1, 2], [0, 2, 2], [1, 1, 3]])
    np.testing.assert_allclose(Reliability(CLASSES).weigh(range(3), votes, None), 1 / 3)


@pytest.mark.parametrize("labelled", [False, True])
def test_better_voters_come_to_count_more(labelled: bool) -> None:
    weights = mean_weights(Reliability(CLASSES), Votes([0.9, 0.75, 0.6, 0.4, 0.25]), 60, labelled=labelled)
    assert list(weights) == sorted(weights, reverse=True)
    assert weights[0] > 3 * weights[3] and weights[4] < 0.05


def test_the_weighted_plurality_is_right_more_often() -> None:
    votes, estimate = Votes([0.9, 0.8, 0.35, 0.35, 0.35, 0.35, 0.35]), Reliability(CLASSES)
    plain = weighted = 0
    for round in range(150):
        cast, truth = votes.round()
        weights = estimate.weigh(range(7), cast, None)
        if round >= 50:
            named = cast[:, :, None] == np.arange(CLASSES)  # [N, P, C]
            plain += (named.sum(0).argmax(1) == truth).sum()
            weighted += ((named * weights[:, :, None]).sum(0).argmax(1) == truth).sum()
    assert weighted > plain + 200  # of 3,200


def test_who_always_names_the_same_class_tells_nothing() -> None:
    votes, estimate = Votes([0.8, 0.8, 0.8]), Reliability(CLASSES)
    for _ in range(100):
        cast, _ = votes.round()
        weights = estimate.weigh(range(4), np.vstack([cast, np.full(32, 3)]), None)
    assert weights[3].mean() < 0.05


def test_a_class_that_a_voter_confuses_counts_less_than_its_others() -> None:
    votes, estimate = Votes([0.9, 0.9, 0.9, 1.0]), Reliability(CLASSES)
    for _ in range(100):
        cast, truth = votes.round()
        cast[3] = np.where(truth >= 2, 3, truth)  # 2 and 3 are one to it
        weights = estimate.weigh(range(4), cast, None)
    threes = cast[3] == 3
    assert weights[3][threes].mean() < 0.85 * weights[3][~threes].mean()


def test_no_opinion_weighs_nothing_and_teaches_nothing() -> None:
    estimate = Reliability(CLASSES)
    weights = estimate.weigh(range(2), np.array([[0, CLASSES], [CLASSES, CLASSES]]), None)
    assert weights.tolist() == [[1.0, 0.0], [0.0, 0.0]]
    state = estimate.state
    assert state["right"][1].tolist() == pytest.approx([PRIOR_RIGHT] * CLASSES)
    assert state["true"][1].tolist() == pytest.approx([PRIOR] * CLASSES)


def test_labels_that_are_missing_are_estimated() -> None:
    estimate, votes = Reliability(CLASSES), np.array([[0, 1], [0, 1]])
    estimate.weigh(range(2), votes, np.array([0, -1]))
    grown = estimate.state["right"].numpy()
    assert grown[0, 0] > grown[0, 1] > PRIOR_RIGHT  # one is certain, the other likely


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 5), st.integers(2, 6))
def test_weights_of_a_probe_sum_to_one_or_are_none(seed: int, voters: int, probes: int, classes: int) -> None:
    random, estimate = np.random.default_rng(seed), Reliability(classes)
    for _ in range(4):
        votes = random.integers(0, classes + 1, (voters, probes))
        labels = random.integers(-1, classes, probes)
        weights = estimate.weigh(random.permutation(voters).tolist(), votes, labels)
        assert weights.shape == votes.shape and (weights >= 0).all() and not weights[votes == classes].any()
        sums = weights.sum(0)
        assert np.all(np.isclose(sums, 1) | (sums == 0))


def test_voters_are_known_by_rank_whoever_is_there() -> None:
    votes, estimate = Votes([0.95, 0.3]), Reliability(CLASSES)
    for round in range(80):
        cast, truth = votes.round()
        here = [5, 2] if round % 2 else [2, 5]
        weights = estimate.weigh(here, cast if round % 2 else cast[::-1], truth)
    assert weights[0].mean() > weights[1].mean()  # voter 5 is the good one


def test_a_restored_estimate_goes_on_the_same() -> None:
    votes, estimate, other = Votes([0.9, 0.5, 0.5]), Reliability(CLASSES), Reliability(CLASSES)
    for _ in range(5):
        estimate.weigh([0, 3, 1], votes.round()[0], None)
    other.restore({key: value.clone() for key, value in estimate.state.items()})
    cast, _ = votes.round()
    for _ in range(2):
        assert np.array_equal(estimate.weigh([1, 0, 2], cast, None), other.weigh([1, 0, 2], cast, None))
