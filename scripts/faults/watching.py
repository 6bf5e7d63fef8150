"""What is written down while daemons run in this process: merges, faults of the program, looks at a clock."""

import asyncio
import gc
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from faults import laws
from p2p_tally.node.service.daemon import Daemon


class Records:
    """What a daemon's merges gave and took."""

    def __init__(self) -> None:
        self.merges: list[laws.MergeRecord] = []
        self.given: dict[int, dict[str, np.ndarray]] = {}
        self._started: Counter[str] = Counter()

    def watch(self, daemon: Daemon) -> None:
        learner, position, name = daemon.learner, daemon.node.position, daemon.name
        contribution, merge = learner.contribution, learner.merge
        self._started[name] += 1

        def contributing(round: int) -> np.ndarray:
            vector = contribution(round)
            self.given.setdefault(round, {})[name] = vector.copy()
            return vector

        def merging(average: np.ndarray, *rest: Any) -> Any:
            gave = self.given.get(position.round + 1, {}).get(name, average)
            came_back = self._started.total() - len(self._started)
            self.merges.append(laws.MergeRecord(name, position.round + 1, gave, average.copy(), came_back))
            return merge(average, *rest)

        learner.contribution, learner.merge = contributing, merging  # type: ignore[method-assign]


class Clock:
    """The wall clock, which jumps. Counts how often somebody reads it meanwhile."""

    def __init__(self) -> None:
        self._real = time.time
        self.ahead = 0.0
        self.read = 0

    def __call__(self) -> float:
        if self.ahead:
            self.read += 1
        return self._real() + self.ahead

    @contextmanager
    def installed(self) -> Iterator["Clock"]:
        time.time = self
        try:
            yield self
        finally:
            time.time = self._real


class Errors(logging.Handler):
    """Every fault of the program: in a log, in a callback, in a task that nobody awaits."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.name == "asyncio" or getattr(record, "event", "") == "fault":
            self.found.append(f"{record.name}: {record.getMessage()} {_last_line(record.exc_info)}")

    def in_loop(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        frames = traceback.extract_tb(error.__traceback__)[-4:] if error is not None else []
        where = ", ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
        self.found.append(f"event loop: {context.get('message')} {error!r} at {where}")

    def unraisable(self, what: Any) -> None:
        self.found.append(f"unraisable: {what.exc_value!r} in {what.object!r}")

    @contextmanager
    def installed(self) -> Iterator["Errors"]:
        root, hook = logging.getLogger(), sys.unraisablehook
        root.addHandler(self)
        logging.getLogger("p2p_tally").setLevel(logging.INFO)  # as a daemon's: lines are made, and read the clock
        sys.unraisablehook = self.unraisable
        try:
            yield self
        finally:
            gc.collect()
            root.removeHandler(self)
            sys.unraisablehook = hook


def _last_line(exc_info: Any) -> str:
    return repr(exc_info[1]) if exc_info else ""
