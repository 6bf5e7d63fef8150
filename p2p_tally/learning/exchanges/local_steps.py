"""The local steps of a row: which of them a peer takes, and along which gradient. n peers, W parameters, B examples."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from p2p_tally.config import Federation
from p2p_tally.learning.exchanges.exchange import drawn_below

if TYPE_CHECKING:
    from torch import Tensor

    from p2p_tally.learning.by_rows import ByRows

# (federation, name, round, step) -> whether the peer of this name takes it.
TakesStep = Callable[[Federation, str, int, int], bool]


class LocalBatch:
    """The private batches of a local step, one for each peer. Called, it gives the plain gradient [n, W] where the
    parameters are now; what it gives may be overwritten by its next call."""

    def __init__(
        self, gradient: "Callable[[], Tensor]", x: "Tensor", y: "Tensor", models: "tuple[ByRows, ...]"
    ) -> None:
        """Inputs [n, B, ...], normalised, and labels [n, B]. `models`: the peers' own, and the second one that they
        keep, where they do."""
        self._gradient = gradient
        self._x = x
        self.labels = y
        self._models = models

    def __call__(self) -> "Tensor":
        return self._gradient()

    def logits(self, rows: "Tensor", *, second: bool = False) -> "Tensor":
        """[n, B, C] of rows of parameters [n, W], in training mode; they can be differentiated."""
        return self._models[int(second)](rows, self._x)


# (batch, parameters [n, W], state of the merge step, federation) -> the gradient to step along [n, W]. A rule that
# moves the parameters puts them back; the state is its own, to write into.
LocalGradient = Callable[[LocalBatch, "Tensor", "Mapping[str, Tensor]", Federation], "Tensor"]


def every_step(_federation: Federation, _name: str, _round: int, _step: int) -> bool:
    return True


def sporadic_step(federation: Federation, name: str, round: int, step: int) -> bool:
    """Each step is taken with the chance --steps-taken."""
    return drawn_below(federation.steps_taken, federation.seed, "step", round, step, name)
