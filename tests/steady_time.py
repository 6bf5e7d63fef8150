"""The event loop of asynchronous tests: its clock stands still while the machine does.

A busy machine can stop a process for seconds, and its deadlines pass meanwhile. A test of deadlines shows nothing then:
whoever was about to answer could not. On this loop a stall of any length counts as `MOST` seconds.
"""

import asyncio
import selectors
import time
from typing import Any

MOST = 0.1  # seconds by which the clock moves at once: what is longer is a stall


class ShortSelector(selectors.DefaultSelector):
    """Never sleeps longer than the clock may move at once, so that a long sleep is no stall."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return super().select(None if timeout is None else min(timeout, MOST / 2))


class SteadyLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now, self._looked = 0.0, time.monotonic()
        super().__init__(ShortSelector())

    def time(self) -> float:
        looked = time.monotonic()
        self._now += min(looked - self._looked, MOST)
        self._looked = looked
        return self._now
