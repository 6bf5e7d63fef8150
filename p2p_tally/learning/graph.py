"""The graph of a federation, and options that do not go with it: refused before anything starts.

Knows no model and no data. Whether a graph of that name and size exists, `topologies` says.
"""

from collections.abc import Sequence

from p2p_tally.config import Federation
from p2p_tally.defence.rule import check_rule
from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.learning.member_changes import changes_members, member_epochs
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.schedule import sends_ballots
from p2p_tally.topologies import Epochs, Topology, TopologyError, build


def make_topology(federation: Federation, members: Sequence[str] | None = None) -> Topology:
    """The federation's graph over these members; without them over nodes named by rank. If members join or leave, it
    has an epoch for each time."""
    names = ranked_names(federation.nodes) if members is None else list(members)
    epochs = [(first, graph_of(federation, there, first)) for first, there in member_epochs(federation, names)]
    return Epochs(epochs, names) if changes_members(federation) else epochs[0][1]


def graph_of(federation: Federation, members: Sequence[str], first: int = 1) -> Topology:
    """The graph over these members, who take part from round `first` on; or a ConfigError."""
    since = "" if first == 1 else f"from round {first} on, with {len(members)} members: "
    try:
        topology = build(federation.topology, members, degree=federation.degree, seed=federation.seed)
        check_graph(federation, topology)
    except (TopologyError, ConfigError) as error:
        raise ConfigError(f"{since}{error}") from None
    return topology


def check_graph(federation: Federation, topology: Topology | None) -> None:
    """Refuse options that do not go with the graph; None: a node that knows no more than its neighbours."""
    if topology is None and changes_members(federation):
        raise ConfigError("--join and --leave: accepted with --topology, and all other members as --peers")
    check_exchange(federation)
    if federation.merge_over == "ring":
        _check_ring(federation, topology)
    if topology is not None and federation.merge_every != 0:
        check_rule(federation.robust_merge, len(topology.members))
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


def check_exchange(federation: Federation) -> None:
    """Refuse options that do not go with a method that says itself what its merges send."""
    method = method_of(federation)
    if method.exchange is None:
        return
    says = f"the method {method.name} says itself what its merges send"
    for given, option, accepted in (
        (federation.merge_precision != "float32", f"--merge-precision {federation.merge_precision}", "float32"),
        (bool(federation.merge_top_k), f"--merge-top-k {federation.merge_top_k:g}", "0"),
        (federation.merge_over != "neighbours", f"--merge-over {federation.merge_over}", "neighbours"),
    ):
        if given:
            raise ConfigError(f"{option}: {says}; accepted is {accepted}")
    if not method.exchange.bounds and federation.robust_merge not in ("auto", "off"):
        raise ConfigError(
            f"--robust-merge {federation.robust_merge}: the method {method.name} trains or chooses among whole models, "
            "and takes no mean that a rule could bound; accepted is off (or auto, which is off there)"
        )
    if not method.exchange.keeps_total:
        return
    total = f"the method {method.name} must keep the sum of all trackers"
    if federation.robust_merge not in ("auto", "off"):
        raise ConfigError(
            f"--robust-merge {federation.robust_merge}: {total}, and a bound would lose a part of it; accepted is off "
            "(or auto, which is off there)"
        )
    if changes_members(federation):
        raise ConfigError(f"--join and --leave: {total}; accepted with it are members that stay")


def merge_ring(federation: Federation, topology: Topology, round: int = 1) -> tuple[str, ...] | None:
    """The members in the order of the ring that the merge of a round goes round; None where merges go to the
    neighbours.

    One member alone has no ring: there is nobody to send to.
    """
    alone = len(topology.members_at(round)) == 1
    return topology.ring_at(round) if federation.merge_over == "ring" and not alone else None


def _check_fading(federation: Federation, topology: Topology | None) -> None:
    """Refuse a decay where peers open in different rounds: who opened first would stop to send ballots first, and
    those who still send would wait for it."""
    if federation.warmup != "auto" or not 0 < federation.kl_decay < federation.rounds:
        return
    if not method_of(federation).waits or not sends_ballots(federation):
        return  # nobody waits for a ballot
    all_hear_all = topology is not None and not topology.varies and topology.reach(1, federation.hops).everyone
    if not all_hear_all:
        raise ConfigError(
            f"--kl-decay {federation.kl_decay} with --warmup auto: peers that hear others open, and so fall silent, in "
            "other rounds; accepted on --topology mesh, with --hops all, or with a number for --warmup"
        )


def _check_ring(federation: Federation, topology: Topology | None) -> None:
    if federation.merge_precision != "float32" or federation.merge_top_k:
        raise ConfigError("--merge-over ring: accepted with --merge-precision float32 and without --merge-top-k")
    if federation.robust_merge not in ("auto", "off"):
        raise ConfigError(
            f"--merge-over ring: what goes around are sums, which hide who said what, so --robust-merge "
            f"{federation.robust_merge} is not possible; accepted is off (or auto, which is off there). With "
            "--merge-over neighbours it bounds how far each neighbour pulls, and with --topology mesh it holds for all"
        )
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
