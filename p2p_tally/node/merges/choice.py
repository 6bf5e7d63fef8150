"""Which kind of merge a federation uses on its graph."""

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.defence.rule import rule_for
from p2p_tally.ids import NodeName, in_order
from p2p_tally.learning.exchanges.code import Layout
from p2p_tally.learning.feedback import ErrorFeedback
from p2p_tally.learning.graph import merge_ring
from p2p_tally.learning.methods import method_of
from p2p_tally.node.formats import merge_format
from p2p_tally.node.merges.all_reduce import AllReduce
from p2p_tally.node.merges.by_method import ByMethod
from p2p_tally.node.merges.coded_by_method import CodedByMethod
from p2p_tally.node.merges.contributions import Sources
from p2p_tally.node.merges.exchange import Exchange, Merged, Peers
from p2p_tally.node.merges.mixing import Mixing
from p2p_tally.node.merges.outer import OuterState
from p2p_tally.node.merges.ring import RingReduce
from p2p_tally.node.merges.robust_reduce import RobustReduce
from p2p_tally.topologies import Topology


def make_exchange(
    federation: Federation,
    topology: Topology,
    peers: Peers,
    feedback: ErrorFeedback | None,
    outer: OuterState,
    layout: Layout = (),
) -> Exchange:
    """`layout`: of the model's tensors, for methods whose merges travel in a code."""
    by_method = method_of(federation).exchange
    if by_method is not None and by_method.code is not None:
        return CodedByMethod(peers, topology, federation, by_method, layout)
    if by_method is not None:
        return ByMethod(peers, topology, federation, by_method)
    return ByGraph(federation, topology, peers, feedback, outer)


class ByGraph:
    """Around the ring of a round if merges go around one. If not, the exact mean in rounds in which all members are
    neighbours, and mixing with the neighbours in all other rounds."""

    def __init__(
        self,
        federation: Federation,
        topology: Topology,
        peers: Peers,
        feedback: ErrorFeedback | None,
        outer: OuterState,
    ) -> None:
        self._federation = federation
        self._topology = topology
        self._peers = peers
        coding = merge_format(federation)
        self._outer = outer
        sources = Sources(coding, feedback, outer)
        self._among_all = AllReduce(peers, sources, self._members)
        self._robust = RobustReduce(peers, federation.robust_merge, sources, self._members)
        self._with_neighbours = Mixing(peers, topology, coding, federation.robust_merge)

    def _members(self, round: int) -> list[NodeName]:
        return in_order(NodeName(member) for member in self._topology.members_at(round))

    async def merge(self, round: int, vector: np.ndarray) -> Merged:
        exchange = self._exchange(round)
        merged = await exchange.merge(round, vector)
        # Where neighbours mix, each node has an outer state of its own.
        return merged if exchange is self._with_neighbours else self._outer.settle(merged)

    def _exchange(self, round: int) -> Exchange:
        ring = merge_ring(self._federation, self._topology, round)
        if ring is not None:
            return RingReduce(self._peers, [NodeName(member) for member in ring], self._outer)
        if not self._topology.is_complete(round):
            return self._with_neighbours
        rule = rule_for(self._federation.robust_merge, len(self._topology.members_at(round)))
        return self._among_all if rule is None else self._robust
