"""A federation in parts: engines in step, each with some of the peers, and one that keeps the record and leads.

An engine runs until it needs what others have. Then it stops, and gives something for every other; it goes on when
theirs is here. Who carries it does not matter: Ray between machines (`runner/ray/crowd.py`), or nobody in one process.
"""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.setup import prepare
from p2p_tally.runner.stacked.engine import Stacked
from p2p_tally.runner.stacked.places import Apart
from p2p_tally.runner.stacked.shares import Shares

# What stands in the place of the bytes when an engine has done what it was told.
DONE = -1


class Part:
    """The engine of some peers. Every method returns when the engine has stopped."""

    def __init__(
        self, federation: Federation, root: Path | None, download: bool, directory: str, here: int, count: int
    ) -> None:
        """`directory`: the operator's, used where it exists. This is number `here` of so many."""
        self._given = federation, root, download
        self._directory = directory
        self._here = here
        self._count = count
        self._steps: SimpleQueue[Any] = SimpleQueue()
        self._came: SimpleQueue[Any] = SimpleQueue()
        self._does: dict[str, Callable[..., Any]] = {}

    def prepare(self) -> str:
        """Load the data and make the engine. Returns the digest of the probes."""
        torch.set_num_threads(1)
        if Path(self._directory).is_dir():
            os.chdir(self._directory)  # relative paths then mean the same
        federation, root, download = self._given
        task, topology = prepare(federation, root=root, download=download), make_topology(federation)
        place = Apart(Shares.of(task, self._count), self._here, self._swap)
        engine = Stacked(task, topology, "cpu", 1, place=place)
        self._does = {
            "play_round": engine.play_round,
            "state": engine.state,
            "restore": engine.restore,
            "models": engine.stack.models,
        }
        return task.probes.digest()

    def start(self, what: str, *arguments: Any) -> list[Any]:
        """Begin to do this, until parts are needed: a part for each process, and how many bytes go to others."""
        threading.Thread(target=self._run, args=(what, arguments), daemon=True).start()
        return self._next()

    def go_on(self, *came: Any) -> list[Any]:
        """The same, with what came from each process."""
        self._came.put(came)
        return self._next()

    def _next(self) -> list[Any]:
        step = self._steps.get()
        if isinstance(step, BaseException):
            raise step
        given: list[Any] = [*step, size([part for to, part in enumerate(step) if to != self._here])] if step else []
        return given or [*[None] * (self._count + 1), DONE]

    def _run(self, what: str, arguments: Sequence[Any]) -> None:
        torch.set_num_threads(1)
        try:
            self._does[what](*arguments)
        except BaseException as error:  # raised where it is waited for
            self._steps.put(error)
        else:
            self._steps.put(None)

    def _swap(self, given: Sequence[Any]) -> Sequence[Any]:
        self._steps.put(given)
        came: Sequence[Any] = self._came.get()
        return came


class Remote(Protocol):
    """A `Part` elsewhere. What its methods return are references to their values."""

    def start(self, what: str, *arguments: Any) -> list[Any]: ...

    def go_on(self, *came: Any) -> list[Any]: ...


class Conductor:
    """The way between the parts, from where the record is kept. Values for other parts are never looked at here."""

    def __init__(self, parts: Sequence[Remote], fetch: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._parts = parts
        self._fetch = fetch
        self._given: list[list[Any]] = []  # of each part, references to what it has given last
        self.exchanged = 0  # bytes that went from process to process

    def place(self, shares: Shares) -> Apart:
        return Apart(shares, shares.count, self.swap, self.tell)

    def tell(self, what: str, arguments: Sequence[Any]) -> None:
        """Have all parts begin to do this. They have done what they were told before."""
        self.settle()
        self._given = [part.start(what, *arguments) for part in self._parts]

    def settle(self) -> None:
        """Wait until all parts have done what they were told."""
        ends = self._fetch([given[-1] for given in self._given])
        assert all(end == DONE for end in ends), "parts are not in step"
        self._given = []

    def swap(self, own: Sequence[Any]) -> Sequence[Any]:
        count, given = len(self._parts), self._given
        came = self._fetch([reference for each in given for reference in each[count:]])
        assert DONE not in came[1::2], "parts are not in step"
        self.exchanged += sum(came[1::2]) + size(own[:count])
        self._given = [
            part.go_on(*(each[number] for each in given), own[number]) for number, part in enumerate(self._parts)
        ]
        return [*came[::2], own[count]]


def size(part: Any) -> int:
    """The bytes of the arrays in it."""
    if isinstance(part, np.ndarray | Tensor):
        return int(part.nbytes)
    inside = part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ()
    return sum(map(size, inside))
