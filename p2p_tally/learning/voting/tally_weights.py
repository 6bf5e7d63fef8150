"""What `--tally-weights auto` is: a pure function of the options."""

import logging

from p2p_tally.config import Federation
from p2p_tally.learning.consensus import histogram
from p2p_tally.learning.methods import method_of
from p2p_tally.option_types import TallyWeights

log = logging.getLogger(__name__)

# From so many voters on reliability can be estimated: one of fewer is too large a share of all.
LEAST_VOTERS = 5
# Up to so many classes: each must come often enough to say something about a voter, and the estimate takes time.
MOST_CLASSES = 256


def tally_weights(federation: Federation, alpha: float, classes: int) -> TallyWeights:
    """The option, filled in. `alpha`: the weight of the labels of probes.

    A few that lie do most harm where votes are all that is learned from: there voters are weighed by their reliability.
    """
    if federation.tally_weights != "auto":
        return federation.tally_weights
    only_votes = method_of(federation).target is histogram and alpha == 0
    if not only_votes or federation.nodes < LEAST_VOTERS:
        return "uniform"
    why = _why_not(federation, classes)
    if why:
        log.info("--tally-weights auto: all votes count the same, because %s", why, extra={"event": "tally-weights"})
    return "uniform" if why else "reliability"


def _why_not(federation: Federation, classes: int) -> str:
    """Why voters are not weighed although votes are all that is learned from; empty: they are."""
    if federation.topology != "mesh" and federation.hops != "all":
        return "not all hear all votes"
    if classes > MOST_CLASSES:
        return f"of {classes} classes each comes too rarely to know a voter by it"
    if federation.exam:
        return "--exam judges the voters"
    return "--inverse-agreement weighs them" if federation.inverse_agreement else ""
