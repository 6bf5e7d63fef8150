"""Points by round in bounded memory: where there are too many, one of each two neighbouring ones goes.

So the points that are left are about equally far apart, however long the run is, and its beginning is not lost.
"""

from bisect import bisect_left, bisect_right
from typing import Any

# More points than a curve has pixels are not seen.
MOST_POINTS = 512

Row = list[Any]


class Series:
    """Rows [round, ...] in order of round. Each has a serial number, by which what is new can be asked for.

    Of each `stride` rounds the last row is kept: the newest row is always there.
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        """`most`: at least 2."""
        self._most = most
        self._stride = 1
        self._kept: list[tuple[int, Row]] = []  # serial number, row

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, serial: int, row: Row) -> None:
        """Add the row of a round. Rows of this and later rounds go: the node has resumed from an earlier one."""
        first = row[0] - row[0] % self._stride
        del self._kept[bisect_left(self._kept, first, key=_round) :]
        self._kept.append((serial, row))
        while len(self._kept) > self._most:
            self._stride *= 2
            last_of_each = {_round(kept) // self._stride: kept for kept in self._kept}
            self._kept = list(last_of_each.values())

    def since(self, serial: int) -> list[Row]:
        """The rows after this serial number; after 0, all of them."""
        return [row for _, row in self._kept[bisect_right(self._kept, serial, key=_serial) :]]


def _serial(kept: tuple[int, Row]) -> int:
    return kept[0]


def _round(kept: tuple[int, Row]) -> int:
    round: int = kept[1][0]
    return round
