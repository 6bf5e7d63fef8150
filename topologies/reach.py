"""Who is within so many hops of whom, and along which edges word of each member travels there.

Word of a member (the origin) goes down a tree of shortest paths: everyone within reach hears it once, from its
neighbour of the smallest rank among those nearer to the origin. Knows edges and ranks; nothing of names or messages.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ranks = NDArray[np.int64]

# Origins whose trees are grown at once: what is held on the way is bounded by this, whatever the number of members.
GROWN_AT_ONCE = 256


class Reach:
    """The trees of all origins of one graph, down to `hops` edges: an entry for each pair (origin, member)."""

    def __init__(self, neighbours: Sequence[Sequence[int]], hops: int) -> None:
        """`neighbours`: of each rank, ascending."""
        self.nodes = len(neighbours)
        self.hops = hops
        degrees = np.array([len(near) for near in neighbours], np.int64)  # [N]
        flat = np.fromiter((other for near in neighbours for other in near), np.int64, int(degrees.sum()))
        grown = [
            _grow(degrees, flat, np.arange(start, min(start + GROWN_AT_ONCE, self.nodes)), hops)
            for start in range(0, self.nodes, GROWN_AT_ONCE)
        ]
        origin, member, distance, parent = (np.concatenate(parts) for parts in zip(*grown, strict=True))
        order = np.lexsort((origin, member))
        # All [E], by member and then by origin; nobody's own entry is among them.
        self.origin: Ranks = origin[order]
        self.member: Ranks = member[order]
        self.distance: Ranks = distance[order]
        self.parent: Ranks = parent[order]  # whom the member hears the origin from

    @cached_property
    def sizes(self) -> Ranks:
        """How many others each member is within reach of [N]."""
        return np.bincount(self.member, minlength=self.nodes)

    @property
    def everyone(self) -> bool:
        """Whether all are within reach of all."""
        return len(self.member) == self.nodes * (self.nodes - 1)

    @property
    def furthest(self) -> int:
        """The longest way that word travels; the diameter, where the hops suffice for it."""
        return int(self.distance.max(initial=0))

    def of(self, rank: int) -> dict[int, int]:
        """The origins that a member hears, ascending, and how far they are."""
        own = self._of(rank)
        return dict(zip(self.origin[own].tolist(), self.distance[own].tolist(), strict=True))

    def children(self, rank: int) -> dict[int, list[int]]:
        """To whom a member passes on the word of each origin; its own goes to its neighbours."""
        order, parents = self._by_parent
        found: dict[int, list[int]] = {}
        for entry in order[slice(*np.searchsorted(parents, [rank, rank + 1]))].tolist():
            found.setdefault(int(self.origin[entry]), []).append(int(self.member[entry]))
        return found

    def distance_between(self, origin: int, rank: int) -> int | None:
        """Edges from one to the other; None where it is out of reach."""
        if origin == rank:
            return 0
        own = self._of(rank)
        place = own.start + int(np.searchsorted(self.origin[own], origin))
        return int(self.distance[place]) if place < own.stop and self.origin[place] == origin else None

    def _of(self, rank: int) -> slice:
        return slice(int(self._starts[rank]), int(self._starts[rank + 1]))

    @cached_property
    def _starts(self) -> Ranks:
        return np.searchsorted(self.member, np.arange(self.nodes + 1))

    @cached_property
    def _by_parent(self) -> tuple[Ranks, Ranks]:
        order = np.argsort(self.parent, kind="stable")
        return order, self.parent[order]


def _grow(degrees: Ranks, flat: Ranks, origins: Ranks, hops: int) -> tuple[Ranks, Ranks, Ranks, Ranks]:
    """Origin, member, distance and parent of every entry of these origins' trees, level by level.

    A pair is one number, origin times N plus member. The neighbours of a level lie in it, the one before or the next.
    """
    nodes = len(degrees)
    starts = np.concatenate([[0], np.cumsum(degrees)])
    before, level = np.empty(0, np.int64), origins * nodes + origins
    pairs, distances, parents = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for distance in range(1, hops + 1):
        member = level % nodes
        count = degrees[member]
        source = np.repeat(np.arange(len(level)), count)
        within = np.arange(len(source)) - np.repeat(np.cumsum(count) - count, count)
        seen = (level - member)[source] + flat[starts[member][source] + within]
        # Sources ascend, so the first to see a pair is its parent: the neighbour of the smallest rank.
        found, first = np.unique(seen, return_index=True)
        new = ~(_among(found, level) | _among(found, before))
        before, level = level, found[new]
        if not len(level):
            break
        pairs.append(level)
        distances.append(np.full(len(level), distance))
        parents.append(member[source[first[new]]])
    entries = np.concatenate(pairs)
    return entries // nodes, entries % nodes, np.concatenate(distances), np.concatenate(parents)


def _among(values: Ranks, ascending: Ranks) -> NDArray[np.bool_]:
    """Which of the values are in an ascending row."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: NDArray[np.bool_] = ascending[place] == values
    return found
