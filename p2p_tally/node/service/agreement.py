"""What nodes compare when they meet: the values that all must share, and those that they are only told."""

from collections.abc import Mapping
from typing import Any

from p2p_tally.config import Federation
from p2p_tally.ids import digest
from p2p_tally.learning.graph import merge_ring
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.schedule import begin_alike
from p2p_tally.learning.setup import Task
from p2p_tally.learning.start import frozen_digest
from p2p_tally.protocol.handshake import TOLD, agreed_fields
from p2p_tally.topologies import Topology


def graph_values(federation: Federation, topology: Topology) -> dict[str, Any]:
    """Where every node knows all members: who they are, and their graph."""
    values: dict[str, Any] = {"members": digest(*(member.encode() for member in topology.members))[:16]}
    edges = sorted("\t".join(sorted(edge)) for edge in topology.union(federation.rounds).edges)
    values["graph"] = digest(*(edge.encode() for edge in edges))[:16]
    ring = merge_ring(federation, topology)
    if ring is not None:
        values["ring"] = digest(*(member.encode() for member in ring))[:16]
    return values


def shared_values(
    task: Task, learner: Learner, graph: Mapping[str, Any], without: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """The values that every neighbour must share with this node, and those that it is only told. `without`: options
    that nodes do not compare."""
    federation = task.federation
    values: dict[str, Any] = {name: value for name, value in federation.agreed().items() if name not in without}
    values |= graph
    values["classes"] = task.classes
    values["probe set"] = task.probes.digest()[:16]
    if federation.merge_every:
        values["parameters"] = f"{len(learner.parameters)} ({learner.parameters.schema[:16]})"
        frozen = frozen_digest(learner.model)
        if frozen is not None:
            values["frozen parameters"] = frozen[:16]
    if federation.init is not None and begin_alike(federation):
        values["first parameters"] = learner.parameters.sha256()[:16]
    return agreed_fields(values | {name: getattr(federation, name) for name in TOLD})
