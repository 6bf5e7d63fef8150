"""How long to wait for a neighbour: a pure function of earlier waits."""

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

# The timeout until there have been enough waits to estimate one.
FIRST_TIMEOUT = 60.0
ENOUGH = 5
# The timeout is never shorter than this: a busy machine can pause for seconds.
LEAST_TIMEOUT = 10.0
# The timeout is the median plus this many spreads, and at least this many medians.
SPREADS = 10.0
MEDIANS = 4.0
# No wait is longer than this if the timeout is automatic and the operator has not set a limit. Otherwise a peer that
# sends everything just before the deadline would make the next one longer without end.
LONGEST_WAIT = 600.0
# How many waits are remembered. Older ones say little about the network now.
REMEMBERED = 64


def automatic_timeout(waits: list[float]) -> float:
    """Seconds to wait, computed from how long most peers took in the last rounds."""
    if len(waits) < ENOUGH:
        return FIRST_TIMEOUT
    median = statistics.median(waits)
    spread = statistics.median(abs(wait - median) for wait in waits)
    return max(LEAST_TIMEOUT, MEDIANS * median, median + SPREADS * spread)


@dataclass
class Deadlines:
    """The timeout of the next wait: fixed, or automatic from earlier waits. None: no timeout (in a simulation).

    `longest`: seconds that no timeout, and no wait, may exceed. `bounds_slow`: whether a peer that is much slower than
    most, but in time, is awaited for a part of the time only.
    """

    fixed: float | None = None
    automatic: bool = False
    longest: float = math.inf
    bounds_slow: bool = True
    _waits: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def observe(self, seconds: float) -> None:
        """How long it took until the messages of half the peers were there: what most need, not the slowest."""
        self._waits.append(seconds)

    def timeout(self) -> float | None:
        timeout = automatic_timeout(list(self._waits)) if self.automatic else self.fixed
        return None if timeout is None else min(timeout, self.longest)
