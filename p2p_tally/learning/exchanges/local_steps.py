"""The local steps of a row: which of them a peer takes, and along which gradient."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from p2p_tally.config import Federation
from p2p_tally.learning.exchanges.exchange import drawn_below

if TYPE_CHECKING:
    from torch import Tensor

# (federation, name, round, step) -> whether the peer of this name takes it.
TakesStep = Callable[[Federation, str, int, int], bool]
# (gradient, parameters [n, W], state of the merge step, federation) -> the gradient to step along [n, W].
# `gradient` computes that of the batch where the parameters are now; what it gives may be overwritten by its next call.
LocalGradient = Callable[["Callable[[], Tensor]", "Tensor", "Mapping[str, Tensor]", Federation], "Tensor"]


def every_step(_federation: Federation, _name: str, _round: int, _step: int) -> bool:
    return True


def sporadic_step(federation: Federation, name: str, round: int, step: int) -> bool:
    """Each step is taken with the chance --steps-taken."""
    return drawn_below(federation.steps_taken, federation.seed, "step", round, step, name)
