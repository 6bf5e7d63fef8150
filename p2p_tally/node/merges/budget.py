"""How long one merge waits for others in all. Without it a liar could use up a deadline at each of its many waits.

A merge is a row of steps; in each a member waits for all others, and needs what they sent in the step before. A member
that a liar keeps waiting is late with its own next message. So the wait of each step ends a little later than that of
the step before, for all alike: then only the liar is given up, and not who waited for it.
"""

import asyncio
from collections.abc import Callable

from p2p_tally.node.step.waits import USUAL, Leeway
from p2p_tally.protocol.barrier import RUNS_HELD_AHEAD

# In deadlines since the announcements: when the wait of the first step ends, and by how much each ends later. All steps
# of three tries together end after two.
FIRST, LATER = 1.0, 1 / 24
# Deadlines that every wait has, for what is slow but comes; and by how much each has more.
LEAST, MORE = 1 / 8, 1 / 96
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
        self._step = 0

    def next(self) -> Leeway:
        """For the wait of the next step."""
        self._step += 1
        return self.now()

    def now(self, later: int = 0, runs_ahead: int = RUNS_HELD_AHEAD) -> Leeway:
        """For another wait of the same step, or of so many steps later."""
        deadline, step = self._deadline(), self._step + later
        if not deadline:
            return USUAL._replace(runs_ahead=runs_ahead)
        passed = (asyncio.get_running_loop().time() - self._started - self._given_back) / deadline
        share = max(FIRST + LATER * step - passed, LEAST + MORE * step)
        return Leeway(share, min(HEEDED, self._given_back / deadline), runs_ahead)

    def seconds(self) -> float | None:
        """How long a wait of this step is."""
        deadline = self._deadline()
        return None if deadline is None else deadline * self.now().share

    def give_back(self, seconds: float) -> None:
        """So long bytes of runs kept coming: they take as long as a link needs for them, and that is not counted."""
        self._given_back += seconds
