"""Metropolis-Hastings mixing weights of a graph, and how fast they wipe out disagreement.

Knows graphs and matrices only: nothing of names, seeds or how a graph came to be.
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

# Up to here a dense eigensolver takes well under a second; past it, memory and time grow too fast.
DENSE_NODES = 600
# One round that shrinks disagreement below this has removed all of it; what is left is rounding.
NOTHING = 1e-12
# Power iteration over several rounds: relative change of the rate at which it has settled, and its bound.
SETTLED = 1e-9
PASSES = 300
# Directions of disagreement that stand for all in an expected gap, where nodes are too many for the dense.
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
    """TopologyError unless the matrix is square, non-negative, symmetric and its rows sum to 1."""
    rows, columns = weights.shape
    if rows != columns or rows == 0:
        raise TopologyError(f"mixing weights of shape {rows} x {columns}: they must be square, a row per node")
    if not np.isfinite(weights.data).all() or (weights.data < 0).any():
        raise TopologyError("mixing weights must be finite and not negative")
    if abs(weights - weights.T).max() > NOTHING:
        raise TopologyError("mixing weights must be symmetric")
    worst = float(np.abs(weights.sum(axis=1) - 1.0).max())
    if worst > 1e-9:
        raise TopologyError(f"each row of mixing weights must sum to 1, and one is off by {worst:.3g}")


def spectral_gap(*rounds: sparse.csr_array) -> float:
    """1 - (the factor by which one round shrinks disagreement at worst), between 0 and 1.

    One matrix: 1 - |lambda_2|. Several, those of consecutive rounds: by the second singular value of their
    product, taken per round as a geometric mean.
    """
    if _nodes(rounds) == 1:
        return 1.0
    return _gap(_second_eigenvalue(rounds[0]) if len(rounds) == 1 else _shrinking(rounds))


def expected_gap(drawn: Sequence[sparse.csr_array], hold: int = 1) -> float:
    """The gap of a graph redrawn at random every `hold` rounds, from some of its draws: in the mean square.

    No member is special in such a draw, so disagreement of any kind shrinks by the same factor on average and
    that factor is had from all directions at once (from a sample of them where nodes are many). A product of
    the draws would not do: by luck a few matchings average exactly, and it is zero ever after.
    """
    nodes = _nodes(drawn)
    if nodes == 1:
        return 1.0
    squares = [2.0 * _log_shrinking(weights, hold) for weights in drawn]
    largest = max(squares)
    if largest == -math.inf:
        return 1.0
    mean = largest + math.log(math.fsum(math.exp(square - largest) for square in squares) / len(squares))
    return _gap(math.exp(mean / (2 * hold)))


def rounds_to_contract(gap: float, factor: float = 10.0) -> int:
    """Rounds of mixing after which disagreement is at most 1/factor of what it was."""
    if not 0.0 < gap <= 1.0:
        raise TopologyError(f"spectral gap {gap!r}: it must be above 0 and at most 1; at 0, nothing contracts")
    if not factor > 1.0:
        raise TopologyError(f"factor {factor!r}: it must be above 1")
    if gap == 1.0:
        return 1
    # The allowance keeps a gap of 0.9 at one round for tenfold, although the logarithms round upwards.
    return max(1, math.ceil(math.log(factor) / -math.log1p(-gap) - 1e-9))


def _nodes(matrices: Sequence[sparse.csr_array]) -> int:
    """The number of nodes, once it is sure that these are mixing weights of the same ones."""
    if not matrices:
        raise TopologyError("spectral gap: at least one matrix of mixing weights is needed")
    for weights in matrices:
        check_mixing(weights)
    if len({weights.shape for weights in matrices}) > 1:
        raise TopologyError("spectral gap: all rounds must have the same nodes")
    return int(matrices[0].shape[0])


def _gap(factor: float) -> float:
    return 1.0 if factor < NOTHING else max(0.0, 1.0 - factor)


def _second_eigenvalue(weights: sparse.csr_array) -> float:
    """|lambda_2|: the largest magnitude left once agreement, the eigenvalue 1, is taken out."""
    nodes = weights.shape[0]
    if nodes <= DENSE_NODES:
        return float(np.abs(np.linalg.eigvalsh(weights.toarray() - 1.0 / nodes)).max())  # [N, N]
    disagreement = linalg.LinearOperator(weights.shape, matvec=lambda vector: _mixed(weights, vector), dtype=np.float64)
    try:
        values = linalg.eigsh(
            disagreement, k=1, which="LM", v0=_start(nodes), tol=1e-9, maxiter=100, return_eigenvectors=False
        )
    except linalg.ArpackNoConvergence:
        return _crowded_eigenvalue(weights)
    return float(abs(values[0]))


def _crowded_eigenvalue(weights: sparse.csr_array) -> float:
    """|lambda_2| of a graph that mixes so slowly (a long ring or line) that eigenvalues crowd below 1.

    Inverting around a point just above 1 pulls them apart. Such graphs are thin, so the factors stay sparse.
    """
    near_one = linalg.eigsh(
        weights.tocsc(), k=2, sigma=1.0 + 1e-6, v0=_start(weights.shape[0]), return_eigenvectors=False
    )
    second = float(min(near_one))
    # No eigenvalue lies below this (Gershgorin): only if it is past -lambda_2 could the far end matter.
    if 2.0 * float(weights.diagonal().min()) - 1.0 >= -second:
        return second
    lowest = linalg.eigsh(weights, k=1, which="SA", v0=_start(weights.shape[0]), tol=1e-6, return_eigenvectors=False)
    return max(second, float(abs(lowest[0])))


def _shrinking(rounds: Sequence[sparse.csr_array]) -> float:
    """Second singular value of the rounds' product, per round, by power iteration there and back again.

    The vector is scaled after every round: over many rounds the product itself sinks below rounding error.
    """
    vector = _start(rounds[0].shape[0])
    settled = 0.0
    for _ in range(PASSES):
        logarithm = 0.0
        for weights in rounds:
            vector, size = _scaled(_mixed(weights, vector))
            if size < NOTHING:
                return 0.0
            logarithm += math.log(size)
        rate = math.exp(logarithm / len(rounds))
        if rate - settled <= SETTLED * rate:
            return rate
        settled = rate
        for weights in reversed(rounds):  # symmetric weights: the reverse order is the transpose
            vector, _size = _scaled(_mixed(weights, vector))
    return settled


def _log_shrinking(weights: sparse.csr_array, times: int) -> float:
    """Logarithm of the root mean square shrinking of disagreement by so many rounds of the same mixing."""
    nodes = weights.shape[0]
    if nodes <= DENSE_NODES:
        values = np.abs(np.linalg.eigvalsh(weights.toarray() - 1.0 / nodes))  # [N]
        top = float(values.max())
        if top < NOTHING:
            return -math.inf
        return times * math.log(top) + 0.5 * math.log(((values / top) ** (2 * times)).sum() / (nodes - 1))
    block = np.random.default_rng(0).standard_normal((nodes, DIRECTIONS))  # [N, S]
    block, _size = _scaled(block - block.mean(axis=0))
    logarithm = previous = 0.0
    for done in range(times):
        block, size = _scaled(_mixed(weights, block))
        if size < NOTHING:
            return -math.inf
        if abs(size - previous) <= 1e-6 * size:  # only the slowest directions are left: the rest is the same
            return logarithm + (times - done) * math.log(size)
        logarithm += math.log(size)
        previous = size
    return logarithm


def _mixed(weights: sparse.csr_array, vector: Array) -> Array:
    """One round of mixing, seen in disagreement alone: the mean is taken out."""
    mixed: Array = weights @ vector
    mixed -= mixed.mean(axis=0)
    return mixed


def _scaled(vector: Array) -> tuple[Array, float]:
    size = float(np.linalg.norm(vector))
    return (vector / size if size > 0.0 else vector), size


def _start(nodes: int) -> Array:
    """A fixed vector of pure disagreement, so that a gap has the same digits each time it is asked for."""
    vector = np.random.default_rng(0).standard_normal(nodes)
    return _scaled(vector - vector.mean())[0]
