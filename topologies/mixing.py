"""Metropolis-Hastings mixing weights of a graph, and how fast they reduce disagreement.

This module knows graphs and matrices only; it knows nothing of names and seeds.
"""

import math
from collections.abc import Sequence

import networkx as nx
import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import linalg

from p2p_tally.topologies.errors import TopologyError
from p2p_tally.topologies.weights import metropolis_row

Array = npt.NDArray[np.float64]

# Up to this size a dense eigensolver takes well under a second; above it memory and time grow too fast.
DENSE_NODES = 600
# If one round reduces disagreement by this factor, it has removed all of it; what is left is rounding error.
NEGLIGIBLE = 1e-12
# Power iteration over several rounds: it ends when the rate changes relatively less than this, or after so many passes.
SETTLED = 1e-9
PASSES = 300
# For an expected gap with too many nodes for the dense solver: the number of random directions of disagreement.
DIRECTIONS = 64


def metropolis_hastings(graph: nx.Graph) -> sparse.csr_array:
    """The mixing matrix of a graph, rows and columns in the order of its nodes."""
    place = {node: index for index, node in enumerate(graph)}
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for node, adjacent in graph.adjacency():
        own, weights = metropolis_row(len(adjacent), [len(graph.adj[other]) for other in adjacent])
        rows.extend([place[node]] * (1 + len(adjacent)))
        columns.extend([place[node], *(place[other] for other in adjacent)])
        values.extend([own, *weights])
    return sparse.csr_array((values, (rows, columns)), shape=(len(place), len(place)))  # [N, N]


def check_mixing(weights: sparse.csr_array) -> None:
    """Raise a TopologyError unless the matrix is square, non-negative and symmetric, and its rows sum to 1."""
    rows, columns = weights.shape
    if rows != columns or rows == 0:
        raise TopologyError(f"mixing weights of shape {rows} x {columns}: they must be square, a row per node")
    if not np.isfinite(weights.data).all() or (weights.data < 0).any():
        raise TopologyError("mixing weights must be finite and not negative")
    if abs(weights - weights.T).max() > NEGLIGIBLE:
        raise TopologyError("mixing weights must be symmetric")
    worst = float(np.abs(weights.sum(axis=1) - 1.0).max())
    if worst > 1e-9:
        raise TopologyError(f"each row of mixing weights must sum to 1, and one is off by {worst:.3g}")


def spectral_gap(*rounds: sparse.csr_array) -> float:
    """1 - (the factor by which one round reduces disagreement in the worst case), between 0 and 1.

    For one matrix this is 1 - |lambda_2|. For several, those of consecutive rounds, the factor is the second singular
    value of their product, per round as a geometric mean.
    """
    if _nodes(rounds) == 1:
        return 1.0
    return _gap(_second_eigenvalue(rounds[0]) if len(rounds) == 1 else _shrink_factor(rounds))


def expected_gap(drawn: Sequence[sparse.csr_array], hold: int = 1) -> float:
    """The expected gap (in the mean square) of a graph drawn anew every `hold` rounds, computed from some draws.

    All members are alike in such a draw, so any disagreement shrinks by the same factor on average. So the factor is
    computed over all directions at once (for many nodes over a sample). A product of the draws would not work: by
    chance a few matchings average exactly, and then the product is zero.
    """
    nodes = _nodes(drawn)
    if nodes == 1:
        return 1.0
    squares = [2.0 * _log_shrink_factor(weights, hold) for weights in drawn]
    largest = max(squares)
    if largest == -math.inf:
        return 1.0
    mean = largest + math.log(math.fsum(math.exp(square - largest) for square in squares) / len(squares))
    return _gap(math.exp(mean / (2 * hold)))


def rounds_to_contract(gap: float, factor: float = 10.0) -> int:
    """Rounds of mixing until disagreement is at most 1/factor of what it was."""
    if not 0.0 < gap <= 1.0:
        raise TopologyError(f"spectral gap {gap!r}: it must be above 0 and at most 1; at 0, nothing contracts")
    if not factor > 1.0:
        raise TopologyError(f"factor {factor!r}: it must be above 1")
    if gap == 1.0:
        return 1
    # The 1e-9 is for rounding errors of the logarithms: a gap of 0.9 must give one round for a factor of ten.
    return max(1, math.ceil(math.log(factor) / -math.log1p(-gap) - 1e-9))


def _nodes(matrices: Sequence[sparse.csr_array]) -> int:
    """The number of nodes, after checking that these are mixing weights of the same nodes."""
    if not matrices:
        raise TopologyError("spectral gap: at least one matrix of mixing weights is needed")
    for weights in matrices:
        check_mixing(weights)
    if len({weights.shape for weights in matrices}) > 1:
        raise TopologyError("spectral gap: all rounds must have the same nodes")
    return int(matrices[0].shape[0])


