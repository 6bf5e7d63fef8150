"""An event loop whose clock stands still while there is work, and jumps to the next deadline when there is none.

Deadlines pass at once, and in the same order on every machine, however busy it is. A simulation needs it where members
withhold messages; tests of deadlines use it too.
"""

import asyncio
import selectors
from typing import Any


class JumpingSelector(selectors.DefaultSelector):
    """Where another would sleep, this one moves its clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            return super().select()  # no deadline to jump to: somebody else's work is awaited
        ready = super().select(0)
        if not ready:
            self.now += max(0.0, timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = JumpingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now
