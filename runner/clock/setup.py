"""The clock of a federation, from its options."""

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.learning.graph import merge_ring
from p2p_tally.runner.clock.clock import NoClock, VirtualClock
from p2p_tally.thin_links import compute_of, links_of
from p2p_tally.topologies import Topology


def make_clock(federation: Federation, topology: Topology) -> VirtualClock | NoClock:
    """Nodes are named by rank, as in every simulation."""
    if federation.link is None:
        if federation.compute is not None:
            raise ConfigError(f"--compute {federation.compute}: accepted with --link, for whose clock it is")
        return NoClock()
    names = [str(name) for name in ranked_names(federation.nodes)]
    compute = [None] * len(names) if federation.compute is None else compute_of(federation.compute, names)
    return VirtualClock(
        links_of(federation.link, names),
        compute,
        lambda round: merge_ring(federation, topology, round) is not None,
        (lambda round: round < federation.rounds) if federation.overlap else None,
    )