def _gap(factor: float) -> float:
    return 1.0 if factor < NEGLIGIBLE else max(0.0, 1.0 - factor)


def _second_eigenvalue(weights: sparse.csr_array) -> float:
    """|lambda_2|: the largest absolute eigenvalue without the eigenvalue 1, which belongs to agreement."""
    nodes = weights.shape[0]
    if nodes <= DENSE_NODES:
        return float(np.abs(np.linalg.eigvalsh(weights.toarray() - 1.0 / nodes)).max())  # [N, N]
    disagreement = linalg.LinearOperator(weights.shape, matvec=lambda vector: _mixed(weights, vector), dtype=np.float64)
    try:
        values = linalg.eigsh(
            disagreement, k=1, which="LM", v0=_start(nodes), tol=1e-9, maxiter=100, return_eigenvectors=False
        )
    except linalg.ArpackNoConvergence:
        return _slow_eigenvalue(weights)
    return float(abs(values[0]))


def _slow_eigenvalue(weights: sparse.csr_array) -> float:
    """|lambda_2| of a graph that mixes very slowly (a long ring or line): many eigenvalues are close to 1.

    Shift-invert around a point just above 1 separates them. Such graphs have few edges, so the factors stay sparse.
    """
    near_one = linalg.eigsh(
        weights.tocsc(), k=2, sigma=1.0 + 1e-6, v0=_start(weights.shape[0]), return_eigenvectors=False
    )
    second = float(min(near_one))
    # By Gershgorin no eigenvalue is below this bound. Only if the bound is below -lambda_2 can a negative eigenvalue be
    # the largest in absolute value.
    if 2.0 * float(weights.diagonal().min()) - 1.0 >= -second:
        return second
    lowest = linalg.eigsh(weights, k=1, which="SA", v0=_start(weights.shape[0]), tol=1e-6, return_eigenvectors=False)
    return max(second, float(abs(lowest[0])))


def _shrink_factor(rounds: Sequence[sparse.csr_array]) -> float:
    """Second singular value of the product of the rounds, per round, by power iteration with product and transpose.

    The vector is scaled after every round: over many rounds the product itself becomes smaller than rounding errors.
    """
    vector = _start(rounds[0].shape[0])
    settled = 0.0
    for _ in range(PASSES):
        logarithm = 0.0
        for weights in rounds:
            vector, size = _scaled(_mixed(weights, vector))
            if size < NEGLIGIBLE:
                return 0.0
            logarithm += math.log(size)
        rate = math.exp(logarithm / len(rounds))
        if rate - settled <= SETTLED * rate:
            return rate
        settled = rate
        for weights in reversed(rounds):  # symmetric weights: the reverse order is the transpose
            vector, _size = _scaled(_mixed(weights, vector))
    return settled


def _log_shrink_factor(weights: sparse.csr_array, times: int) -> float:
    """Logarithm of the root mean square factor by which this many rounds of the same mixing reduce disagreement."""
    nodes = weights.shape[0]
    if nodes <= DENSE_NODES:
        values = np.abs(np.linalg.eigvalsh(weights.toarray() - 1.0 / nodes))  # [N]
        top = float(values.max())
        if top < NEGLIGIBLE:
            return -math.inf
        return times * math.log(top) + 0.5 * math.log(((values / top) ** (2 * times)).sum() / (nodes - 1))
    block = np.random.default_rng(0).standard_normal((nodes, DIRECTIONS))  # [N, S]
    block, _size = _scaled(block - block.mean(axis=0))
    logarithm = previous = 0.0
    for done in range(times):
        block, size = _scaled(_mixed(weights, block))
        if size < NEGLIGIBLE:
            return -math.inf
        if abs(size - previous) <= 1e-6 * size:  # only the slowest directions are left: all further rounds are the same
            return logarithm + (times - done) * math.log(size)
        logarithm += math.log(size)
        previous = size
    return logarithm


def _mixed(weights: sparse.csr_array, vector: Array) -> Array:
    """One round of mixing without the mean, so that only disagreement is left."""
    mixed: Array = weights @ vector
    mixed -= mixed.mean(axis=0)
    return mixed


def _scaled(vector: Array) -> tuple[Array, float]:
    size = float(np.linalg.norm(vector))
    return (vector / size if size > 0.0 else vector), size


def _start(nodes: int) -> Array:
    """A fixed vector with mean 0, so that a gap has the same digits each time it is computed."""
    vector = np.random.default_rng(0).standard_normal(nodes)
    return _scaled(vector - vector.mean())[0]
