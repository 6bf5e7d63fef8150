"""Probabilities in fewer bits: how far off they may be, what stays true of them, and what is not believed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.errors import BallotError
from p2p_tally.protocol.probabilities import Precision, read, rounded, width, write

ROUNDED: list[Precision] = ["float16", "int8"]
precisions = st.sampled_from(ROUNDED)
class_counts = st.sampled_from([1, 2, 3, 10, 100, 255, 256, 2048, 65_536]) | st.integers(1, 400)


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(-1, keepdims=True))
    return (raised / raised.sum(-1, keepdims=True)).astype(np.float32)


def made_up(count: int, classes: int, sharpness: float, seed: int) -> np.ndarray:
    """Distributions [P, C]: from nearly uniform to nearly certain, with a certain one and some equals."""
    rng = np.random.default_rng(seed)
    rows = softmax(rng.normal(0, sharpness, (count, classes)))
    if count > 2:
        rows[0] = np.eye(classes, dtype=np.float32)[-1]
        rows[1] = np.float32(1 / classes)
    return rows


@given(precisions, st.integers(0, 6), class_counts, st.floats(0, 40), st.integers(0, 2**32))
@settings(max_examples=100)
def test_rows_come_back_nearly_as_they_were(
    precision: Precision, count: int, classes: int, sharpness: float, seed: int
) -> None:
    rows = made_up(count, classes, sharpness, seed)
    data = write(rows, precision)
    assert len(data) == rows.size * width(precision)
    found = read(data, precision, classes)
    assert found.shape == rows.shape and found.dtype == np.float32
    assert found.tobytes() == rounded(rows, precision).tobytes()  # the sender has what its readers have
    np.testing.assert_allclose(found.sum(1, dtype=np.float64), 1, atol=1e-6)

    exact = rows / rows.sum(1, dtype=np.float64, keepdims=True)
    largest = exact.max(1, keepdims=True, initial=0)
    within = largest / 254 if precision == "int8" else exact * (2**-10 + classes * 2**-25) + 2**-24
    assert (np.abs(found - exact) <= within * (1 + 1e-6)).all()
    # Of two classes the likelier one stays it, or they become equals.
    order = np.lexsort((found, rows))  # by the row; equals, of which one may have a part more, by what they became
    assert (np.diff(np.take_along_axis(found, order, 1), axis=1) >= 0).all()


@given(st.binary(max_size=60), precisions, st.integers(1, 12))
@settings(max_examples=200)
def test_any_bytes_are_distributions_or_a_ballot_error(data: bytes, precision: Precision, classes: int) -> None:
    whole = len(data) - len(data) % (classes * width(precision))
    try:
        rows = read(data[:whole], precision, classes)
    except BallotError as error:
        assert error.reason == "ballot-probability"
        return
    assert np.isfinite(rows).all() and (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(1, dtype=np.float64), 1, atol=1e-6)


def test_parts_by_hand() -> None:
    # 255 / 0.5 = 510 parts: 255, 127.5 and 127.5; the part that is left goes to the smaller of two equal classes.
    assert write(np.array([[0.5, 0.25, 0.25]], np.float32), "int8") == bytes([255, 128, 127])
    # 318 parts of which the likeliest has 254.4; 0.6 of a part is a larger remainder than 0.4.
    assert write(np.array([[0.8, 0.2]], np.float32), "int8") == bytes([254, 64])
    assert write(np.array([[0.0, 1.0, 0.0]], np.float32), "int8") == bytes([0, 255, 0])
    found = read(bytes([255, 128, 127]), "int8", 3)
    np.testing.assert_array_equal(found, np.array([[255, 128, 127]], np.float32) / np.float32(510))


def test_halves_by_hand() -> None:
    data = write(np.array([[0.5, 0.25, 0.25]], np.float32), "float16")
    assert data.hex() == "003800340034"
    np.testing.assert_array_equal(read(data, "float16", 3), [[0.5, 0.25, 0.25]])
    # A sum of 0.999 is divided out.
    stray = np.array([[0.5, 0.499]], "<f2")
    found = read(stray.tobytes(), "float16", 2)
    np.testing.assert_allclose(found, [[0.5005, 0.4995]], atol=1e-4)


def test_what_small_classes_have_together_is_kept() -> None:
    """Each of 2,048 classes has an eighth of a part: rounded one by one all would be nothing, and the first all."""
    rows = np.full((1, 2049), 2.0**-12, np.float32)
    rows[0, 0] = 0.5
    assert write(rows, "int8") == bytes([255] + [1] * 255 + [0] * 1793)
    assert rounded(rows, "int8")[0, 0] == 0.5


@pytest.mark.parametrize("precision", ROUNDED)
def test_many_classes_that_each_have_next_to_nothing(precision: Precision) -> None:
    """A half float rounds 3.6 x 2^-24 up to 4 x 2^-24: the sum as it is written is 1.1, and is divided out."""
    rows = np.full((1, 2**22), 3.6 * 2.0**-24, np.float32)
    rows[0, 0] = 0.1
    found = read(write(rows, precision), precision, 2**22)
    assert found.tobytes() == rounded(rows, precision).tobytes()
    np.testing.assert_allclose(found.sum(dtype=np.float64), 1, atol=1e-3)


def test_long_tables_are_written_block_by_block() -> None:
    rows = made_up(300, 1000, 2.0, 5)  # more than one block
    assert write(rows, "int8") == b"".join(write(row[None], "int8") for row in rows)
    stacked = np.moveaxis(rows.reshape(3, 100, 1000), 0, 1)  # as it does not lie in memory
    np.testing.assert_array_equal(rounded(stacked, "int8")[:, 1], rounded(rows[100:200], "int8"))


@pytest.mark.parametrize("precision", ROUNDED)
@pytest.mark.parametrize("row", [[np.nan, 0.5, 0.5], [np.nan] * 3, [np.inf, 0.0, 0.0], [0.0, 0.0, 0.0]])
def test_a_model_that_has_diverged_is_refused_by_others_and_stops_nobody(
    precision: Precision, row: list[float]
) -> None:
    rows = np.array([[0.25, 0.25, 0.5], row], np.float32)
    with pytest.raises(BallotError) as caught:
        read(write(rows, precision), precision, 3)
    assert caught.value.reason == "ballot-probability"
    own = rounded(rows, precision)
    np.testing.assert_array_equal(own[0], rounded(rows[:1], precision)[0])
    assert not np.isfinite(own[1]).all()


@pytest.mark.parametrize(
    "row",
    [
        *([-0.1, 0.6, 0.5], [0.3, 0.3, 0.3], [1.0, 0.01, 0.0], [-np.inf, 1.0, np.inf], [np.inf, 0, 0]),
        *([np.nan, 0.5, 0.5], [0.0, 0.0, 0.0], [65504.0, 65504.0, 65504.0], [0.5, 0.495, 0.0]),
    ],
)
def test_halves_that_are_no_distribution_are_refused(row: list[float]) -> None:
    good = [0.25, 0.25, 0.5]
    for table in ([good, row], [row, good]):
        with pytest.raises(BallotError):
            read(np.array(table, "<f2").tobytes(), "float16", 3)


def test_parts_that_add_up_to_nothing_are_refused() -> None:
    with pytest.raises(BallotError):
        read(bytes([255, 0, 0, 0]), "int8", 2)
    np.testing.assert_array_equal(read(bytes([0, 1, 1, 1]), "int8", 2), [[0, 1], [0.5, 0.5]])
