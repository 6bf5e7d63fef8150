"""When stacked peers use what they have heard and merged: in its round, or with --overlap in the next one.

The rules are the nodes' own (`node/overlap`). What waits for its turn is part of a checkpoint. N peers, W parameters.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.runner.stacked.merging import Averages
from p2p_tally.runner.stacked.peers import Peers


class Asked(NamedTuple):
    """A round whose probes were answered, and by which logits: block by block, [n, C, P] each."""

    round: int
    logits: list[Tensor]


class Result(NamedTuple):
    """What a merge gives, and what all peers had when it began [N, W]; None: they have not trained on since."""

    found: Averages
    since: Tensor | None = None


class AtOnce:
    """Everything is used in its round."""

    def asked(self, now: Asked) -> Asked | None:
        """The poll that is over now, given that of this round."""
        return now

    def begun(self, found: Averages, stack: Peers, last: bool) -> Result | None:  # noqa: ARG002 - for those who wait
        """The merge that is over now, given that of this round. `last`: no round follows."""
        return Result(found)

    def came(self) -> Result | None:
        """The merge that came while the peers trained."""
        return None

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: dict[str, Tensor]) -> None: ...


class OneRoundLate(AtOnce):
    """--overlap."""

    def __init__(self, stack: Peers) -> None:
        self._stack = stack
        self._asked: Asked | None = None
        self._result: Result | None = None

    def asked(self, now: Asked) -> Asked | None:
        before, self._asked = self._asked, now
        return before if before is not None and before.round == now.round - 1 else None

    def begun(self, found: Averages, stack: Peers, last: bool) -> Result | None:
        if last:
            return Result(found)
        self._result = Result(found, stack.parameters.clone())
        return None

    def came(self) -> Result | None:
        result, self._result = self._result, None
        return result

    def state(self) -> dict[str, Tensor]:
        state = {}
        if self._asked is not None:
            state["late.round"] = torch.tensor(self._asked.round)
            state["late.logits"] = self._stack.by_rank(self._asked.logits).cpu()  # [N, C, P], however blocks are cut
        if self._result is not None and self._result.since is not None:
            (average, kept), since = self._result
            kept_back = None if kept is None else torch.from_numpy(kept)
            parts = {"average": average, "kept": kept_back, "since": since}
            state |= {f"late.merge.{key}": part.cpu() for key, part in parts.items() if part is not None}
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        device = self._stack.device
        self._asked = self._result = None
        if "late.round" in state:
            logits = state["late.logits"].to(device)
            self._asked = Asked(int(state["late.round"]), [logits[block.held] for block in self._stack.blocks])
        if "late.merge.since" in state:
            average, kept = state.get("late.merge.average"), state.get("late.merge.kept")
            found = Averages(
                None if average is None else average.to(device), None if kept is None else np.array(kept.numpy())
            )
            self._result = Result(found, state["late.merge.since"].to(device))


def make_pace(federation: Federation, stack: Peers) -> AtOnce:
    return OneRoundLate(stack) if federation.overlap else AtOnce()
