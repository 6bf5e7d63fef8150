"""The graph of a federation, and what it is not fit for: refused before anything starts.

Knows no model and no data; whether a graph of that name and size exists is for `topologies` to say.
"""

from collections.abc import Sequence

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.learning.methods import Sends, method_of
from p2p_tally.topologies import Topology, TopologyError, build


def make_topology(federation: Federation, members: Sequence[str] | None = None) -> Topology:
    """The federation's graph over these members; without them over nodes named by rank."""
    try:
        topology = build(
            federation.topology,
            ranked_names(federation.nodes) if members is None else members,
            degree=federation.degree,
            seed=federation.seed,
        )
    except TopologyError as error:
        raise ConfigError(str(error)) from None
    check_graph(federation, topology)
    return topology


def check_graph(federation: Federation, topology: Topology | None) -> None:
    """Refuse what the graph is not fit for; None: a node that knows no more than its neighbours."""
    if federation.merge_over == "ring":
        _check_ring(federation, topology)
    if topology is not None and topology.is_complete() and not topology.varies:
        return
    _check_fading(federation, topology)
    if federation.merge_top_k:
        raise ConfigError(
            f"--merge-top-k {federation.merge_top_k:g}: peers send a part of their change since a model that all have; "
            "accepted on --topology mesh"
        )
    if federation.merge_when == "drift":
        raise ConfigError(
            "--merge-when drift: peers with other neighbours hear other votes, and would merge in other rounds; "
            "accepted on --topology mesh"
        )


def _check_fading(federation: Federation, topology: Topology | None) -> None:
    """Who opened first would fall silent first, and be waited for by those who still speak."""
    method = method_of(federation)
    if federation.warmup != "auto" or not 0 < federation.kl_decay < federation.rounds:
        return
    if not method.waits or method.sends is Sends.NOTHING or federation.alpha == 1:
        return  # nobody sends a ballot that could stay out
    all_hear_all = topology is not None and not topology.varies and topology.reach(1, federation.hops).everyone
    if not all_hear_all:
        raise ConfigError(
            f"--kl-decay {federation.kl_decay} with --warmup auto: peers that hear others open, and so fall silent, in "
            "other rounds; accepted on --topology mesh, with --hops all, or with a number for --warmup"
        )


def _check_ring(federation: Federation, topology: Topology | None) -> None:
    if federation.merge_precision != "float32" or federation.merge_top_k:
        raise ConfigError("--merge-over ring: accepted with --merge-precision float32 and without --merge-top-k")
    if topology is None:
        raise ConfigError(
            "--merge-over ring: accepted with --topology; a node that knows its neighbours only sees no ring"
        )
    if topology.varies:
        raise ConfigError(f"--merge-over ring: accepted on a graph that stays; --topology {topology.name} changes")
    if topology.ring is None:
        raise ConfigError(
            f"--merge-over ring: no ring of links through all {len(topology.members)} nodes found in --topology "
            f"{topology.name}; accepted are graphs that have one, such as ring, torus, hypercube, exponential and mesh"
        )
