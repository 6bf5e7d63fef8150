"""The edges of each graph, as pairs of ranks 0 to N-1, with N at least 2. Names and options are in graphs.py.

Random graphs use a generator that is seeded by a text with its purpose. So every machine draws the same edges, and no
draw depends on another or on their order.
"""

import random
from collections.abc import Callable, Iterable
from itertools import combinations, pairwise
from math import isqrt, log

import networkx as nx

from p2p_tally.topologies.errors import TopologyError
from p2p_tally.topologies.topology import Edge

# How many times a random graph is drawn until it is connected. Most are connected at the first draw.
ATTEMPTS = 200
REWIRED = 0.1  # small world: the share of edges that become shortcuts


def mesh(count: int) -> Iterable[Edge]:
    return combinations(range(count), 2)


def ring(count: int) -> Iterable[Edge]:
    return ((rank, (rank + 1) % count) for rank in range(count))


def line(count: int) -> Iterable[Edge]:
    return pairwise(range(count))


def star(count: int) -> Iterable[Edge]:
    return ((0, rank) for rank in range(1, count))


def barbell(count: int) -> Iterable[Edge]:
    half = count // 2
    yield from combinations(range(half), 2)
    yield from pairwise(range(half - 1, count - half + 1))  # the bar: through the middle node if N is odd
    yield from combinations(range(count - half, count), 2)


def torus(count: int) -> Iterable[Edge]:
    """The most square grid of N places, with wrapped sides. On a side of 2 the two edges are the same one, so degrees
    are below 4."""
    rows = next(rows for rows in range(isqrt(count), 0, -1) if count % rows == 0)
    if rows == 1:
        raise TopologyError(
            f"torus of {count}: the number of members must be a product of two sides of 2 or more, "
            f"such as {max(4, count - 1)} or {max(6, count + 1)}"
        )
    columns = count // rows
    for rank in range(count):
        row, column = divmod(rank, columns)
        yield rank, row * columns + (column + 1) % columns
        yield rank, (row + 1) % rows * columns + column


def hypercube(count: int) -> Iterable[Edge]:
    """N must be a power of two."""
    return (edge for dimension in range(count.bit_length() - 1) for edge in across(count, dimension))


def across(count: int, dimension: int) -> Iterable[Edge]:
    """Pairs of ranks that differ in one bit only, the bit `dimension`: a perfect matching."""
    return ((rank, rank ^ (1 << dimension)) for rank in range(count) if not rank >> dimension & 1)


def exponential(count: int) -> Iterable[Edge]:
    hops = [1 << power for power in range((count - 1).bit_length())]
    return ((rank, (rank + hop) % count) for rank in range(count) for hop in hops)


def small_world(count: int, degree: int, seed: int) -> Iterable[Edge]:
    """Connected Watts-Strogatz; the degree is even."""
    return _connected(
        lambda attempt: nx.watts_strogatz_graph(count, degree, REWIRED, seed=_generator(seed, "small-world", attempt))
    )


def erdos_renyi(count: int, seed: int) -> Iterable[Edge]:
    chance = 2 * log(count) / count  # twice the threshold of connectedness
    return _connected(
        lambda attempt: nx.fast_gnp_random_graph(count, chance, seed=_generator(seed, "erdos-renyi", attempt))
    )


def regular(count: int, degree: int, seed: int, epoch: int = 0) -> Iterable[Edge]:
    """A connected random regular graph; N times the degree is even. Each epoch draws another."""
    if degree == 2:
        # A connected 2-regular graph is one cycle, so draw a cycle: most random 2-regular graphs are several cycles.
        cycle = list(range(count))
        _generator(seed, "regular", epoch, 0).shuffle(cycle)
        return pairwise([*cycle, cycle[0]])
    # For a high degree it is easier to draw the edges that are left out: pairing free ends at random would get stuck.
    inverted = 2 * degree >= count
    drawn = count - 1 - degree if inverted else degree

    def draw(attempt: int) -> nx.Graph:
        graph = nx.random_regular_graph(drawn, count, seed=_generator(seed, "regular", epoch, attempt))
        return nx.complement(graph) if inverted else graph

    return _connected(draw)


def matching(count: int, seed: int, epoch: int) -> Iterable[Edge]:
    """As many random pairs as possible."""
    ranks = list(range(count))
    _generator(seed, "matching", epoch).shuffle(ranks)
    return zip(ranks[::2], ranks[1::2], strict=False)  # with an odd number one member has no partner


def _connected(draw: Callable[[int], nx.Graph]) -> list[Edge]:
    for attempt in range(ATTEMPTS):
        graph = draw(attempt)
        if nx.is_connected(graph):
            return list(graph.edges())
    raise TopologyError(f"no connected graph found in {ATTEMPTS} draws; another seed or a higher degree may do")


def _generator(*purpose: str | int) -> random.Random:
    # random.Random hashes a text seed with SHA-512, so it is the same on every machine and for every hash seed.
    return random.Random("/".join(map(str, purpose)))
