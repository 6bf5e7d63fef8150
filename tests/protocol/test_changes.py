"""Coded runs of parameters: how far a value may move, how long a run is, and what no decoder lets through."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from p2p_tally.errors import ParameterError
from p2p_tally.protocol import indices
from p2p_tally.protocol.changes import BLOCK, LARGEST, LEVELS, SMALLEST, ChangeFormat, Precision, fits
from p2p_tally.protocol.frames import CHUNK_BYTES
from p2p_tally.protocol.segments import RUN

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "int8")
FORMATS = [ChangeFormat(precision) for precision in PRECISIONS]
SPARSE = [ChangeFormat(precision, share) for precision in PRECISIONS for share in (0.02, 0.3)]
of_each_format = pytest.mark.parametrize("coding", [*FORMATS, *SPARSE], ids=str)

values = hnp.arrays(
    np.float32,
    st.integers(0, 3 * BLOCK + 5),
    elements=st.floats(-float(LARGEST), float(LARGEST), width=32),
    fill=st.floats(-1, 1, width=32),
)


def made_up(count: int, seed: int = 0) -> np.ndarray:
    """Values of very different sizes, some of them 0."""
    rng = np.random.default_rng(seed)
    run = rng.standard_normal(count) * 10.0 ** rng.integers(-8, 4, count)
    run[rng.random(count) < 0.1] = 0
    return run.astype(np.float32)


def peaks(run: np.ndarray) -> np.ndarray:
    """The largest size in each value's block."""
    out = np.empty_like(run)
    for start in range(0, len(run), BLOCK):
        out[start : start + BLOCK] = np.abs(run[start : start + BLOCK]).max()
    return out


# --- there and back


@of_each_format
@settings(max_examples=30)
@given(values)
def test_what_comes_back_is_as_long_and_finite_and_rounds_to_itself(coding: ChangeFormat, run: np.ndarray) -> None:
    data = coding.encode(run)
    assert len(data) == coding.size(len(run))
    restored = coding.decode(data, len(run))
    assert restored.dtype == np.float32 and restored.shape == run.shape
    assert np.isfinite(restored).all()
    assert (restored == coding.rounded(run)).all()


@pytest.mark.parametrize("coding", SPARSE, ids=str)
@settings(max_examples=30)
@given(st.integers(1, 700), st.integers(0, 2**32))
def test_the_largest_are_sent_and_the_rest_is_zero(coding: ChangeFormat, count: int, seed: int) -> None:
    run = made_up(count, seed)
    run[run == 0] = 1e-9
    k, restored = coding.chosen(count), coding.rounded(run)
    if k == count:
        assert (restored == coding.dense.rounded(run)).all()
        return
    assert k == math.ceil(coding.top_k * count)
    sent = np.sort(np.argsort(-np.abs(run), kind="stable")[:k])
    assert (restored[sent] == coding.dense.rounded(run[sent])).all()
    assert not np.delete(restored, sent).any()


@pytest.mark.parametrize("size", [0.0, 1.0])
def test_of_equal_values_the_first_are_sent(size: float) -> None:
    data = ChangeFormat("float32", 0.1).encode(np.full(100, size, np.float32))
    assert indices.decode(data[: indices.size(100, 10)], 100, 10).tolist() == list(range(10))


@given(values)
def test_int8_is_within_half_a_step_of_its_block(run: np.ndarray) -> None:
    coding = ChangeFormat("int8")
    error = np.abs(coding.rounded(run).astype(np.float64) - run)
    step = peaks(run).astype(np.float64) / LEVELS
    assert (error <= np.maximum(step * (0.5 + 1e-4), SMALLEST)).all()


@given(values)
def test_int8_keeps_zeros_signs_and_the_largest_of_a_block(run: np.ndarray) -> None:
    restored = ChangeFormat("int8").rounded(run)
    assert (restored[run == 0] == 0).all()
    assert (restored * np.sign(run) >= 0).all()
    largest = (np.abs(run) == peaks(run)) & (np.abs(run) >= SMALLEST)
    np.testing.assert_allclose(restored[largest], run[largest], rtol=1e-6)


@given(values)
def test_bfloat16_is_the_nearest_and_in_the_middle_the_even_one(run: np.ndarray) -> None:
    nearest = torch.from_numpy(run).to(torch.bfloat16).float().numpy()
    assert ChangeFormat("bfloat16").rounded(run).tobytes() == nearest.tobytes()


@given(values)
def test_float32_is_exact(run: np.ndarray) -> None:
    assert ChangeFormat("float32").decode(run.tobytes(), len(run)).tobytes() == run.tobytes()


@of_each_format
@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_rows_are_rounded_as_single_runs_are(coding: ChangeFormat, count: int) -> None:
    rows = np.stack([made_up(count, seed) for seed in range(4)])  # [4, n]
    rounded = coding.rounded(rows)
    assert [row.tobytes() for row in rounded] == [coding.rounded(row).tobytes() for row in rows]


