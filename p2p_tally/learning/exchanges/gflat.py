"""GFlat: local steps that look for flat ground in the direction in which all peers move together.

Choudhary, Aketi and Roy, "Achieving Global Flatness in Decentralized Learning with Heterogeneous Data", TMLR 2026. The
text was not at hand; this follows its title, and the two works that it builds on: sharpness-aware minimisation (Foret
and others, ICLR 2021, Algorithm 1) and the same authors' SADDLe (arXiv 2405.13961: sharpness-aware local steps in
gossip, with a direction that includes what the neighbours did). Simplifications: docs/methods.md.

A step takes the gradient not where the model is but at a distance --rho from it, uphill. A peer's own gradient says
where uphill is for its own data only. The change that the last merge brought includes what the neighbours learned, so
its negative is this peer's estimate of uphill for all. Nothing more is sent than in plain averaging. W parameters.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from p2p_tally.config import Federation

if TYPE_CHECKING:
    from torch import Tensor

    from p2p_tally.learning.exchanges.local_steps import LocalBatch

SMALLEST = 1e-12  # of a length: a shorter direction is none


class Uphill:
    """The mean becomes the model; remembered is where it came from. Vectors [W], or [n, W] for many nodes at once."""

    def __init__(self, start: "Tensor") -> None:
        self._last = start.clone()  # the last merged model
        self._uphill = start.new_zeros(start.shape)  # what the last merge moved away from

    def step(self, average: "Tensor") -> "Tensor":
        self._uphill.copy_(self._last - average)
        self._last.copy_(average.expand_as(self._last))
        return self._last

    @property
    def state(self) -> dict[str, "Tensor"]:
        return {"last": self._last, "uphill": self._uphill}


def uphill(start: "Tensor", _federation: Federation) -> Uphill:
    return Uphill(start)


def flat_gradient(
    gradient: "LocalBatch | Callable[[], Tensor]",
    parameters: "Tensor",
    state: "Mapping[str, Tensor]",
    federation: Federation,
) -> "Tensor":
    """The gradient at a distance --rho uphill: along the last merge's change, and before the first along its own."""
    whole = state["uphill"].view_as(parameters)
    known = whole.norm(dim=1, keepdim=True)
    own = gradient() if bool((known < SMALLEST).any()) else whole
    direction = whole.where(known >= SMALLEST, own)
    lengths = direction.norm(dim=1, keepdim=True).clamp_min(SMALLEST)
    here = parameters.clone()
    parameters.addcmul_(direction, federation.rho / lengths)
    there = gradient()
    parameters.copy_(here)
    return there
