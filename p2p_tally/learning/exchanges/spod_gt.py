"""Spod-GT: peers exchange parameters and a tracker of the mean change of all, also over links of one direction only.

Zehtabi, Han, Hosseinalipour and Brinton, "Sporadic Gradient Tracking over Directed Graphs", arXiv 2602.00791, 2026, and
the AB / push-pull method that it is built on (Xin and Khan 2018; Pu, Shi, Xu and Nedic 2021), in its adapt-then-combine
form:

    t_i = y_i + g_i - (the g_i before),   x_i <- sum over j of a_ij (x_j - t_j),   y_i <- sum over j of b_ij t_j

g_i is how far the local steps since the last merge have moved peer i from x_i, so that any optimiser may take them. The
rows of a sum to 1: a peer takes the plain mean of itself and those it hears. The columns of b sum to 1: what a peer has
of the tracker it divides evenly among itself and those it sends to. So the sum of all trackers stays the sum of all g,
whichever links are used in which direction, and each peer moves with the mean of all and not with its own data.
Simplifications: docs/methods.md. W parameters; vectors [W], or [n, W] for many nodes at once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from p2p_tally.config import Federation
from p2p_tally.learning.exchanges.exchange import Exchange, one_way, tells

if TYPE_CHECKING:
    from torch import Tensor

    from p2p_tally.topologies import Topology


class Tracker:
    """x, y and the last g of a peer."""

    def __init__(self, start: "Tensor") -> None:
        self._model = start.clone()
        self._tracker = start.new_zeros(start.shape)
        self._change = start.new_zeros(start.shape)
        self._next_change: Tensor | None = None  # between what is given to a merge and its result

    @property
    def state(self) -> dict[str, "Tensor"]:
        return {"model": self._model, "tracker": self._tracker, "change": self._change}

    def gives(self, parameters: "Tensor") -> "Tensor":
        """x - t and t, one after the other [..., 2 W]. If the merge fails nothing has changed."""
        self._next_change = self._model - parameters
        tracker = self._tracker + self._next_change - self._change
        both = tracker.new_empty(*tracker.shape[:-1], 2 * tracker.shape[-1])
        both[..., : tracker.shape[-1]] = self._model - tracker
        both[..., tracker.shape[-1] :] = tracker
        return both

    def step(self, mixed: "Tensor") -> "Tensor":
        assert self._next_change is not None, "a merge takes what was given"
        width = self._model.shape[-1]
        self._model.copy_(mixed[..., :width])
        self._tracker.copy_(mixed[..., width:])
        self._change.copy_(self._next_change)
        self._next_change = None
        return self._model


def tracker(start: "Tensor", _federation: Federation) -> Tracker:
    return Tracker(start)


def both_vectors(merge_step: Tracker, parameters: "Tensor") -> "Tensor":
    return merge_step.gives(parameters)


def by_rows_and_columns(
    exchange: Exchange, federation: Federation, topology: "Topology", member: str, round: int, heard: Sequence[str]
) -> list[dict[str, float]]:
    """Of parameters, the same for oneself and all that are heard; of trackers, what each sender gives a receiver."""
    rows = dict.fromkeys((member, *heard), 1.0 / (1 + len(heard)))
    columns = {peer: 1.0 / (1 + len(tells(exchange, federation, topology, peer, round))) for peer in (member, *heard)}
    return [rows, columns]


TRACKING = Exchange(links=one_way, weights=by_rows_and_columns, gives=both_vectors, vectors=2, keeps_total=True)
