"""Merges of changes: a peer sends how far it has moved from a base, and the base moves by the mean of what was sent.

A code that keeps little of a vector, as low rank, keeps little of a model, but much of a change. What it leaves out of
a change stays in the peer's model and not in its base, so it is part of the next change: error feedback. With a common
start all peers of a mesh have the same base. On other graphs a base moves with the neighbours' changes alone, and a
change goes no further than one link.

Vectors [W], or [n, W] for many nodes at once. A row has `merge_step=changes` and an `Exchange` with `gives=change`, a
`code`, and `returns_kept`.
"""

from typing import TYPE_CHECKING

from p2p_tally.config import Federation

if TYPE_CHECKING:
    from torch import Tensor


class Changes:
    """The base of a peer."""

    def __init__(self, start: "Tensor") -> None:
        self._base = start.clone()

    @property
    def state(self) -> dict[str, "Tensor"]:
        return {"base": self._base}

    def since(self, parameters: "Tensor") -> "Tensor":
        return parameters - self._base

    def step(self, average: "Tensor") -> "Tensor":
        """The next model, from the mean of the changes that travelled and what coding kept of its own [..., 2 W]."""
        width = self._base.shape[-1]
        self._base.add_(average[..., :width])
        return self._base + average[..., width:]


def changes(start: "Tensor", _federation: Federation) -> Changes:
    return Changes(start)


def change(merge_step: Changes, parameters: "Tensor") -> "Tensor":
    return merge_step.since(parameters)
