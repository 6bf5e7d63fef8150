"""Finds a ring through all members along the edges of a graph (a Hamiltonian cycle). Every node finds the same one.

In general this problem is hard. So three things are tried: quick checks that show that there is none, the orders that
are known for the named graphs, and a search with a limit. None means that there is no ring or that none was found.
This module knows ranks and edges only.
"""

import random
from collections.abc import Iterator, Sequence

import networkx as nx

# Limits of the search: paths that are started, steps of each path for every member, and members moved in total.
STARTS = 32
STEPS = 200
MOVES = 50_000_000

Neighbours = Sequence[Sequence[int]]


def ring_through_all(neighbours: Neighbours) -> list[int] | None:
    """Ranks in the order of the ring. It starts with 0, and then comes the smaller of its two neighbours."""
    count = len(neighbours)
    edges = [frozenset(near) for near in neighbours]
    if count <= 2:
        return list(range(count)) if all(len(near) == count - 1 for near in edges) else None
    if min(map(len, edges)) < 2 or not _is_biconnected(neighbours):
        return None
    for order in _known_orders(count):
        if _is_ring(order, edges):
            return _canonical(order)
    found = _search(edges)
    return None if found is None else _canonical(found)


def _is_biconnected(neighbours: Neighbours) -> bool:
    """Whether the graph stays connected without any one member. A graph with such a ring does."""
    graph = nx.Graph((rank, other) for rank, near in enumerate(neighbours) for other in near)
    return len(graph) == len(neighbours) and nx.is_biconnected(graph)


def _is_ring(order: Sequence[int], edges: Sequence[frozenset[int]]) -> bool:
    return all(after in edges[rank] for rank, after in zip(order, [*order[1:], order[0]], strict=True))


def _canonical(order: Sequence[int]) -> list[int]:
    place = order.index(0)
    turned = [*order[place:], *order[:place]]
    return turned if turned[1] < turned[-1] else [0, *turned[:0:-1]]


def _known_orders(count: int) -> Iterator[list[int]]:
    """Rings of known graphs: ring, mesh and exponential; hypercube; torus of any size, along its rows or columns."""
    yield list(range(count))
    if count.bit_count() == 1:
        yield [rank ^ rank >> 1 for rank in range(count)]  # the Gray code: neighbours differ in one bit
    for rows in range(2, count // 2 + 1):
        if count % rows == 0:
            columns = count // rows
            for row_by_row in (_torus_ring(rows, columns), [(r, c) for c, r in _torus_ring(columns, rows)]):
                if row_by_row:
                    yield [row * columns + column for row, column in row_by_row]


def _torus_ring(rows: int, columns: int) -> list[tuple[int, int]]:
    """A ring around a torus, row by row. In each row it visits all columns, either to the right or to the left. A row
    to the right ends one column left of its start, a row to the left one column right. The ring closes only if these
    shifts add up to a multiple of the columns. Empty if they cannot."""
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
    """Posa's search. A path is extended at its end. If all neighbours of the end are on the path, choose one of them
    and reverse the part after it: this gives the path another end."""
    count = len(edges)
    near = [sorted(others) for others in edges]
    moves = 0
    for start in range(STARTS):
        draw = random.Random(f"ring/{start}")
        path = [draw.randrange(count)]
        place = {path[0]: 0}
        for _ in range(STEPS * count):
            end = path[-1]
            fresh = [rank for rank in near[end] if rank not in place]
            if fresh:
                # The neighbour with the fewest free neighbours first: it would be cut off soonest.
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
