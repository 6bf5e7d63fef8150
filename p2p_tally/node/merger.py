"""The merges of one node: exchange parameters with the others, and take the mean. Each is over in its round."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from p2p_tally.learning.learner import Learner
from p2p_tally.node.merges.exchange import Exchange, Merged
from p2p_tally.node.position import Position
from p2p_tally.node.step.step import Step

log = logging.getLogger(__name__)

Compute = Callable[..., Awaitable[Any]]


class Merger:
    """One node's."""

    def __init__(self, learner: Learner, step: Step, position: Position, exchange: Exchange, compute: Compute) -> None:
        self._learner = learner
        self._step = step
        self._position = position
        self._exchange = exchange
        self._compute = compute
        self._by_clock = learner.federation.merge_when == "clock"

    async def merge(self, r: int) -> bool | None:
        """The merge of a round. False: it was not completed, and nothing has changed. None: it is under way."""
        merged = await self._exchanged(r, await self._contribution(r))
        self._step.leave_if_others_left(r)
        if merged is None:
            return False
        await self._compute(self._learner.merge, merged.average, merged.kept)
        return True

    async def finish(self) -> bool | None:
        """Complete a merge that is under way, and say as `merge` how it ended; None: there is none."""
        return None

    async def settle(self) -> None:
        """Wait for what is under way, without using it."""

    def cancel(self) -> None:
        """Give up what is under way."""

    async def _contribution(self, r: int) -> np.ndarray:
        """What this node gives to the merge of a round [W]."""
        if self._by_clock:
            self._step.check(r)
        contribution: np.ndarray = await self._compute(self._learner.contribution, r)
        return contribution

    async def _exchanged(self, r: int, contribution: np.ndarray) -> Merged | None:
        """What the others make of it; None: the merge was not completed."""
        await self._step.have_links(r)
        merged = await self._exchange.merge(r, contribution)
        if merged.alone and not self._by_clock:
            # The others saw other votes, or merged while this node was away: it tries again in the next round.
            return None
        self._position.merged(r)
        if merged.average is None:
            log.warning("merge of round %d not completed: kept as it was", r, extra={"event": "merge-skipped"})
            return None
        return merged
