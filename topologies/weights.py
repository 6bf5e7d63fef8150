"""Metropolis-Hastings weights of one node: all that a running node needs of the mathematics of mixing."""

import math
from collections.abc import Sequence


def metropolis_row(degree: int, neighbour_degrees: Sequence[int]) -> tuple[float, list[float]]:
    """A node's weight for itself, and for each neighbour: 1 / (1 + the larger of the two degrees)."""
    weights = [1.0 / (1 + max(degree, other)) for other in neighbour_degrees]
    if max(neighbour_degrees, default=0) <= degree:
        # All its weights are 1 / (1 + degree). Said so, not subtracted, a full mesh gets exactly 1/N.
        return 1.0 / (1 + degree), weights
    return 1.0 - math.fsum(weights), weights
