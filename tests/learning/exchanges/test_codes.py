"""Codes of whole tensors, clustered weights and low rank: worked by hand, their lengths, bytes that nobody wrote."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError, ParameterError
from p2p_tally.learning.exchanges.clusters import CLUSTERED, centroids_of, nearest
from p2p_tally.learning.exchanges.code import Code, decode, encode, size_of
from p2p_tally.learning.exchanges.dspodfl import SPORADIC
from p2p_tally.learning.exchanges.exchange import Exchange
from p2p_tally.learning.exchanges.low_rank import LOW_RANK, factors
from p2p_tally.learning.exchanges.pame import PARTIAL

FEW = Federation(clusters=4, factor_rank=1)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def sent(code: Code, tensor: np.ndarray, federation: Federation = FEW) -> np.ndarray:
    return code.read(code.write(tensor, federation), tensor.shape, federation)


# --- clustered weights


def test_two_clusters_by_hand() -> None:
    """0, 1, 2 and 9 begin as the halves (0, 1) and (2, 9), with means 0.5 and 5.5. Their middle is 3, so 2 goes to the
    lower: (0, 1, 2) with mean 1, and 9. The middle is 5, and nothing moves."""
    values = floats(9, 0, 2, 1)
    centroids = centroids_of(values, 2)
    assert centroids.tolist() == [1.0, 9.0]
    assert nearest(values, centroids).tolist() == [1, 0, 0, 0]
    assert nearest(floats(5.0), centroids).tolist() == [0]  # as near to both: the lower


def test_the_bytes_of_clustered_weights_by_hand() -> None:
    """Eight values of two sorts with K = 3: two bits each, so 12 bytes of centroids and 2 of indices, where float32
    takes 32. The second centroid is there twice, because there are no three values."""
    three, tensor = Federation(clusters=3), floats(-1, 2, 2, -1, 2, 2, 2, -1).reshape(2, 4)
    data = CLUSTERED.write(tensor, three)
    assert data == np.array([-1, 2, 2], "<f4").tobytes() + bytes([0b00010100, 0b01010100])
    assert CLUSTERED.size((2, 4), three) == len(data) == 14
    assert CLUSTERED.read(data, (2, 4), three).tolist() == tensor.tolist()


def test_what_clusters_would_not_make_shorter_travels_as_it_is() -> None:
    """With K = 16 ten values would take 64 + 5 bytes; 18 take 73 where float32 takes 72, 19 take 74 in place of 76."""
    sizes = [CLUSTERED.size((count,), Federation(clusters=16)) for count in (10, 18, 19)]
    assert sizes == [40, 72, 74]
    values = np.linspace(0, 1, 10, dtype=np.float32)
    assert sent(CLUSTERED, values, Federation(clusters=16)).tobytes() == values.tobytes()


VALUES = arrays(np.float32, st.integers(30, 90), elements=st.floats(-8, 8, width=16))


@settings(max_examples=60, deadline=None)
@given(values=VALUES, clusters=st.sampled_from([2, 3, 5, 16]))
def test_clustered_weights_are_near_and_clustering_again_changes_nothing(values: np.ndarray, clusters: int) -> None:
    federation = Federation(clusters=clusters)
    found = sent(CLUSTERED, values, federation)
    coded = CLUSTERED.size(values.shape, federation) < 4 * len(values)
    assert len(np.unique(found)) <= clusters or not coded
    assert sent(CLUSTERED, found, federation).tolist() == found.tolist()
    spread = np.square(values.astype(float) - values.mean(dtype=float)).sum()
    assert np.square(found.astype(float) - values).sum() <= spread + 1e-3  # one cluster alone would be the mean


def test_more_clusters_are_nearer() -> None:
    values = np.random.default_rng(0).normal(size=2000).astype(np.float32)
    errors = [np.square(sent(CLUSTERED, values, Federation(clusters=k)) - values).mean() for k in (2, 4, 16, 64)]
    # The best that 2, 4 and 16 levels can do on a normal law is 0.363, 0.117 and 0.0095 (Max 1960).
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(0.363, rel=0.05) and errors[2] == pytest.approx(0.0095, rel=0.25)


# --- low rank


def test_a_matrix_of_rank_one_arrives() -> None:
    """(3, 4, 0) times (1, 2, 2): the direction is (0.6, 0.8, 0), and the shares are 5 (1, 2, 2)."""
    matrix = np.outer([3.0, 4.0, 0.0], [1.0, 2.0, 2.0]).astype(np.float32)
    directions, shares = factors(matrix, 1)
    sign = np.sign(directions[0, 0])
    assert (sign * directions[:, 0]).tolist() == pytest.approx([0.6, 0.8, 0.0])
    assert (sign * shares[:, 0]).tolist() == pytest.approx([5.0, 10.0, 10.0])
    assert sent(LOW_RANK, matrix) == pytest.approx(matrix)
    assert LOW_RANK.size((3, 3), FEW) == 4 * (3 + 3) == len(LOW_RANK.write(matrix, FEW))


def test_of_two_directions_the_stronger_travels() -> None:
    """diag(10, 1, 0): at rank 1 the 10 is left, and a tenth of a thousandth of a thousandth of the 1 at most."""
    found = sent(LOW_RANK, np.diag(floats(10, 1, 0)))
    assert found == pytest.approx(np.diag([10.0, 0.0, 0.0]), abs=1e-4)


def test_as_near_as_the_singular_values_allow() -> None:
    """The best of rank 3 leaves the squares of the other singular values; here they halve."""
    rng = np.random.default_rng(1)
    left, _ = np.linalg.qr(rng.normal(size=(30, 12)))
    right, _ = np.linalg.qr(rng.normal(size=(20, 12)))
    values = 0.5 ** np.arange(12)
    matrix = (left * values @ right.T).astype(np.float32)
    left_out = np.square(sent(LOW_RANK, matrix, Federation(factor_rank=3)) - matrix).sum()
    assert left_out == pytest.approx(np.square(values[3:]).sum(), rel=0.01)


def test_a_rank_above_that_of_the_matrix_and_one_of_zeros() -> None:
    rank_one = np.outer(np.arange(1, 13), np.arange(1, 11)).astype(np.float32)
    directions, _ = factors(rank_one, 4)
    assert np.abs(directions).max(0)[1:].tolist() == [0.0, 0.0, 0.0]
    assert sent(LOW_RANK, rank_one, Federation(factor_rank=4)) == pytest.approx(rank_one, rel=1e-6)
    assert not sent(LOW_RANK, np.zeros((12, 10), np.float32), Federation(factor_rank=4)).any()


def test_kernels_are_matrices_and_vectors_travel_as_they_are() -> None:
    """8 kernels of 3 x 2 x 2 are a matrix of 8 x 12."""
    kernels, bias = np.random.default_rng(0).normal(size=(8, 3, 2, 2)).astype(np.float32), floats(1, 2, 3)
    assert LOW_RANK.size(kernels.shape, FEW) == 4 * (8 + 12)
    flat = sent(LOW_RANK, kernels.reshape(8, 12))
    assert sent(LOW_RANK, kernels).tobytes() == flat.tobytes()
    assert sent(LOW_RANK, bias).tobytes() == bias.tobytes()
    square = np.arange(4, dtype=np.float32).reshape(2, 2)  # 2 + 2 values would be as many
    assert sent(LOW_RANK, square).tobytes() == square.tobytes()


# --- vectors


LAYOUT = ((12, 10), (12,), (3, 12), (3,))
WIDTH = 120 + 12 + 36 + 3


@settings(max_examples=40, deadline=None)
@given(
    vector=arrays(np.float32, 2 * WIDTH, elements=st.floats(-4, 4, width=32)),
    code=st.sampled_from([CLUSTERED, LOW_RANK]),
    clusters=st.integers(2, 20),
    rank=st.integers(1, 6),
)
def test_the_length_is_known_beforehand(vector: np.ndarray, code: Code, clusters: int, rank: int) -> None:
    """Also of two vectors one after the other, each tensor by itself."""
    federation = Federation(clusters=clusters, factor_rank=rank)
    data = encode(code, vector, LAYOUT, federation)
    assert len(data) == size_of(code, LAYOUT, 2, federation)
    found = decode(code, data, len(vector), LAYOUT, federation)
    halves = [
        decode(code, encode(code, half, LAYOUT, federation), WIDTH, LAYOUT, federation)
        for half in (vector[:WIDTH], vector[WIDTH:])
    ]
    assert found.tobytes() == np.concatenate(halves).tobytes()


@pytest.mark.parametrize(
    ("code", "data", "reason"),
    [
        (CLUSTERED, np.array([1, 0, 2, 3], "<f4").tobytes() + bytes(10), "centroids"),
        (CLUSTERED, np.array([0, np.nan, 2, 3], "<f4").tobytes() + bytes(10), "centroids"),
        (CLUSTERED, np.array([0, 1, 2, 3], "<f4").tobytes() + bytes(9) + b"\x01", "centroids"),
        (CLUSTERED, bytes(25), "shape"),
        (LOW_RANK, np.full(14, 2, "<f4").tobytes(), "factors"),
        (LOW_RANK, np.full(14, np.nan, "<f4").tobytes(), "factors"),
        (LOW_RANK, bytes(52), "shape"),
    ],
)
def test_bytes_that_nobody_wrote_are_refused(code: Code, data: bytes, reason: str) -> None:
    """Of a tensor of 3 x 13 values: 10 bytes of indices, of which the last two bits are padding; or 16 + 40 of
    centroids. As factors 3 + 13 values would be shorter than 39."""
    shape = (3, 13) if code is CLUSTERED else (7, 7)
    with pytest.raises(ParameterError) as caught:
        decode(code, data, shape[0] * shape[1], (shape,), FEW)
    assert caught.value.reason == reason


def test_an_index_past_the_last_cluster_is_refused() -> None:
    three = Federation(clusters=3)
    data = np.array([0, 1, 2], "<f4").tobytes() + bytes([0b11000000, 0])
    with pytest.raises(ParameterError, match="cluster 3 of 3"):
        decode(CLUSTERED, data, 8, ((8,),), three)


@given(data=st.binary(min_size=26, max_size=26))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for code, shape in ((CLUSTERED, (5, 8)), (LOW_RANK, (2, 3))):
        try:
            found = decode(code, data[: code.size(shape, FEW)], shape[0] * shape[1], (shape,), FEW)
        except ParameterError:
            continue
        assert found.shape == (shape[0] * shape[1],)


def test_places_and_a_code_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match="an exchange with places and a code: accepted is one of the two"):
        Exchange(PARTIAL.links, PARTIAL.weights, places=PARTIAL.places, code=CLUSTERED)
    with pytest.raises(ConfigError, match="an exchange that returns what coding kept: accepted with a code"):
        Exchange(SPORADIC.links, SPORADIC.weights, returns_kept=True)


@pytest.mark.parametrize("options", [{"clusters": 1}, {"clusters": 257}, {"factor_rank": 0}])
def test_how_many_clusters_and_what_rank(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"--\S+ \d+: accepted is a whole number from"):
        Federation.parse(options)
