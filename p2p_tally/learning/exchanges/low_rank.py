"""Low rank: of each matrix two factors travel, whose product is nearest to it among all of this rank.

After Vogels, Karimireddy and Jaggi, "PowerSGD", NeurIPS 2019, section 3 (subspace iteration); its text was not at hand.
R is --factor-rank. A tensor with more than two dimensions is the matrix of its first one by all others. Vectors, and
matrices that two factors would not make shorter, travel as they are.

M is sent as P and Q with M ~ P Q^T: the columns of P are directions of length 1, at right angles, that the iteration
turns towards the first R singular vectors, and Q = M^T P. Sums are numpy's own, in float64 and in a fixed order, not
those of a BLAS library: with one, the number of threads could change the last bits. What the factors leave out is not
lost: who merges keeps it with the sender (error feedback), see `node/merges/coded_by_method.py`.
"""

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.errors import ParameterError
from p2p_tally.ids import derive_seed
from p2p_tally.learning.exchanges.code import Code, Shape, count, read_plain, write_plain

# Turns of the subspace. Each brings the directions closer by the square of the ratio of two singular values.
TURNS = 4
# A direction that is shorter than this share of the matrix after all others are taken off is none: the rank is lower.
SMALLEST = 1e-9
# Directions have length 1; rounding to float32 may add to it.
LONGEST = 1.0 + 1e-5


def size(shape: Shape, federation: Federation) -> int:
    return 4 * (sum(_matrix(shape)) * federation.factor_rank if _is_coded(shape, federation) else count(shape))


def write(tensor: np.ndarray, federation: Federation) -> bytes:
    if not _is_coded(tensor.shape, federation):
        return write_plain(tensor)
    directions, shares = factors(tensor.reshape(_matrix(tensor.shape)), federation.factor_rank)
    return write_plain(directions) + write_plain(shares)


def read(data: bytes, shape: Shape, federation: Federation) -> np.ndarray:
    if not _is_coded(shape, federation):
        return read_plain(data, shape)
    (rows, columns), rank = _matrix(shape), federation.factor_rank
    with np.errstate(over="ignore", invalid="ignore"):  # who merges refuses what is not finite
        both = read_plain(data, (rows + columns, rank)).astype(np.float64)
        directions, shares = both[:rows], both[rows:]
        if not (np.abs(directions) <= LONGEST).all():  # NaN is not
            raise ParameterError("a factor that is no direction", reason="factors")
        product: np.ndarray = np.einsum("mr,nr->mn", directions, shares).astype(np.float32).reshape(shape)
    return product


LOW_RANK = Code(size, write, read)


def factors(matrix: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """P [m, R], whose columns are at right angles and of length 1 or 0, and Q = M^T P [n, R], as float32."""
    whole = matrix.astype(np.float64)
    scale = float(np.sqrt(np.square(whole).sum()))
    columns = whole.shape[1]
    raw = np.random.PCG64(derive_seed(0, "factors", columns, rank)).random_raw(columns * rank)
    shares = ((raw >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0).reshape(columns, rank)
    for _ in range(TURNS):
        directions = _at_right_angles(np.einsum("mn,nr->mr", whole, shares), scale)
        shares = np.einsum("mn,mr->nr", whole, directions)
    sent = directions.astype(np.float32)
    return sent, np.einsum("mn,mr->nr", whole, sent.astype(np.float64)).astype(np.float32)


def _at_right_angles(columns: np.ndarray, scale: float) -> np.ndarray:
    """The columns [m, R] one after the other, without what those before have of them, and of length 1; or zeros."""
    result = np.zeros_like(columns)
    for place in range(columns.shape[1]):
        column, before = columns[:, place], result[:, :place]
        longest = max(float(np.sqrt(np.square(column).sum())), SMALLEST * scale)
        for _ in range(2):  # the second time takes off what rounding left
            column = column - np.einsum("mr,r->m", before, np.einsum("mr,m->r", before, column))
        length = float(np.sqrt(np.square(column).sum()))
        if length > SMALLEST * longest:
            result[:, place] = column / length
    return result


def _matrix(shape: Shape) -> tuple[int, int]:
    return shape[0], count(shape[1:])


def _is_coded(shape: Shape, federation: Federation) -> bool:
    return len(shape) > 1 and sum(_matrix(shape)) * federation.factor_rank < count(shape)
