"""Votes, soft labels and top-k answers to targets, against tables counted by hand and naive double loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.config import Federation
from p2p_tally.learning.consensus import (
    NO_LABEL,
    beyond_chance,
    counts,
    histogram,
    inverse_agreement_weights,
    mean_pairwise_kl,
    mean_soft_label,
    mean_top_k,
    measure,
    tally,
)

torch.set_num_threads(1)

PLAIN = Federation()  # all voters count the same

# Four voters, three probes, three classes.
#   probe 0: 0 0 1 0 -> 3/4 1/4 0
#   probe 1: 1 1 2 1 -> 0 3/4 1/4
#   probe 2: 2 2 2 0 -> 1/4 0 3/4
VOTES = np.array([[0, 1, 2], [0, 1, 2], [1, 2, 2], [0, 1, 0]])  # [N, P]
HISTOGRAM = np.array([[0.75, 0.25, 0.0], [0.0, 0.75, 0.25], [0.25, 0.0, 0.75]], dtype=np.float32)  # [P, C]


@st.composite
def elections(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Votes [N, P] and the number of classes C."""
    classes = draw(st.integers(1, 6))
    voters, probes = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    cells = st.lists(st.integers(0, classes - 1), min_size=voters * probes, max_size=voters * probes)
    return np.array(draw(cells)).reshape(voters, probes), classes


def test_histogram_by_hand() -> None:
    counted = tally(VOTES, 3)
    assert counted.dtype == np.float32
    np.testing.assert_array_equal(counted, HISTOGRAM)


def test_a_class_nobody_votes_for_keeps_its_column() -> None:
    np.testing.assert_array_equal(tally(np.array([[0]]), 4), [[1, 0, 0, 0]])
    np.testing.assert_array_equal(tally(np.array([[3], [3]]), 4), [[0, 0, 0, 1]])


@settings(max_examples=60, deadline=None)
@given(elections(), st.randoms(use_true_random=False))
def test_histogram_is_the_naive_count_whatever_the_order_of_the_voters(election, random) -> None:
    votes, classes = election
    counted = tally(votes, classes)
    for probe in range(votes.shape[1]):
        for label in range(classes):
            share = np.float32(list(votes[:, probe]).count(label) / len(votes))
            assert counted[probe, label] == share
    shuffled = list(votes)
    random.shuffle(shuffled)
    assert tally(np.array(shuffled), classes).tobytes() == counted.tobytes()


def test_weighted_histogram_by_hand() -> None:
    # Weights 1/2, 1/4, 1/8, 1/8 for the voters of VOTES:
    #   probe 0: class 0 has voters 0, 1, 3: 7/8; class 1 has voter 2: 1/8
    #   probe 1: class 1 has voters 0, 1, 3: 7/8; class 2 has voter 2: 1/8
    #   probe 2: class 2 has voters 0, 1, 2: 7/8; class 0 has voter 3: 1/8
    weights = np.array([0.5, 0.25, 0.125, 0.125])
    expected = [[0.875, 0.125, 0], [0, 0.875, 0.125], [0.125, 0, 0.875]]
    np.testing.assert_array_equal(tally(VOTES, 3, weights), np.array(expected, dtype=np.float32))


def test_inverse_agreement_weights_by_hand() -> None:
    # Plurality of VOTES: 0, 1, 2. Against it the voters dissent on 0, 0, 2/3 and 1/3 of the probes; shares of the
    # total dissent 1: 0, 0, 2/3, 1/3. Blended half and half with the uniform 1/4:
    #   1/8, 1/8, 1/8 + 1/3 = 11/24, 1/8 + 1/6 = 7/24
    np.testing.assert_allclose(inverse_agreement_weights(VOTES, 3, 0.5), [1 / 8, 1 / 8, 11 / 24, 7 / 24], rtol=1e-12)
    np.testing.assert_allclose(inverse_agreement_weights(VOTES, 3, 1.0), [0, 0, 2 / 3, 1 / 3], rtol=1e-12)
    np.testing.assert_allclose(inverse_agreement_weights(VOTES, 3, 0.0), [0.25] * 4, rtol=1e-12)


def test_inverse_agreement_weights_are_uniform_where_all_agree() -> None:
    same = np.array([[2, 0], [2, 0], [2, 0]])
    np.testing.assert_array_equal(inverse_agreement_weights(same, 3, 1.0), [1 / 3] * 3)


@settings(max_examples=60, deadline=None)
@given(elections(), st.floats(0, 1))
def test_inverse_agreement_weights_sum_to_one_and_favour_dissent(election, blend) -> None:
    votes, classes = election
    weights = inverse_agreement_weights(votes, classes, blend)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    dissent = (votes != tally(votes, classes).argmax(1)).sum(1)
    for one in range(len(votes)):
        for other in range(len(votes)):
            if dissent[one] > dissent[other]:
                assert weights[one] >= weights[other]


def test_votes_of_any_integer_type_make_the_same_target() -> None:
    # A node's own votes are int64, a decoded ballot is uint8 or uint16.
    answers = [VOTES[0], VOTES[1].astype(np.uint8), VOTES[2].astype(np.uint16), VOTES[3]]
    target = histogram(answers, 3, PLAIN)
    assert target.dtype == np.float32
    np.testing.assert_array_equal(target, HISTOGRAM)


