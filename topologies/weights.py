"""Metropolis-Hastings weights, row by row. A running node needs no more than this for mixing."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# A sparse weight matrix: rows, columns and values of its entries.
MixingEntries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def metropolis_row(degree: int, neighbour_degrees: Sequence[int]) -> tuple[float, list[float]]:
    """A node's weight for itself, and for each neighbour: 1 / (1 + the larger of the two degrees)."""
    weights = [1.0 / (1 + max(degree, other)) for other in neighbour_degrees]
    if max(neighbour_degrees, default=0) <= degree:
        # All weights are 1 / (1 + degree). Computed directly and not by subtraction, a full mesh gets exactly 1/N.
        return 1.0 / (1 + degree), weights
    return 1.0 - math.fsum(weights), weights


def mixing_entries(neighbours: Sequence[Sequence[int]]) -> MixingEntries:
    """The weight matrix of a graph, from each rank's neighbours."""
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for rank, near in enumerate(neighbours):
        own, others = metropolis_row(len(near), [len(neighbours[other]) for other in near])
        rows += [rank] * (1 + len(near))
        columns += [rank, *near]
        values += [own, *others]
    return np.array(rows), np.array(columns), np.array(values)


def mixed_row(rank: int, entries: MixingEntries, times: int) -> NDArray[np.float64]:
    """A row [N] of the weight matrix to the power of `times`: weights after that many rounds of mixing."""
    rows, columns, values = entries
    nodes = int(rows.max()) + 1
    row: NDArray[np.float64] = (np.arange(nodes) == rank).astype(np.float64)
    for _ in range(times):
        row = np.bincount(columns, row[rows] * values, nodes).astype(np.float64)
    return row
