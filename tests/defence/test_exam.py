"""How far a node trusts its voters: tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.defence.exam import GONE, RATE, SUSPECT, Judge, by_majority, trust_in_own, weighed

CLASSES, PROBES = 10, 16
TRUTH = np.arange(PROBES) % CLASSES
SURE = np.ones(PROBES)


def rounds(judge: Judge, votes: np.ndarray, count: int, sure: np.ndarray = SURE) -> float:
    for _ in range(count):
        (weight,) = judge.weigh([0], votes[None], TRUTH, sure)
    return float(weight)


def test_who_is_right_keeps_its_weight() -> None:
    assert rounds(Judge(CLASSES), TRUTH, 300) == 1.0


def test_who_is_always_wrong_loses_it_and_slowly_gets_it_back() -> None:
    judge, wrong = Judge(CLASSES), (TRUTH + 1) % CLASSES
    assert rounds(judge, wrong, 7) == 1.0
    assert 0.0 < rounds(judge, wrong, 5) < 1.0
    assert rounds(judge, wrong, 30) == 0.0
    lost = 0
    while rounds(judge, TRUTH, 1) < 1.0:
        lost += 1
    assert lost > 20, "as long as it took to lose it"


def test_who_is_right_more_often_than_chance_is_trusted() -> None:
    votes = np.where(np.arange(PROBES) < 2, TRUTH, (TRUTH + 1) % CLASSES)  # 2 of 16: 12.5 %, and chance is 10 %
    assert rounds(Judge(CLASSES), votes, 300) == 1.0


def test_a_voter_at_chance_loses_most_of_its_weight() -> None:
    draw, judge = np.random.default_rng(0), Judge(CLASSES)
    weights = [rounds(judge, draw.integers(CLASSES, size=PROBES), 1) for _ in range(600)]
    assert np.mean(weights[100:]) < 0.3


def test_a_judge_that_knows_nothing_accuses_nobody() -> None:
    chance = np.full(PROBES, 1.0 / CLASSES)
    assert rounds(Judge(CLASSES), (TRUTH + 1) % CLASSES, 300, chance) == 1.0


def test_no_opinion_and_unknown_probes_tell_nothing() -> None:
    judge = Judge(CLASSES)
    assert rounds(judge, np.full(PROBES, CLASSES), 300) == 1.0
    (weight,) = judge.weigh([0], ((TRUTH + 1) % CLASSES)[None], np.full(PROBES, -100), SURE)
    assert weight == 1.0


def test_the_state_is_all_that_counts() -> None:
    judge, other = Judge(CLASSES), Judge(CLASSES)
    rounds(judge, (TRUTH + 1) % CLASSES, 12)
    other.restore(judge.state)
    assert rounds(other, TRUTH, 3) == rounds(judge, TRUTH, 3)
    assert judge.distrusted() == other.distrusted()


def test_weights_follow_the_share_of_bad_rounds() -> None:
    judge = Judge(CLASSES)
    judge.restore({"voters": np.arange(4), "bad": np.array([SUSPECT, (SUSPECT + GONE) / 2, GONE, 1.0])})
    assert judge.weights([0, 1, 2, 3]) == pytest.approx([1.0, 0.5, 0.0, 0.0])
    assert set(judge.distrusted()) == {2, 3}
    assert RATE < SUSPECT


def test_own_votes_are_trusted_by_class() -> None:
    labels = np.repeat([0, 1], 10)
    said = np.where(labels == 0, 0, 2)  # right where the class is 0, and never where it names 2
    trust = trust_in_own(said, labels, 3)
    assert trust[0] > 0.8 and trust[2] < 0.2
    assert trust[1] == pytest.approx(0.5)  # a class that it has not named is trusted as all together


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.booleans())
def test_weights_still_add_up(trust: list[float], by_vote: bool) -> None:
    voters = len(trust)
    base = np.full((voters, 3), 1.0 / voters) if by_vote else np.full(voters, 1.0 / voters)
    result = weighed(base, np.array(trust))
    assert result is not None
    sums = result.sum(0)
    assert np.allclose(sums, 1.0) or (by_vote and not any(trust))


def test_most_judges_decide() -> None:
    assert by_majority([{1, 2}, {2}, set()]) == [2]
    assert by_majority([{1}, set()]) == []


def test_where_all_are_trusted_nothing_changes() -> None:
    assert weighed(None, np.ones(3)) is None