def test_votes_with_inverse_agreement_by_hand() -> None:
    # The weights worked out above, 3/24, 3/24, 11/24, 7/24:
    #   probe 0: class 0 has 3 + 3 + 7 = 13/24, class 1 has 11/24
    #   probe 1: class 1 has 13/24, class 2 has 11/24
    #   probe 2: class 2 has 3 + 3 + 11 = 17/24, class 0 has 7/24
    expected = np.array([[13, 11, 0], [0, 13, 11], [7, 0, 17]]) / 24
    np.testing.assert_allclose(histogram(list(VOTES), 3, Federation(inverse_agreement=0.5)), expected, rtol=1e-6)


def test_soft_labels_are_averaged_and_left_alone() -> None:
    one = np.array([[0.75, 0.25], [0.5, 0.5]], dtype=np.float32)
    other = np.array([[0.25, 0.75], [1.0, 0.0]], dtype=np.float32)
    one.flags.writeable = other.flags.writeable = False  # as they come out of a frame
    target = mean_soft_label([one, other], 2, PLAIN)
    assert target.dtype == np.float32
    np.testing.assert_array_equal(target, [[0.5, 0.5], [0.75, 0.25]])


def test_top_k_answers_are_spread_and_averaged() -> None:
    # Peer 1 says {2: 0.75, 0: 0.25}, peer 2 says {0: 0.5, 1: 0.5}: mean 0.375, 0.25, 0.375, 0.
    one = np.array([[2, 0]], dtype=np.uint8), np.array([[0.75, 0.25]], dtype=np.float32)
    other = np.array([[0, 1]], dtype=np.int64), np.array([[0.5, 0.5]], dtype=np.float32)
    np.testing.assert_array_equal(mean_top_k([one, other], 4, PLAIN), [[0.375, 0.25, 0.375, 0]])


def test_top_k_of_certainties_is_the_histogram_of_votes() -> None:
    answers = [(votes[:, None].astype(np.uint8), np.ones((3, 1), dtype=np.float32)) for votes in VOTES]
    np.testing.assert_array_equal(mean_top_k(answers, 3, PLAIN), histogram(list(VOTES), 3, PLAIN))


def test_weights_of_every_kind_of_answer_by_hand() -> None:
    weights = np.array([0.75, 0.25])
    votes = [np.array([0]), np.array([1])]
    np.testing.assert_array_equal(histogram(votes, 2, PLAIN, weights), [[0.75, 0.25]])
    soft = [np.array([[0.5, 0.5]], np.float32), np.array([[1.0, 0.0]], np.float32)]
    np.testing.assert_array_equal(mean_soft_label(soft, 2, PLAIN, weights), [[0.625, 0.375]])
    # Of classes 2 and 0: 3/4 x (1/2, 1/2) + 1/4 x (1, 0)
    top = [(np.array([[2, 0]]), soft[0]), (np.array([[2, 0]]), soft[1])]
    np.testing.assert_array_equal(mean_top_k(top, 3, PLAIN, weights), [[0.375, 0, 0.625]])


def test_measures_by_hand() -> None:
    # Plurality shares 3/4, 3/4, 3/4; runners-up 1/4 each, so margins 1/2. Labels 0, 2, 2: right on two of three.
    measures = measure(VOTES, 3, np.array([0, 2, 2]))
    assert measures.agreement == pytest.approx(0.75)
    assert measures.margin == pytest.approx(0.5)
    assert measures.plurality_right == pytest.approx(2 / 3)


def test_measures_of_a_tie_and_of_unanimity() -> None:
    # Probe 0: classes 1 and 2 have one vote each; the smaller is the plurality, with share 1/2 and margin 0.
    # Probe 1: unanimous, share 1 and margin 1. Means 3/4 and 1/2.
    measures = measure(np.array([[2, 0], [1, 0]]), 3, np.array([1, 0]))
    assert (measures.agreement, measures.margin, measures.plurality_right) == (0.75, 0.5, 1.0)
    assert measure(np.array([[2, 0], [1, 0]]), 3, np.array([2, 0])).plurality_right == 0.5


def test_measures_without_labels_and_with_one_class() -> None:
    assert measure(VOTES, 3, None).plurality_right is None
    only = measure(np.zeros((3, 2), dtype=np.int64), 1, None)
    assert (only.agreement, only.margin) == (1.0, 1.0)


def test_the_plurality_is_judged_only_where_there_is_a_label() -> None:
    # Probes 0 and 2 have no label; on probe 1 the plurality, class 1, is right.
    assert measure(VOTES, 3, np.array([NO_LABEL, 1, NO_LABEL])).plurality_right == 1.0
    assert measure(VOTES, 3, np.full(3, NO_LABEL)).plurality_right is None


