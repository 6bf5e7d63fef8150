"""A ring through all members along edges of a graph: the same one for everybody who looks.

Whether there is one is hard to tell in general. So: what rules one out at a glance, the orders that the named shapes
have, then a search with a bound: paths that grow, and turn over where they are stuck. None: there is none, or it was
not found. Knows ranks and edges only.
"""

import random
from collections.abc import Iterator, Sequence

import networkx as nx

# The search: paths begun, turns that each may take for every member, and members moved by turns in all (seconds).
STARTS = 32
TURNS = 200
MOVES = 50_000_000

Near = Sequence[Sequence[int]]


def ring_through_all(neighbours: Near) -> list[int] | None:
    """Ranks in the order of the ring, from 0 towards the smaller of its two neighbours there."""
    count = len(neighbours)
    edges = [frozenset(near) for near in neighbours]
    if count <= 2:
        return list(range(count)) if all(len(near) == count - 1 for near in edges) else None
    if min(map(len, edges)) < 2 or not _holds_together(neighbours):
        return None
    for order in _usual_orders(count):
        if _is_ring(order, edges):
            return _normal(order)
    found = _search(edges)
    return None if found is None else _normal(found)


def _holds_together(neighbours: Near) -> bool:
    """Whether no single member parts the rest: a ring that loses one is still a path."""
    graph = nx.Graph((rank, other) for rank, near in enumerate(neighbours) for other in near)
    return len(graph) == len(neighbours) and nx.is_biconnected(graph)


def _is_ring(order: Sequence[int], edges: Sequence[frozenset[int]]) -> bool:
    return all(after in edges[rank] for rank, after in zip(order, [*order[1:], order[0]], strict=True))


def _normal(order: Sequence[int]) -> list[int]:
    place = order.index(0)
    turned = [*order[place:], *order[:place]]
    return turned if turned[1] < turned[-1] else [0, *turned[:0:-1]]


def _usual_orders(count: int) -> Iterator[list[int]]:
    """Of ring, mesh and exponential; of a hypercube; of a torus of any sides, along its rows or its columns."""
    yield list(range(count))
    if count.bit_count() == 1:
        yield [rank ^ rank >> 1 for rank in range(count)]  # Gray's code: one bit at a time
    for rows in range(2, count // 2 + 1):
        if count % rows == 0:
            columns = count // rows
            for row_by_row in (_winding(rows, columns), [(r, c) for c, r in _winding(columns, rows)]):
                if row_by_row:
                    yield [row * columns + column for row, column in row_by_row]


def _winding(rows: int, columns: int) -> list[tuple[int, int]]:
    """Row by row around a grid that wraps, each row once through; those to the right end one place to the left of
    where they began and the others one to the right, so they must even out. Empty where they cannot."""
    right = next((right for right in range(rows + 1) if (rows - 2 * right) % columns == 0), None)
    if right is None:
        return []
    places, column = [], 0
    for row in range(rows):
        step = 1 if row < right else -1
        places += [(row, (column + step * moved) % columns) for moved in range(columns)]
        column = places[-1][1]
    return places


def _search(edges: Sequence[frozenset[int]]) -> list[int] | None:
    """Posa's: a path grows at its end; where all neighbours of the end lie on it, the part behind one of them is
    turned over, which gives another end."""
    count = len(edges)
    near = [sorted(others) for others in edges]
    moves = 0
    for start in range(STARTS):
        draw = random.Random(f"ring/{start}")
        path = [draw.randrange(count)]
        place = {path[0]: 0}
        for _ in range(TURNS * count):
            end = path[-1]
            fresh = [rank for rank in near[end] if rank not in place]
            if fresh:
                # The one with the fewest ways on would be cut off first.
                chosen = min(fresh, key=lambda rank: (sum(other not in place for other in near[rank]), draw.random()))
                place[chosen] = len(path)
                path.append(chosen)
                continue
            if len(path) == count and path[0] in edges[end]:
                return path
            pivot = place[near[end][draw.randrange(len(near[end]))]]
            path[pivot + 1 :] = path[:pivot:-1]
            for moved in range(pivot + 1, len(path)):
                place[path[moved]] = moved
            moves += len(path) - pivot
            if moves > MOVES:
                return None
    return None