def test_the_bytes_of_int8() -> None:
    """Scales first, then a byte a value."""
    run = np.zeros(BLOCK + 3, np.float32)
    run[:3] = 127, -63.6, 0.4
    run[BLOCK:] = 0, -254, 2
    data = ChangeFormat("int8").encode(run)
    assert np.frombuffer(data, "<f4", 2).tolist() == [1.0, 2.0]
    steps = np.frombuffer(data, np.int8, offset=8)
    assert steps[:3].tolist() == [127, -64, 0]
    assert steps[BLOCK:].tolist() == [0, -127, 1]


@given(st.integers(0, 3 * RUN))
def test_sizes(count: int) -> None:
    assert [coding.size(count) for coding in FORMATS] == [4 * count, 2 * count, count + 4 * -(-count // 256)]


def test_a_coded_run_fits_a_frame() -> None:
    shares = (0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.9999)
    sizes = [ChangeFormat(precision, share).size(RUN) for precision in PRECISIONS for share in shares]
    assert max(sizes) == CHUNK_BYTES


@pytest.mark.parametrize("precision", PRECISIONS)
@given(st.integers(0, 3 * RUN), st.floats(0.0001, 0.9999))
def test_a_part_is_never_longer_than_the_whole(precision: Precision, count: int, share: float) -> None:
    sparse = ChangeFormat(precision, share)
    assert sparse.size(count) <= sparse.dense.size(count)
    assert (sparse.chosen(count) == count) == (sparse.size(count) == sparse.dense.size(count))


# --- error feedback


@of_each_format
@settings(max_examples=30)
@given(st.integers(1, 600), st.integers(1, 12), st.integers(0, 2**32))
def test_what_was_restored_and_what_is_kept_are_all_the_changes(
    coding: ChangeFormat, count: int, times: int, seed: int
) -> None:
    """The law of error feedback: nothing is lost, only late."""
    kept, total, changes = np.zeros(count, np.float32), np.zeros(count), np.zeros(count)
    size = 0.0
    for number in range(times):
        change = np.random.default_rng([seed, number]).standard_normal(count).astype(np.float32)
        kept += change
        restored = coding.rounded(kept)
        kept -= restored
        total += restored
        changes += change
        size += float(np.abs(change).max())
    np.testing.assert_allclose(total + kept, changes, atol=1e-6 * size)


# --- what is refused


@of_each_format
@settings(max_examples=30)
@given(st.binary(max_size=600), st.integers(0, 600))
def test_any_bytes_are_values_or_the_typed_error(coding: ChangeFormat, data: bytes, count: int) -> None:
    for length in (count, len(data), len(data) // 2, len(data) // 4):
        fitting = (data * (coding.size(length) // max(1, len(data)) + 1))[: coding.size(length)]
        try:
            restored = coding.decode(fitting if length == count else data, length)
        except ParameterError as error:
            assert error.reason in {"shape", "not-finite", "places"}
        else:
            assert restored.shape == (length,) and np.isfinite(restored).all()


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, -1.0, -1e-30, 3e38])
@pytest.mark.parametrize("block", [0, 1])
def test_a_scale_that_is_none_is_refused(scale: float, block: int) -> None:
    coding = ChangeFormat("int8")
    data = bytearray(coding.encode(made_up(BLOCK + 1)))
    data[4 * block : 4 * block + 4] = np.float32(scale).tobytes()
    with pytest.raises(ParameterError) as caught:
        coding.decode(bytes(data), BLOCK + 1)
    assert caught.value.reason == "not-finite"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_value_that_is_none_is_refused(precision: Precision, bad: float) -> None:
    run = made_up(20)
    run[7] = bad
    data = run.tobytes() if precision == "float32" else (run.view(np.uint32) >> 16).astype("<u2").tobytes()
    with pytest.raises(ParameterError) as caught:
        ChangeFormat(precision).decode(data, 20)
    assert caught.value.reason == "not-finite"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2 * LARGEST, -2 * LARGEST])
def test_what_cannot_be_coded_is_known_beforehand(bad: float) -> None:
    run = made_up(20)
    assert fits(run) and fits(run[:0])
    run[3] = bad
    assert not fits(run)


@pytest.mark.parametrize(("value", "kept"), [(1e-40, False), (2.0**-101, False), (2.0**-100, True)])
def test_a_block_too_small_to_scale_is_zeros(value: float, kept: bool) -> None:
    run = np.full(BLOCK, value, np.float32)
    assert ChangeFormat("int8").rounded(run).any() == kept
    assert any(ChangeFormat("int8").encode(run)) == kept


def test_without_options_parameters_go_as_they_are() -> None:
    assert ChangeFormat().plain
    assert not ChangeFormat("bfloat16").plain
    assert not ChangeFormat(top_k=0.5).plain
    assert ChangeFormat(top_k=0.5).dense.plain
