"""Which peers were much later than most in one wait, and by how much. Pure: the caller passes in the time.

What most need is the longer of two times: until half of the peers had come, and this node's own work since its last
wait. A peer may take several times as long at no cost: machines and links differ.
"""

import math
import statistics
from collections import deque
from collections.abc import Collection, Iterable

from p2p_tally.ids import NodeName

# A peer may be so many times slower than most.
SLOWER = 4.0
# Of how many rounds this node's own work is remembered. The median counts: a round with an evaluation takes longer.
REMEMBERED = 15


class Lateness:
    """The waits of one node, one at a time."""

    def __init__(self) -> None:
        self._round = 0
        self._started = 0.0
        self._ended: float | None = None  # the last wait
        self._awaited = 0
        self._came: dict[NodeName, float] = {}  # seconds after the beginning
        self._work: deque[float] = deque(maxlen=REMEMBERED)

    def begin(self, round: int, now: float, awaited: Collection[NodeName], missing: Iterable[NodeName]) -> None:
        """A wait for these peers begins; `missing`: those whose messages have not come early."""
        if self._ended is not None and round > self._round:
            self._work.append(now - self._ended)
        self._round, self._started, self._awaited = round, now, len(awaited)
        self._came = dict.fromkeys(set(awaited).difference(missing), 0.0)

    def came(self, peer: NodeName, now: float) -> None:
        self._came.setdefault(peer, now - self._started)

    def end(self, now: float) -> None:
        self._ended = now

    @property
    def usual(self) -> float | None:
        """Seconds until half of those awaited had come; None if fewer came."""
        half = math.ceil(self._awaited / 2)
        return sorted(self._came.values())[half - 1] if 0 < half <= len(self._came) else None

    def excesses(self) -> dict[NodeName, float]:
        """For each peer that was much slower than most: by how many seconds. One peer alone is like most."""
        usual = self.usual
        if self._awaited < 2 or usual is None or not self._work:
            return {}
        allowed = SLOWER * max(usual, statistics.median(self._work))
        return {peer: seconds - allowed for peer, seconds in self._came.items() if seconds > allowed}
