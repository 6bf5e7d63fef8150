"""Which kind of merge a federation uses on its graph."""

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.learning.feedback import ErrorFeedback
from p2p_tally.learning.graph import merge_ring
from p2p_tally.node.formats import merge_format
from p2p_tally.node.merges.all_reduce import AllReduce
from p2p_tally.node.merges.exchange import Exchange, Merged, Peers
from p2p_tally.node.merges.mixing import Mixing
from p2p_tally.node.merges.ring import RingReduce
from p2p_tally.topologies import Topology


def make_exchange(federation: Federation, topology: Topology, peers: Peers, feedback: ErrorFeedback | None) -> Exchange:
    ring = merge_ring(federation, topology)
    if ring is not None:
        return RingReduce(peers, [NodeName(member) for member in ring])
    coding = merge_format(federation)
    return ByGraph(topology, AllReduce(peers, coding, feedback), Mixing(peers, topology, coding))


class ByGraph:
    """The exact mean in rounds in which all nodes are neighbours; mixing with the neighbours in all other rounds."""

    def __init__(self, topology: Topology, among_all: Exchange, with_neighbours: Exchange) -> None:
        self._topology = topology
        self._among_all = among_all
        self._with_neighbours = with_neighbours

    async def merge(self, round: int, vector: np.ndarray) -> Merged:
        exchange = self._among_all if self._topology.is_complete(round) else self._with_neighbours
        return await exchange.merge(round, vector)
