"""Points by round in bounded memory: where there are too many, the older half is thinned to every other one."""

from bisect import bisect_left, bisect_right
from typing import Any

# More points than a curve has pixels are not seen.
MOST_POINTS = 512

Row = list[Any]


class Series:
    """Rows [round, ...] in order of round. Each has a serial number, by which what is new can be asked for."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        """`most`: at least 4."""
        self._most = most
        self._serials: list[int] = []
        self._rounds: list[int] = []
        self._rows: list[Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, serial: int, row: Row) -> None:
        """Add the row of a round. Rows of this and later rounds go: the node has resumed from an earlier one."""
        keep = bisect_left(self._rounds, row[0])
        for column in (self._serials, self._rounds, self._rows):
            del column[keep:]
        self._serials.append(serial)
        self._rounds.append(row[0])
        self._rows.append(row)
        if len(self._rows) > self._most:
            for column in (self._serials, self._rounds, self._rows):
                del column[1 : len(column) // 2 : 2]

    def since(self, serial: int) -> list[Row]:
        """The rows after this serial number; after 0, all of them."""
        return self._rows[bisect_right(self._serials, serial) :]
