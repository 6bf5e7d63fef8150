"""How long to wait for a neighbour: a policy as a pure function of the waits seen so far."""

import statistics
from collections import deque
from dataclasses import dataclass, field

# Until enough has been seen nothing is known of the peers' machines.
FIRST_TIMEOUT = 60.0
ENOUGH = 5
# A wait shorter than this proves nothing: a busy machine pauses for seconds.
LEAST_TIMEOUT = 10.0
# Median plus this many spreads, and never less than this many medians.
SPREADS = 10.0
MEDIANS = 4.0
# Waits that the policy remembers: old ones tell of another time of day.
REMEMBERED = 64


def automatic_timeout(waits: list[float]) -> float:
    """Seconds to wait, from the waits of complete rounds."""
    if len(waits) < ENOUGH:
        return FIRST_TIMEOUT
    median = statistics.median(waits)
    spread = statistics.median(abs(wait - median) for wait in waits)
    return max(LEAST_TIMEOUT, MEDIANS * median, median + SPREADS * spread)


@dataclass
class Deadlines:
    """The timeout of the next wait: fixed, or following what was seen. None: wait for ever (a simulation)."""

    fixed: float | None = None
    automatic: bool = False
    _waits: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def saw(self, seconds: float) -> None:
        """A wait that ended with everybody there."""
        self._waits.append(seconds)

    def timeout(self) -> float | None:
        return automatic_timeout(list(self._waits)) if self.automatic else self.fixed
