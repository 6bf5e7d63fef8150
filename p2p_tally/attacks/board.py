"""In a simulation: what honest members answer and contribute in a round, for liars that know it before they lie.

A node does its learner's work through a function `compute`. Here that of an honest node also notes the result, and that
of a liar first waits until all honest members have noted theirs. Nobody else waits: a liar's round needs nothing of the
others' next one.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from p2p_tally.ids import NodeName
from p2p_tally.learning.consensus import Answer

# The learner's work whose results liars may know: for each, the honest members' results by round.
NOTED = ("vote", "contribution")

# Rounds that are kept: an honest member may be one ahead of a liar.
KEPT = 3


class Board:
    """The notes of one simulation."""

    def __init__(self, honest: Sequence[NodeName]) -> None:
        self._honest = list(honest)
        self._notes: dict[str, dict[int, dict[NodeName, Any]]] = {what: defaultdict(dict) for what in NOTED}
        self._complete: dict[tuple[str, int], asyncio.Event] = defaultdict(asyncio.Event)

    def compute(self, name: NodeName) -> Callable[..., Awaitable[Any]]:
        """How the node of this name does its learner's work."""
        return self._noting(name) if name in self._honest else self._waiting

    def _noting(self, name: NodeName) -> Callable[..., Awaitable[Any]]:
        async def note(work: Callable[..., Any], *arguments: Any) -> Any:
            result = work(*arguments)
            if work.__name__ in NOTED:
                self._note(name, work.__name__, arguments[0], result)
            return result

        return note

    def _note(self, name: NodeName, what: str, round: int, result: Any) -> None:
        notes = self._notes[what]
        notes[round][name] = result.copy() if isinstance(result, np.ndarray) else result
        if len(notes[round]) == len(self._honest):
            self._complete[what, round].set()
            for old in [known for known in notes if known <= round - KEPT]:
                del notes[old], self._complete[what, old]

    async def _waiting(self, work: Callable[..., Any], *arguments: Any) -> Any:
        if work.__name__ in NOTED:
            await self._complete[work.__name__, arguments[0]].wait()
        return work(*arguments)

    # --- what liars ask

    def answer(self, round: int) -> Answer:
        answer: Answer = self._notes["vote"][round][self._honest[0]]
        return answer

    def contributions(self, round: int) -> np.ndarray:
        noted = self._notes["contribution"][round]
        return np.stack([noted[name] for name in self._honest])
