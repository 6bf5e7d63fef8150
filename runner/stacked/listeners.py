"""What stacked peers know of each other's reliability: an estimate for each listener, or one for all who hear the same.

The arithmetic is the nodes' own (`learning/voting/reliability.py`), listener by listener.
"""

from copy import deepcopy

import numpy as np
import torch
from torch import Tensor

from p2p_tally.learning.voting.reliability import Reliability
from p2p_tally.runner.stacked.neighbourhoods import Neighbourhoods

# Whose answers a listener has, in order of name, and how much each counts: per voter [N], or per vote [N, P].
Heard = tuple[np.ndarray, np.ndarray | None]


class Listeners:
    """The estimates of all peers. While all hear the same, there is one; where members change, one for each."""

    def __init__(self, nodes: int, classes: int, alike: bool = True) -> None:
        self._nodes = nodes
        self._classes = classes
        self._estimates = [Reliability(classes) for _ in range(1 if alike else nodes)]

    def weigh(
        self,
        audience: Neighbourhoods,
        speaking: np.ndarray,
        listening: np.ndarray,
        votes: np.ndarray,
        labels: np.ndarray | None,
    ) -> list[Heard]:
        """The votes [N, P] of those who speak [N], weighed by each of those who listen [N]: an entry for each peer, or
        one for all. A peer that does not listen learns nothing about the others."""
        heard = list(audience.heard(speaking))
        if len(heard) < len(self._estimates):
            heard *= self._nodes  # they hear the same today, but have heard different votes before
        elif len(heard) > len(self._estimates):
            self._estimates = [deepcopy(self._estimates[0]) for _ in heard]
        weighed: list[Heard] = []
        for listener, (members, shares) in enumerate(heard):
            learns = listening[listener] and len(members)
            estimate = self._estimates[listener]
            weights = estimate.weigh(members.tolist(), votes[members], labels) if learns else shares
            weighed.append((members, weights))
        return weighed

    def state(self) -> dict[str, Tensor]:
        """Everything that the next round depends on, as named tensors."""
        each = (estimate.state for estimate in self._estimates)
        return {f"listener {number}.{key}": value for number, one in enumerate(each) for key, value in one.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        keys = self._estimates[0].state
        count = sum(key.startswith("listener ") for key in state) // len(keys)
        self._estimates = [Reliability(self._classes) for _ in range(count)]
        for number, estimate in enumerate(self._estimates):
            estimate.restore({key: torch.as_tensor(state[f"listener {number}.{key}"]) for key in keys})
