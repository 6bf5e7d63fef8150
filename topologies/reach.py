"""Who is within a number of hops of whom, and over which edges the message of each member is passed on.

The message of a member (the origin) is sent down a tree of shortest paths. Each member within reach gets it once: from
the neighbour with the smallest rank among those that are nearer to the origin. This module knows edges and ranks only.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ranks = NDArray[np.int64]

# How many trees are computed at once: this limits the memory, for any number of members.
TREES_AT_ONCE = 256


class Reach:
    """The trees of all origins in one graph, up to a depth of `hops`: an entry for each pair (origin, member)."""

    def __init__(self, neighbours: Sequence[Sequence[int]], hops: int, present: int | None = None) -> None:
        """`neighbours`: for each rank the ranks of its neighbours, ascending. `present`: how many take part, if not
        all do."""
        self.nodes = len(neighbours)
        self._present = self.nodes if present is None else present
        self.hops = hops
        degrees = np.array([len(near) for near in neighbours], np.int64)  # [N]
        flat = np.fromiter((other for near in neighbours for other in near), np.int64, int(degrees.sum()))
        grown = [
            _grow(degrees, flat, np.arange(start, min(start + TREES_AT_ONCE, self.nodes)), hops)
            for start in range(0, self.nodes, TREES_AT_ONCE)
        ]
        origin, member, distance, parent = (np.concatenate(parts) for parts in zip(*grown, strict=True))
        order = np.lexsort((origin, member))
        # All [E], sorted by member and then by origin. There is no entry with origin equal to member.
        self.origin: Ranks = origin[order]
        self.member: Ranks = member[order]
        self.distance: Ranks = distance[order]
        self.parent: Ranks = parent[order]  # from whom the member gets the origin's message

    @cached_property
    def sizes(self) -> Ranks:
        """For each member the number of origins within reach [N]."""
        return np.bincount(self.member, minlength=self.nodes)

    @property
    def everyone(self) -> bool:
        """Whether all who take part are within reach of each other."""
        return len(self.member) == self._present * (self._present - 1)

    @property
    def furthest(self) -> int:
        """The largest distance in the trees; the diameter, if the hops are enough for it."""
        return int(self.distance.max(initial=0))

    def of(self, rank: int) -> dict[int, int]:
        """The origins within reach of a member, ascending, with their distances."""
        own = self._of(rank)
        return dict(zip(self.origin[own].tolist(), self.distance[own].tolist(), strict=True))

    def children(self, rank: int) -> dict[int, list[int]]:
        """For each origin, the members to which this member passes its message on."""
        order, parents = self._by_parent
        found: dict[int, list[int]] = {}
        for entry in order[slice(*np.searchsorted(parents, [rank, rank + 1]))].tolist():
            found.setdefault(int(self.origin[entry]), []).append(int(self.member[entry]))
        return found

    def distance_between(self, origin: int, rank: int) -> int | None:
        """The number of edges between the two; None if it is more than `hops`."""
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
    """Origin, member, distance and parent of every entry in the trees of these origins, computed level by level.

    A pair is one number: origin times N plus member. Neighbours of a level are in the level before, in the same, or in
    the next.
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
        # Sources are ascending, so the first one that has a pair as neighbour has the smallest rank: it is the parent.
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
    """Which of the values are in an ascending array."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: NDArray[np.bool_] = ascending[place] == values
    return found
