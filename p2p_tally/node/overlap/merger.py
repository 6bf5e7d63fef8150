"""Merges that go on while a node computes the local steps of its next round, and are applied before it votes.

What the node has learned meanwhile stays: new = current + (merged - snapshot). The merge is over before the next votes
are sent, so that a node waits for one thing at a time, and all messages keep their order.
"""

import asyncio
from typing import Any

import numpy as np

from p2p_tally.learning.late import Late, LateMerge
from p2p_tally.node.merger import Merger


class LateMerger(Merger):
    """One node's merges, each a round late."""

    def __init__(self, *arguments: Any, late: Late) -> None:
        """`late`: keeps a merge that is over until its turn."""
        super().__init__(*arguments)
        self._late = late
        self._under_way: asyncio.Task[bool] | None = None
        self._ended: bool | None = None  # how a merge ended that has not been told

    async def merge(self, r: int) -> bool | None:
        """Begin the merge of a round. After the last round nothing follows that it could go on with."""
        if r == self._position.last:
            return await super().merge(r)
        # Copies: the next step changes the parameters.
        contribution = (await self._contribution(r)).copy()
        snapshot = (await self._compute(self._learner.export)).copy()
        self._under_way = asyncio.create_task(self._go_on(r, contribution, snapshot))
        return None

    async def _go_on(self, r: int, contribution: np.ndarray, snapshot: np.ndarray) -> bool:
        merged = await self._exchanged(r, contribution)
        if merged is None:
            return False
        assert merged.average is not None
        self._late.keep_merge(LateMerge(snapshot, merged.average, merged.kept))
        return True

    async def settle(self) -> None:
        task, self._under_way = self._under_way, None
        if task is not None:
            self._ended = await task

    async def finish(self) -> bool | None:
        await self.settle()
        ended, self._ended = self._ended, None
        late = self._late.take_merge()
        if late is None:
            return ended
        await self._compute(self._learner.merge, late.average, late.kept, late.snapshot)
        return True

    def cancel(self) -> None:
        if self._under_way is not None:
            self._under_way.cancel()
            self._under_way = None
