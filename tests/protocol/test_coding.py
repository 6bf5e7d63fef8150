"""Coded and packed ballots: what goes in comes out, and in how many bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.errors import BallotError
from p2p_tally.protocol.bits import BitReader, BitWriter
from p2p_tally.protocol.coding import PACKED, decode_coded, encode_coded
from p2p_tally.protocol.enumerative import MOST_VOTES
from p2p_tally.protocol.packed import decode_packed, encode_packed, packed_size
from p2p_tally.protocol.predictive import Scheme, decode_predictive, encode_predictive, is_possible
from p2p_tally.protocol.predictive_choice import likely_smallest
from p2p_tally.protocol.rans import SymbolReader, Table, encode_symbols

class_counts = st.sampled_from([2, 3, 10, 16, 17, 256, 257, 2048, 65_536, 65_537, 70_000]) | st.integers(2, 2**17)


@st.composite
def cases(draw: st.DrawFn, largest: int = 600) -> tuple[np.ndarray, int, np.ndarray | None]:
    """Votes of every kind: right, wrong, constant, of few classes, following from the label before; labels for
    all probes, some or none."""
    classes = draw(class_counts)
    count = draw(st.integers(0, 40) | st.integers(0, largest))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    within = draw(st.sampled_from([classes, min(classes, 3), min(classes, 40)]))
    labels = rng.integers(0, within, count)
    votes = rng.integers(0, draw(st.sampled_from([1, within, classes])), count)
    agree = rng.random(count) < draw(st.sampled_from([0.0, 0.3, 0.9, 0.99, 1.0]))
    votes[agree] = labels[agree]
    follow = rng.random(count) < draw(st.sampled_from([0.0, 0.7]))
    votes[follow] = (np.roll(labels, 1)[follow] * 7 + 1) % classes
    labels[rng.random(count) < draw(st.sampled_from([0.0, 0.5, 1.0]))] = -1
    return votes, classes, draw(st.sampled_from([labels, None]))


@given(cases())
@settings(max_examples=300, deadline=None)
def test_coded_votes_come_back_and_cost_at_most_a_byte_over_packed(case):
    votes, classes, labels = case
    ballot = encode_coded(votes, classes, labels)
    assert len(ballot) <= 1 + packed_size(len(votes), classes)
    decoded = decode_coded(ballot, len(votes), classes, labels)
    assert decoded.dtype == np.int64
    np.testing.assert_array_equal(decoded, votes)


@given(st.integers(2, 65_536) | st.integers(2, 2**24), st.data())
@settings(max_examples=150, deadline=None)
def test_any_few_votes_come_back(classes, data):
    index = st.integers(0, classes - 1)
    pairs = data.draw(st.lists(st.tuples(index, st.just(-1) | index), max_size=20))
    votes, labels = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    np.testing.assert_array_equal(
        decode_coded(encode_coded(votes, classes, labels), len(votes), classes, labels), votes
    )


@given(cases())
@settings(max_examples=150, deadline=None)
def test_packed_votes_come_back_in_the_exact_number_of_bits(case):
    votes, classes, _ = case
    ballot = encode_packed(votes, classes)
    assert len(ballot) == -(-len(votes) * int(np.ceil(np.log2(classes))) // 8)
    np.testing.assert_array_equal(decode_packed(ballot, len(votes), classes), votes)


@pytest.mark.parametrize("scheme", Scheme)
@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_every_scheme_brings_every_vote_back_whichever_is_smallest(scheme, case):
    votes, classes, labels = case
    labels = np.full(len(votes), -1) if labels is None else labels
    if (votes == labels).all():
        return  # ranked, always
    if not is_possible(scheme, labels, classes):
        return  # refused: a test below
    ballot = encode_predictive(scheme, votes, classes, labels)
    assert ballot[0] == scheme
    np.testing.assert_array_equal(decode_predictive(ballot, classes, labels), votes)


@given(st.lists(st.integers(0, 2**20), max_size=50), st.lists(st.booleans(), max_size=50))
@settings(deadline=None)
def test_bits_are_read_as_they_were_written(values, flags):
    writer = BitWriter()
    writer.rice(np.array(values, dtype=np.int64))
    writer.flags(np.array(flags, dtype=np.bool_))
    writer.number(5, 3)
    data = writer.to_bytes()
    reader = BitReader(data)
    assert reader.rice(len(values), below=2**20 + 1).tolist() == values
    assert reader.flags(len(flags)).tolist() == flags
    assert reader.number(3) == 5
    assert reader.finish() == len(data)


@given(st.lists(st.integers(1, 2**31), min_size=1, max_size=200), st.integers(0, 2**32))
@settings(deadline=None)
def test_symbols_of_any_table_come_back(weights, seed):
    table = Table(np.array(weights, dtype=np.int64))
    assert sum(table.frequencies) == 1 << table.precision
    assert min(table.frequencies) > 0
    symbols = np.random.default_rng(seed).integers(0, len(weights), 100)
    reader = SymbolReader(table, encode_symbols(table, symbols))
    assert [*reader.take(30), *reader.take(70)] == symbols.tolist()
    assert reader.finish() == 0


def test_a_table_holds_no_more_symbols_than_two_bytes_name():
    with pytest.raises(ValueError, match="a table of 65537 symbols"):
        Table(np.ones(65_537, dtype=np.int64))


@pytest.mark.parametrize(
    ("classes", "unlabelled", "possible"), [(65_536, 1, True), (65_537, 0, True), (65_537, 1, False)]
)
def test_classes_that_are_equally_likely_must_fit_a_table(classes, unlabelled, possible):
    labels = np.arange(100) * 600
    labels[:unlabelled] = -1
    votes = np.where(np.arange(100) % 3 == 0, classes - 1, labels)
    votes[:unlabelled] = 7
    assert is_possible(Scheme.LABEL_EVEN, labels, classes) == possible
    if possible:
        ballot = encode_predictive(Scheme.LABEL_EVEN, votes, classes, labels)
        np.testing.assert_array_equal(decode_predictive(ballot, classes, labels), votes)
    else:
        assert likely_smallest(votes, classes, labels) != Scheme.LABEL_EVEN
        with pytest.raises(BallotError, match="scheme 2 for 65537 classes") as refusal:
            decode_predictive(bytes([Scheme.LABEL_EVEN]) + bytes(40), classes, labels)
        assert refusal.value.reason == "ballot-code"


@pytest.mark.parametrize(("distinct", "predictive"), [(65_536, True), (65_537, False)])
def test_votes_for_more_classes_than_a_table_holds_are_packed(distinct, predictive):
    votes = np.concatenate([np.zeros(200_000, dtype=np.int64), np.arange(distinct)])
    ballot = encode_coded(votes, 2**17, None)
    assert (ballot[0] == Scheme.PLAIN) == predictive
    assert (ballot[0] == PACKED) != predictive
    np.testing.assert_array_equal(decode_coded(ballot, len(votes), 2**17, None), votes)


@pytest.mark.parametrize("labelled", [True, False])
def test_votes_of_the_most_classes_there_can_be(labelled):
    rng = np.random.default_rng(8)
    labels = rng.choice([0, 65_535, 65_536, 2**24 - 1], 400)
    votes = np.where(rng.random(400) < 0.5, labels, np.roll(labels, 1))
    known = labels if labelled else None
    ballot = encode_coded(votes, 2**24, known)
    assert len(ballot) < 200  # of 1,200 packed
    np.testing.assert_array_equal(decode_coded(ballot, 400, 2**24, known), votes)


def test_the_largest_table_there_can_be():
    table = Table(np.ones(65_536, dtype=np.int64))
    symbols = np.array([0, 65_535, 32_768])
    assert SymbolReader(table, encode_symbols(table, symbols)).take(3).tolist() == symbols.tolist()


@pytest.mark.parametrize("votes", [np.array([0, 10]), np.array([-1]), np.array([0.5]), np.zeros((2, 2), int)])
def test_votes_of_our_own_that_are_no_class_indices_are_our_own_fault(votes):
    with pytest.raises(ValueError, match="class indices"):
        encode_coded(votes, 10, None)
    with pytest.raises(ValueError, match="class indices"):
        encode_packed(votes, 10)


def test_labels_must_fit_the_votes():
    with pytest.raises(ValueError, match="3 labels for 2 votes"):
        encode_coded(np.array([1, 2]), 10, np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="class indices"):
        decode_coded(b"\x08", 1, 10, np.array([10]))


def mostly_right(rng: np.random.Generator, count: int, classes: int, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.integers(0, classes, count)
    wrong = (labels + rng.integers(1, classes, count)) % classes
    return np.where(rng.random(count) < accuracy, labels, wrong), labels


def text_like(rng: np.random.Generator, count: int = 8192, classes: int = 2048) -> tuple[np.ndarray, np.ndarray]:
    """Tokens by Zipf's law, and votes that mostly follow from the token before, as a weak model's do."""
    zipf = 1 / np.arange(1, classes + 1)
    zipf /= zipf.sum()
    labels = rng.choice(classes, count, p=zipf)
    successor = rng.choice(classes, classes, p=zipf)
    votes = rng.choice(classes, count, p=zipf)
    follow = rng.random(count) < 0.65
    votes[follow] = successor[np.roll(labels, 1)[follow]]
    right = rng.random(count) < 0.1
    votes[right] = labels[right]
    return votes, labels


@pytest.mark.parametrize("count", [0, 1, 16, 2000, MOST_VOTES + 1, 100_000])
def test_a_ballot_that_is_all_right_is_one_byte(count):
    labels = np.random.default_rng(0).integers(0, 10, count)
    ballot = encode_coded(labels, 10, labels)
    assert len(ballot) == 1
    np.testing.assert_array_equal(decode_coded(ballot, count, 10, labels), labels)


@pytest.mark.parametrize(("mistakes", "most"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4)])
def test_sixteen_votes_with_few_mistakes(mistakes, most):
    rng = np.random.default_rng(mistakes)
    for _ in range(50):
        labels = rng.integers(0, 10, 16)
        where = rng.choice(16, mistakes, replace=False)
        votes = labels.copy()
        votes[where] = (labels[where] + rng.integers(1, 10, mistakes)) % 10
        assert len(encode_coded(votes, 10, labels)) <= most


def test_a_run_of_sixteen_vote_ballots_takes_a_third_of_packed():
    rng = np.random.default_rng(0)
    sizes = []
    for accuracy in np.linspace(0.75, 0.95, 1000):
        votes, labels = mostly_right(rng, 16, 10, accuracy)
        sizes.append(len(encode_coded(votes, 10, labels)))
    assert np.mean(sizes) < 2.4  # 0.30 of the 8 bytes of packed


@pytest.mark.parametrize("accuracy", [0.5, 0.75, 0.9, 0.95, 0.99])
def test_many_labelled_votes_come_close_to_their_entropy(accuracy):
    votes, labels = mostly_right(np.random.default_rng(1), 2000, 10, accuracy)
    wrong = np.count_nonzero(votes != labels)
    p = wrong / 2000
    bits = -2000 * (p * np.log2(p) + (1 - p) * np.log2(1 - p)) + wrong * np.log2(9)
    assert len(encode_coded(votes, 10, labels)) < bits / 8 * 1.02 + 10


def test_votes_of_a_language_model():
    votes, labels = text_like(np.random.default_rng(2))
    packed = packed_size(len(votes), 2048)
    assert len(encode_coded(votes, 2048, labels)) < 0.55 * packed
    assert len(encode_coded(votes, 2048, None)) < 0.75 * packed


def test_the_scheme_chosen_suits_the_votes():
    rng = np.random.default_rng(3)
    votes, labels = text_like(rng)
    assert likely_smallest(votes, 2048, labels) == Scheme.LABEL_BEFORE
    assert likely_smallest(votes, 2048, np.full(len(votes), -1)) == Scheme.PLAIN
    votes, labels = mostly_right(rng, 2000, 10, 0.9)
    assert likely_smallest(votes, 10, labels) == Scheme.LABEL_EVEN
    # A peer that has seen only classes 0 to 2 takes every other class for one of them.
    assert likely_smallest(np.where(rng.random(2000) < 0.95, labels % 3, 1), 10, labels) == Scheme.OWN_LABEL


def test_votes_without_any_pattern_are_packed():
    rng = np.random.default_rng(4)
    votes, labels = rng.integers(0, 2048, 8192), rng.integers(0, 2048, 8192)
    ballot = encode_coded(votes, 2048, labels)
    assert ballot[0] == PACKED
    assert len(ballot) == 1 + packed_size(8192, 2048)
