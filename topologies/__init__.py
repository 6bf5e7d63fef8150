"""Graphs for peers to vote and merge over: named, seeded, connected; their mixing weights and facts.

This package knows nothing of nodes, votes or models, and draws on networkx, numpy and scipy alone.
"""

from topologies.errors import TopologyError
from topologies.facts import Facts, describe, merge_bytes, mesh_cheaper_until, plot, vote_bytes
from topologies.graphs import NAMES, build
from topologies.mixing import (
    check_mixing,
    expected_gap,
    metropolis_hastings,
    rounds_to_contract,
    spectral_gap,
)
from topologies.topology import Topology

__all__ = [
    "NAMES",
    "Facts",
    "Topology",
    "TopologyError",
    "build",
    "check_mixing",
    "describe",
    "expected_gap",
    "merge_bytes",
    "mesh_cheaper_until",
    "metropolis_hastings",
    "plot",
    "rounds_to_contract",
    "spectral_gap",
    "vote_bytes",
]