def test_pairwise_kl_by_hand() -> None:
    # Two nodes, one probe: f = (1/2, 1/2), g = (3/4, 1/4).
    #   KL(f || g) = 1/2 ln(2/3) + 1/2 ln 2 = 1/2 ln(4/3)
    #   KL(g || f) = 3/4 ln(3/2) + 1/4 ln(1/2)
    expected = (0.5 * math.log(4 / 3) + 0.75 * math.log(1.5) - 0.25 * math.log(2)) / 2
    logs = torch.tensor([[[0.5, 0.5]], [[0.75, 0.25]]]).log()
    assert mean_pairwise_kl(logs) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("nodes", "probes", "classes"), [(2, 1, 2), (3, 4, 5), (7, 6, 3)])
def test_pairwise_kl_is_the_naive_double_loop(nodes: int, probes: int, classes: int) -> None:
    logits = torch.randn(nodes, probes, classes, generator=torch.Generator().manual_seed(nodes)) * 3
    logs = logits.double().log_softmax(-1)
    total = 0.0
    for n in range(nodes):
        for m in range(nodes):
            if n != m:
                total += float((logs[n].exp() * (logs[n] - logs[m])).sum(-1).mean())
    assert mean_pairwise_kl(logs.float()) == pytest.approx(total / (nodes * (nodes - 1)), rel=1e-5)


def test_pairwise_kl_of_one_node_and_of_equal_nodes() -> None:
    logs = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    assert mean_pairwise_kl(logs) == 0.0
    assert mean_pairwise_kl(logs.expand(5, 3, 4)) == pytest.approx(0.0, abs=1e-12)


# --- no opinion


def test_a_tally_is_over_the_votes_cast() -> None:
    none = 3  # of three classes
    votes = np.array([[0, 0, none, none], [1, 0, 2, none], [1, none, none, none]])
    expected = np.array([[1 / 3, 2 / 3, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]], np.float32)  # one vote is no consensus
    np.testing.assert_array_equal(tally(votes, 3), expected)


def test_weights_are_shared_among_those_who_cast() -> None:
    votes = np.array([[0, 0], [1, 3], [1, 2]])
    weights = np.array([0.5, 0.25, 0.25])
    np.testing.assert_allclose(tally(votes, 3, weights), [[0.5, 0.5, 0], [2 / 3, 0, 1 / 3]], rtol=1e-6)
    each = np.array([[0.2, 0.9], [0.3, 0.0], [0.5, 0.1]])
    np.testing.assert_allclose(tally(votes, 3, each), [[0.2, 0.8, 0], [0.9, 0, 0.1]], rtol=1e-6)


def test_soft_labels_with_a_weight_for_each_vote() -> None:
    answers = [np.array([[1.0, 0.0], [0.5, 0.5]], np.float32), np.array([[0.0, 1.0], [0.0, 1.0]], np.float32)]
    weights = np.array([[0.25, 1.0], [0.75, 0.0]])
    np.testing.assert_allclose(mean_soft_label(answers, 2, Federation(), weights), [[0.25, 0.75], [0.5, 0.5]])
    tops = [(np.array([[0], [1]]), np.ones((2, 1), np.float32)), (np.array([[1], [1]]), np.ones((2, 1), np.float32))]
    np.testing.assert_allclose(mean_top_k(tops, 2, Federation(), weights), [[0.25, 0.75], [0.0, 1.0]])


# --- agreement beyond chance


def kappa(votes: list[list[int]], classes: int) -> float:
    return float(beyond_chance(counts(np.array(votes), classes)))


def test_kappa_by_hand() -> None:
    # Fleiss (1971): 3 voters, 2 probes: all say 0 of the first, two say 1 of the second. Pairs that agree: 1 and 1/3.
    # Named: 0 four times of six, 1 twice: by chance 20/36.
    assert kappa([[0, 1], [0, 1], [0, 0]], 2) == pytest.approx((2 / 3 - 20 / 36) / (1 - 20 / 36))


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([[0, 1, 2], [0, 1, 2]], 1.0),
        ([[0, 0, 0], [0, 0, 0]], 0.0),  # all always say the same: that tells nothing
        ([[0, 1], [1, 0]], -1.0),
        ([[0, 1, 2]], 0.0),  # one voter
        ([[0, 3], [3, 1]], 0.0),  # of three classes: never two opinions on a probe
        ([[0, 1, 3], [0, 1, 2]], 1.0),
    ],
)
def test_kappa_at_its_ends(votes: list[list[int]], expected: float) -> None:
    assert kappa(votes, 3) == pytest.approx(expected)


def test_votes_by_chance_have_no_agreement_beyond_it() -> None:
    random = np.random.default_rng(0)
    skewed = random.choice(4, (12, 20_000), p=[0.7, 0.1, 0.1, 0.1])
    assert abs(kappa(skewed.tolist(), 4)) < 0.01


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 8), st.integers(2, 5))
def test_kappa_depends_on_no_order(seed: int, voters: int, probes: int, classes: int) -> None:
    random = np.random.default_rng(seed)
    votes = random.integers(0, classes + 1, (voters, probes))
    value = kappa(votes.tolist(), classes)
    assert -1.0 <= value <= 1.0
    assert kappa(random.permutation(votes).tolist(), classes) == pytest.approx(value)
    assert kappa(random.permutation(votes.T).T.tolist(), classes) == pytest.approx(value)
