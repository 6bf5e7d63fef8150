"""Graphs over which peers vote and merge: named, seeded and connected, with mixing weights and facts.

This package knows nothing of nodes, votes or models. What a running node needs is imported here. The spectral facts
(`topologies.mixing`, `topologies.facts`) need scipy, so they are imported only where they are used.
"""

from p2p_tally.topologies.epochs import Epochs
from p2p_tally.topologies.errors import TopologyError
from p2p_tally.topologies.graphs import NAMES, build
from p2p_tally.topologies.topology import Hops, Schedule, Topology

__all__ = ["NAMES", "Epochs", "Hops", "Schedule", "Topology", "TopologyError", "build"]
