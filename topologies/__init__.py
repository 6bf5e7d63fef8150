"""Graphs for peers to vote and merge over: named, seeded, connected; their mixing weights and facts.

This package knows nothing of nodes, votes or models. What a running node needs is here; the spectral facts
(`topologies.mixing`, `topologies.facts`) draw on scipy and are imported by those who ask for them.
"""

from p2p_tally.topologies.errors import TopologyError
from p2p_tally.topologies.graphs import NAMES, build
from p2p_tally.topologies.topology import Hops, Schedule, Topology

__all__ = ["NAMES", "Hops", "Schedule", "Topology", "TopologyError", "build"]
