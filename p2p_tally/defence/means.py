"""Means that a few liars cannot move far: plain functions of vectors.

Each takes the vectors [n] of N members in order of name, all finite, and gives one vector [n] in float32. They do not
know where the vectors come from. A vector is worked on in blocks that fit a processor's cache, so a mean needs little
memory beside its result.
"""

from collections.abc import Iterator, Sequence

import numpy as np

# Values of one member that are worked on at once.
BLOCK = 1 << 13
# Of all members, where values are compared: larger blocks, because then calls take more time than memory.
COMPARED = 1 << 18
# With more values to cut off on either side, sorting a column is faster than moving the extremes out one by one.
MOST_PASSES = 6


def trimmed_mean(vectors: Sequence[np.ndarray], liars: int) -> np.ndarray:
    """By coordinate: the mean without the `liars` smallest and the `liars` largest values.

    With too few members for that, as many are cut off as leave one value or two."""
    cut = min(liars, (len(vectors) - 1) // 2)
    result = np.empty(len(vectors[0]), np.float32)
    size = max(BLOCK, COMPARED // len(vectors))
    spare = np.empty((len(vectors) + 1, min(size, len(result))), np.float32)
    for block in _blocks(len(result), size):
        rows = [vector[block] for vector in vectors]
        _mean(_without_extremes(rows, cut, spare[:, : len(rows[0])]), result[block])
    return result


def median(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """By coordinate: the middle value, or the mean of the two middle ones."""
    return trimmed_mean(vectors, len(vectors))


def clipped_mean(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """The mean around the median, after no vector is further from it than half of the members are.

    The radius is the (lower) median of the members' distances: it follows their scale, and no minority sets it."""
    centre = median(vectors)
    factors = _factors([_distance(vector, centre) for vector in vectors])
    return _pulled(centre, vectors, [factor / len(vectors) for factor in factors])


def nearest_mixed_mean(vectors: Sequence[np.ndarray], liars: int) -> np.ndarray:
    """Each vector is replaced by the mean of the N - `liars` vectors nearest to it, itself included; of these, the
    trimmed mean. Of members that are equally near the first counts."""
    count = len(vectors)
    cut = min(liars, (count - 1) // 2)
    near = np.argsort(squared_distances(vectors), axis=1, kind="stable")[:, : count - cut]  # [N, N - cut]
    mixed = [_mean([vectors[place] for place in chosen]) for chosen in np.sort(near, axis=1)]
    return trimmed_mean(mixed, cut)


def clipped_gossip(
    own: np.ndarray, sent: np.ndarray, others: Sequence[np.ndarray], weights: Sequence[float]
) -> np.ndarray:
    """This node's parameters, moved towards each neighbour's by its weight, but by none further than the nearer half.

    `sent`: this node's parameters as the neighbours got them, which may be rounded. The radius is the (lower) median of
    the neighbours' distances. With one neighbour that is its own distance: there is nobody to compare it with."""
    if not others:
        return own.copy()
    factors = _factors([_distance(other, sent) for other in others])
    return _pulled(own, others, [factor * weight for factor, weight in zip(factors, weights, strict=True)], sent)


def nearer_half(own: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Each of the others, drawn towards this node's own values until it is no further from them than the nearer half.

    `own`: for each of the others, the values beside which it stands; they may send different parts of a vector."""
    if not others:
        return []
    factors = _factors([_distance(other, near) for other, near in zip(others, own, strict=True)])
    return [
        other if factor == 1.0 else _pulled(near, [other], [factor])
        for other, near, factor in zip(others, own, factors, strict=True)
    ]


def squared_distances(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Between all pairs [N, N]. Differences from the first vector are multiplied, because models are alike: products of
    whole models would cancel out to noise."""
    products = np.zeros((len(vectors), len(vectors)))
    for block in _blocks(len(vectors[0])):
        rows = np.stack([vector[block] for vector in vectors]).astype(np.float64)
        rows -= rows[0].copy()
        products += rows @ rows.T
    own = products.diagonal()
    distances: np.ndarray = np.maximum(own[:, None] + own - 2 * products, 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def _mean(vectors: Sequence[np.ndarray], out: np.ndarray | None = None) -> np.ndarray:
    total = np.empty(len(vectors[0]), np.float32) if out is None else out
    total.fill(0)
    for vector in vectors:
        total += vector
    total /= np.float32(len(vectors))
    return total


def _factors(distances: Sequence[float]) -> list[float]:
    radius = sorted(distances)[(len(distances) - 1) // 2]
    return [1.0 if distance <= radius else radius / distance for distance in distances]


def _pulled(
    start: np.ndarray, towards: Sequence[np.ndarray], shares: Sequence[float], origin: np.ndarray | None = None
) -> np.ndarray:
    """`start` moved by these shares of the ways from `origin` (by default `start`) to each vector."""
    result = start.astype(np.float32)
    origin = start if origin is None else origin
    for block in _blocks(len(result)):
        for vector, share in zip(towards, shares, strict=True):
            way = vector[block] - origin[block]
            way *= np.float32(share)
            result[block] += way
    return result


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    squared = 0.0
    for block in _blocks(len(one)):
        way = one[block].astype(np.float64)
        way -= other[block]
        squared += float(way @ way)
    return float(np.sqrt(squared))


def _without_extremes(rows: list[np.ndarray], cut: int, spare: np.ndarray) -> list[np.ndarray]:
    """Rows [N - 2 `cut`, n]: each column without its `cut` smallest and its `cut` largest values. `spare` [N + 1, n]:
    memory for them."""
    if cut > MOST_PASSES:
        return list(np.sort(np.stack(rows), axis=0))[cut : len(rows) - cut]
    extreme, own = spare[0], list(spare[1:])
    for _ in range(cut):
        last = len(rows) - 1
        # The smallest of each column goes to the first row, which is left out.
        np.minimum(rows[last - 1], rows[last], out=extreme)
        np.maximum(rows[last - 1], rows[last], out=own[last])
        for place in range(last - 1, 0, -1):
            np.maximum(rows[place - 1], extreme, out=own[place])
            np.minimum(rows[place - 1], extreme, out=extreme)
        # The largest of the rest goes to the last row, which is left out too.
        np.maximum(own[1], own[2], out=extreme)
        np.minimum(own[1], own[2], out=own[1])
        for place in range(2, last):
            np.minimum(extreme, own[place + 1], out=own[place])
            np.maximum(extreme, own[place + 1], out=extreme)
        rows = own = own[1:last]
    return rows


def _blocks(length: int, size: int = BLOCK) -> Iterator[slice]:
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))
