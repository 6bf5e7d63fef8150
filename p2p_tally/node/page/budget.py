"""What soft labels and FedAvg would send in the place of this run's method, by the one model of bytes (traffic.py)."""

from statistics import fmean
from typing import Any

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.methods import METHODS
from p2p_tally.node.formats import ballot_format
from p2p_tally.node.traffic import Traffic, payload
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.messages import Vote
from p2p_tally.topologies import Topology

# Of graphs that change, this many are looked at.
SURVEYED = 8


def budget(federation: Federation, topology: Topology, votes: int, classes: int, parameters: int) -> dict[str, Any]:
    """Payload bytes of a peer, on average: of soft labels in each round after the warm-up, of FedAvg in each merge.

    FedAvg merges as often as this run does, or every 50 rounds where it does not.
    """
    soft = federation.model_copy(update={"method": "fedmd", "abstain": 0})
    try:
        size = ballot_format(soft, votes, classes).largest
    except ConfigError:  # a run too long for ballots of this size
        size = 4 * votes * classes
    # The copies of a message do not depend on its contents: those of one byte are counted, and multiplied.
    one_byte = ballot_format(federation.model_copy(update={"method": "tally", "ballot": "byte", "abstain": 0}), 1, 2)
    traffic = Traffic(federation.model_copy(update={"method": "fedavg"}), topology, one_byte, parameters)
    everyone = np.ones(traffic.nodes, bool)
    rounds = range(1, min(SURVEYED, topology.period or SURVEYED) + 1)
    copies = fmean(payload(traffic.round(r, [(Vote(r, bytes(1)), everyone)])) for r in rounds) / traffic.nodes
    merge = fmean(payload(traffic.round(r, merge=ChangeFormat())) for r in rounds) / traffic.nodes
    return {
        "soft_round": copies * size,
        "warmup": federation.warmup if isinstance(federation.warmup, int) else 0,
        "merge": merge,
        "merge_every": federation.merge_every or METHODS["fedavg"].merge_every,
    }
