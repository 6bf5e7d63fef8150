"""Ballots: exactly as long as the paper counts, the same answer on the other side, and nothing else is believed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.errors import BallotError
from p2p_tally.protocol.aligned import to_bytes
from p2p_tally.protocol.ballots import BallotFormat, Form, index_bytes
from p2p_tally.protocol.packed import vote_width
from p2p_tally.protocol.probabilities import Precision

class_counts = st.sampled_from([1, 2, 10, 16, 17, 256, 257, 65_536, 65_537, 2**24]) | st.integers(1, 2**17)
counts = st.integers(0, 70)
seeds = st.integers(0, 2**32)


@pytest.mark.parametrize(
    ("classes", "bytes_", "bits"),
    [
        *((1, 1, 0), (2, 1, 1), (3, 1, 2), (10, 1, 4), (16, 1, 4), (17, 1, 5), (100, 1, 7), (255, 1, 8), (256, 1, 8)),
        *((257, 2, 9), (2048, 2, 11), (50_257, 2, 16), (65_535, 2, 16), (65_536, 2, 16)),
        *((65_537, 3, 17), (70_000, 3, 17), (2**24 - 1, 3, 24), (2**24, 3, 24)),
    ],
)
def test_the_width_of_an_index(classes: int, bytes_: int, bits: int) -> None:
    assert index_bytes(classes) == bytes_
    assert vote_width(classes) == bits
    assert 2**bits >= classes


@pytest.mark.parametrize(
    ("form", "count", "classes", "k", "length"),
    [
        ("byte", 1, 10, 1, 1),
        ("byte", 16, 10, 1, 16),
        ("byte", 16, 256, 1, 16),
        ("byte", 16, 257, 1, 32),
        ("byte", 16, 65_536, 1, 32),
        ("byte", 16, 65_537, 1, 48),
        ("byte", 16, 2**24, 1, 48),
        ("byte", 0, 10, 1, 0),
        ("packed", 1, 10, 1, 1),
        ("packed", 2, 10, 1, 1),
        ("packed", 3, 10, 1, 2),
        ("packed", 16, 10, 1, 8),
        ("packed", 16, 2, 1, 2),
        ("packed", 17, 2, 1, 3),
        ("packed", 16, 256, 1, 16),
        ("packed", 16, 257, 1, 18),
        ("packed", 16, 65_536, 1, 32),
        ("packed", 16, 65_537, 1, 34),
        ("packed", 0, 10, 1, 0),
        ("coded", 16, 10, 1, 9),  # at most: packed, and a byte that says so
        ("coded", 0, 10, 1, 1),
        ("top-k", 1, 10, 1, 1),
        ("top-k", 1, 10, 3, 15),
        ("top-k", 1, 10, 5, 25),
        ("top-k", 16, 10, 5, 400),
        ("top-k", 1, 257, 1, 2),
        ("top-k", 1, 257, 3, 18),
        ("top-k", 1, 65_537, 1, 3),
        ("top-k", 1, 65_537, 3, 21),
        ("soft", 1, 10, 1, 40),
        ("soft", 16, 10, 1, 640),
        ("soft", 16, 257, 1, 16_448),
    ],
)
def test_exact_lengths(form: Form, count: int, classes: int, k: int, length: int) -> None:
    ballots = BallotFormat(form, count, classes, k)
    assert ballots.largest == length
    encoded = len(ballots.encode(some_answer(ballots, 0)))
    assert encoded <= length if form == "coded" else encoded == length


@pytest.mark.parametrize(
    ("form", "classes", "k", "float16", "int8"),
    [("soft", 10, 1, 20, 10), ("soft", 2048, 1, 4096, 2048), ("top-k", 10, 3, 9, 6), ("top-k", 257, 3, 12, 9)],
)
def test_bytes_a_probe_in_fewer_bits(form: Form, classes: int, k: int, float16: int, int8: int) -> None:
    for precision, each in (("float16", float16), ("int8", int8)):
        ballots = BallotFormat(form, 5, classes, k, precision)  # type: ignore[arg-type]
        answer = some_answer(ballots, 0)
        assert ballots.largest == len(ballots.encode(answer)) == 5 * each


@given(st.sampled_from(["top-k", "soft"]), st.sampled_from(["float32", "float16", "int8"]), st.integers(0, 20), seeds)
@settings(max_examples=100)
def test_a_sender_has_what_its_readers_have(form: Form, precision: Precision, count: int, seed: int) -> None:
    ballots = BallotFormat(form, count, 12, 4, precision)
    answer = some_answer(ballots, seed)
    read, own = ballots.decode(ballots.encode(answer)), ballots.as_decoded(answer)
    if form == "soft":
        read, own = (None, read), (None, own)
    else:
        np.testing.assert_array_equal(read[0], own[0])
    assert read[1].dtype == own[1].dtype == np.float32
    assert read[1].tobytes() == own[1].tobytes()  # type: ignore[union-attr]


def some_answer(ballots: BallotFormat, seed: int) -> Any:
    """An answer as a learner gives it."""
    rng = np.random.default_rng(seed)
    match ballots.form:
        case "soft":
            return rows(rng, ballots.count, ballots.classes)
        case "top-k":
            order = [rng.permutation(ballots.classes)[: ballots.k] for _ in range(ballots.count)]
            indices = np.array(order, np.int64).reshape(ballots.count, ballots.k)
            return indices, rows(rng, ballots.count, ballots.k)
        case _:
            return rng.integers(0, ballots.classes, ballots.count)


def rows(rng: np.random.Generator, count: int, width: int) -> np.ndarray:
    """Distributions, some of them sharp, as float32."""
    raw = rng.random((count, width)) ** rng.integers(1, 9, (count, 1)) + 1e-12
    return (raw / raw.sum(1, keepdims=True)).astype(np.float32)


@given(st.sampled_from(["byte", "packed"]), counts, class_counts, seeds)
@settings(max_examples=150)
def test_votes_come_back(form: Form, count: int, classes: int, seed: int) -> None:
    ballots = BallotFormat(form, count, classes)
    votes = some_answer(ballots, seed)
    if count:
        votes[-1] = classes - 1
    decoded = ballots.decode(ballots.encode(votes))
    assert isinstance(decoded, np.ndarray) and np.issubdtype(decoded.dtype, np.integer)
    np.testing.assert_array_equal(decoded, votes)


@given(counts, class_counts, seeds, st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=100)
def test_coded_votes_come_back_with_labels_and_without(count: int, classes: int, seed: int, known: float) -> None:
    ballots = BallotFormat("coded", count, classes)
    votes = some_answer(ballots, seed)
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(count) < known, votes, -1)
    for given_labels in (labels, None):
        ballot = ballots.encode(votes, given_labels)
        assert len(ballot) <= ballots.largest
        np.testing.assert_array_equal(ballots.decode(ballot, given_labels), votes)


def test_what_all_peers_know_is_not_sent() -> None:
    ballots = BallotFormat("coded", 100, 10)
    votes = some_answer(ballots, 3)
    assert len(ballots.encode(votes, votes)) < len(ballots.encode(votes)) / 10


@given(counts, st.integers(1, 8), st.sampled_from([8, 10, 256, 257, 300, 65_537, 70_000]), seeds)
@settings(max_examples=100)
def test_the_top_k_come_back(count: int, k: int, classes: int, seed: int) -> None:
    ballots = BallotFormat("top-k", count, classes, k)
    indices, probabilities = some_answer(ballots, seed)
    decoded = ballots.decode(ballots.encode((indices, probabilities)))
    assert isinstance(decoded, tuple)
    np.testing.assert_array_equal(decoded[0], indices)
    expected = probabilities if k > 1 else np.ones((count, 1), np.float32)
    assert decoded[1].dtype == np.float32
    np.testing.assert_array_equal(decoded[1], expected)


@given(st.integers(0, 20), st.integers(1, 40), seeds)
@settings(max_examples=100)
def test_soft_labels_come_back_bit_for_bit(count: int, classes: int, seed: int) -> None:
    ballots = BallotFormat("soft", count, classes)
    soft = some_answer(ballots, seed)
    decoded = ballots.decode(ballots.encode(soft))
    assert isinstance(decoded, np.ndarray)
    assert decoded.shape == (count, classes)
    assert decoded.astype("<f4").tobytes() == soft.astype("<f4").tobytes()


def test_ballots_by_hand() -> None:
    votes = np.array([1, 9, 0])
    assert BallotFormat("byte", 3, 10).encode(votes).hex() == "010900"
    assert BallotFormat("byte", 3, 257).encode(votes).hex() == "010009000000"  # the low byte first
    assert BallotFormat("byte", 2, 70_000).encode(np.array([5, 69_999])).hex() == "0500006f1101"
    assert BallotFormat("packed", 3, 10).encode(votes).hex() == "1900"  # 0001 1001 0000, the high bit first
    assert BallotFormat("packed", 3, 2).encode(np.array([1, 0, 1])).hex() == "a0"
    half = np.array([[0.5, 0.5]], np.float32)
    assert BallotFormat("top-k", 1, 10, 2).encode((np.array([[7, 3]]), half)).hex() == "0703" + "0000003f" * 2
    assert BallotFormat("top-k", 1, 10, 1).encode((np.array([[7]]), half[:, :1])).hex() == "07"
    assert BallotFormat("soft", 1, 2).encode(half).hex() == "0000003f" * 2


@given(
    st.binary(max_size=40),
    st.sampled_from(["byte", "packed", "coded", "top-k", "soft"]),
    st.integers(1, 300) | st.integers(1, 4) | st.just(70_000),
    st.sampled_from(["float32", "float16", "int8"]),
)
@settings(max_examples=600)
def test_any_bytes_are_an_answer_or_a_ballot_error(
    ballot: bytes, form: Form, classes: int, precision: Precision
) -> None:
    k = min(3, classes)
    each = max(1, BallotFormat(form, 1, classes, k, precision).largest)
    for count in {0, 1, len(ballot) // each, len(ballot)}:
        ballots = BallotFormat(form, count, classes, k, precision)
        try:
            answer = ballots.decode(ballot)
        except BallotError as error:
            assert error.reason.startswith("ballot-")
            continue
        if form != "coded" and precision == "float32":
            assert ballots.encode(answer) == ballot  # one ballot for an answer: a second copy has the same bytes
        if isinstance(answer, tuple):
            assert answer[0].shape == answer[1].shape == (count, k)
            assert (answer[0] < classes).all()
        elif form != "soft":
            assert answer.shape == (count,) and (answer < classes).all()


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
@pytest.mark.parametrize("form", ["byte", "packed", "top-k", "soft"])
def test_every_other_length_is_refused(form: Form, precision: Precision) -> None:
    ballots = BallotFormat(form, 5, 10, 3, precision)
    ballot = ballots.encode(some_answer(ballots, 1))
    for wrong in (b"", ballot[:-1], ballot + b"\x00", ballot * 2):
        with pytest.raises(BallotError) as caught:
            ballots.decode(wrong)
        assert caught.value.reason == "ballot-length"


def refusal(ballots: BallotFormat, ballot: bytes) -> str:
    with pytest.raises(BallotError) as caught:
        ballots.decode(ballot)
    return caught.value.reason


@pytest.mark.parametrize(
    ("classes", "index"),
    [(10, 10), (10, 255), (255, 255), (257, 257), (300, 65_535), (65_537, 65_537), (70_000, 2**24 - 1)],
)
@pytest.mark.parametrize("form", ["byte", "top-k"])
def test_an_index_past_the_classes_is_refused(form: Form, classes: int, index: int) -> None:
    width = index_bytes(classes)
    ballots = BallotFormat(form, 3, classes, 1)
    good = (0).to_bytes(width, "little")
    for at in range(3):
        parts = [good] * 3
        parts[at] = index.to_bytes(width, "little")
        assert refusal(ballots, b"".join(parts)) == "ballot-class"
    assert ballots.decode((classes - 1).to_bytes(width, "little") * 3) is not None


def test_packed_bits_past_the_classes_are_refused() -> None:
    ballots = BallotFormat("packed", 4, 10)
    for digit in "abcdef":
        assert refusal(ballots, bytes.fromhex(f"0{digit}00")) == "ballot-class"
    np.testing.assert_array_equal(ballots.decode(bytes.fromhex("0990")), [0, 9, 9, 0])


@pytest.mark.parametrize(("count", "classes", "padding"), [(1, 10, 4), (3, 10, 4), (1, 2, 7), (9, 2, 7), (1, 257, 7)])
def test_padding_that_is_not_zero_is_refused(count: int, classes: int, padding: int) -> None:
    ballots = BallotFormat("packed", count, classes)
    ballot = ballots.encode(np.zeros(count, np.int64))
    for bit in range(padding):
        assert refusal(ballots, ballot[:-1] + bytes([1 << bit])) == "ballot-padding"
    assert not ballots.decode(ballot[:-1] + bytes([0])).any()  # type: ignore[union-attr]


BAD_ROWS = [
    [np.nan, 0.5, 0.5],
    [np.nan, np.nan, np.nan],
    [np.inf, 0.0, 0.0],
    [-np.inf, 1.0, np.inf],
    [-0.1, 0.6, 0.5],
    [-1e-6, 0.5, 0.500001],
    [0.0, 0.0, 0.0],
    [0.3, 0.3, 0.3],
    [0.5, 0.5, 0.5],
    [1.0, 0.002, 0.0],
    [3.4e38, 3.4e38, 3.4e38],
]


@pytest.mark.parametrize("row", BAD_ROWS)
@pytest.mark.parametrize("form", ["soft", "top-k"])
def test_what_is_no_distribution_is_refused(form: Form, row: list[float]) -> None:
    ballots = BallotFormat(form, 3, 3, 3)
    indices = bytes(range(3)) * 3 if form == "top-k" else b""
    good = [0.25, 0.25, 0.5]
    for at in range(3):
        table = [good] * 3
        table[at] = row
        assert refusal(ballots, indices + np.array(table, "<f4").tobytes()) == "ballot-probability"
    assert ballots.decode(indices + np.array([good] * 3, "<f4").tobytes()) is not None


def test_sums_may_stray_a_little() -> None:
    ballots = BallotFormat("soft", 1, 2)
    assert ballots.decode(np.array([0.5, 0.5005], "<f4").tobytes()) is not None
    assert ballots.decode(np.array([-0.0, 1.0], "<f4").tobytes()) is not None
    assert refusal(ballots, np.array([0.5, 0.498], "<f4").tobytes()) == "ballot-probability"


@pytest.mark.parametrize("classes", [10, 300, 70_000])
@pytest.mark.parametrize("repeated", [(4, 4, 1), (4, 1, 4), (1, 4, 4), (0, 0, 0)])
def test_a_class_twice_for_one_probe_is_refused(classes: int, repeated: tuple[int, ...]) -> None:
    ballots = BallotFormat("top-k", 2, classes, 3)
    thirds = np.full(6, 1 / 3, "<f4").tobytes()
    each = index_bytes(classes)
    assert refusal(ballots, to_bytes(np.array([[7, 8, 9], repeated]), each) + thirds) == "ballot-class"
    # The same class for two probes is no repetition.
    assert ballots.decode(to_bytes(np.array([[7, 8, 9], [9, 8, 7]]), each) + thirds) is not None


@pytest.mark.parametrize("form", ["byte", "packed", "coded"])
def test_labels_are_asked_for_where_they_change_the_bytes(form: Form) -> None:
    votes = np.arange(16) % 10
    ballots = BallotFormat(form, 16, 10)
    assert ballots.needs_labels == (ballots.encode(votes, votes) != ballots.encode(votes))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_model_that_has_diverged_has_no_ballot(bad: float) -> None:
    soft = np.full((3, 4), 0.25, np.float32)
    indices, likeliest = np.array([[0, 1]] * 3), np.full((3, 2), 0.5, np.float32)
    assert BallotFormat.can_encode(soft) and BallotFormat.can_encode((indices, likeliest))
    assert BallotFormat.can_encode(np.array([0, 1, 2]))
    soft[1, 2] = likeliest[2, 1] = bad
    assert not BallotFormat.can_encode(soft)
    assert not BallotFormat.can_encode((indices, likeliest))


@pytest.mark.parametrize(
    ("classes", "each"), [(255, 1), (256, 2), (65_535, 2), (65_536, 3), (2**24 - 1, 3), (2**24, 4)]
)
@pytest.mark.parametrize("form", ["byte", "packed", "coded"])
def test_no_opinion_comes_back_where_it_takes_a_byte_more(form: Form, classes: int, each: int) -> None:
    ballots = BallotFormat(form, 5, classes, abstains=True)
    votes = np.array([0, classes, classes - 1, classes, 1])
    np.testing.assert_array_equal(ballots.decode(ballots.encode(votes)), votes)
    assert form != "byte" or ballots.largest == 5 * each
