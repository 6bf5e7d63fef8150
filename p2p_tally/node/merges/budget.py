"""How long one merge waits for others in all. Without it a liar could use up a deadline at each of its many waits.

A merge is a row of steps; in each a member waits for all others, and needs what they sent in the step before. A member
that a liar keeps waiting is late with its own next message. So the wait of each step ends a little later than that of
the step before, for all alike: then only the liar is given up, and not who waited for it.
"""

import asyncio
from collections.abc import Callable

from p2p_tally.node.step.waits import USUAL, Leeway

# In deadlines since the announcements: when the first wait ends, and by how much that of each step ends later. Runs of
# parameters are sent as a pipeline, in steps of their own. All steps of three tries together end after two.
FIRST, LATER, ALL_RUNS = 1.0, 1 / 32, 1 / 8
# Deadlines that every wait has, for what is slow but comes; and the part of what it ends later that it is longer.
LEAST, LONGER = 1 / 8, 1 / 4
# By how many deadlines at most a member is awaited longer that says that it waits too. Where runs take long it may
# still receive some; where they do not it gets no more time by that.
HEEDED = 2.0


class Budget:
    """The budget of one merge, from now on."""

    def __init__(self, deadline: Callable[[], float | None]) -> None:
        """`deadline`: the present one, in seconds."""
        self._deadline = deadline
        self._started = asyncio.get_running_loop().time()
        self._given_back = 0.0
        self._later = 0.0

    def next(self) -> Leeway:
        """For the wait of the next step."""
        self._later += LATER
        return self._leeway(self._later)

    def for_runs(self, share: float) -> Leeway:
        """For a wait in the middle of the pipeline; `share`: of its steps, which have passed."""
        return self._leeway(self._later + ALL_RUNS * share)

    def end_runs(self) -> None:
        """All runs of a try have been awaited."""
        self._later += ALL_RUNS

    def afterwards(self, steps: int, runs_ahead: int) -> Leeway:
        """For a wait of a member left out for those that go on for so many steps."""
        return self._leeway(self._later + ALL_RUNS + LATER * steps)._replace(runs_ahead=runs_ahead)

    def seconds(self) -> float | None:
        """How long a wait is now."""
        deadline = self._deadline()
        return None if deadline is None else deadline * self._leeway(self._later).share

    def give_back(self, seconds: float) -> None:
        """So long bytes of runs kept coming: they take as long as a link needs for them, and that is not counted."""
        self._given_back += seconds

    def _leeway(self, later: float) -> Leeway:
        deadline = self._deadline()
        if not deadline:
            return USUAL
        passed = (asyncio.get_running_loop().time() - self._started - self._given_back) / deadline
        return Leeway(max(FIRST + later - passed, LEAST + LONGER * later), min(HEEDED, self._given_back / deadline))
