"""Averages with the neighbours, if not all nodes are neighbours of each other. A peer sends degree x |W|.

Neighbours exchange whole vectors and average them with the mixing weights of the graph. With a merge precision the
parameters are rounded when they are sent. With a robust rule, how far each neighbour can pull is limited (clipped
gossip), and one that fails during the merge pulls no further.
"""

import numpy as np

from p2p_tally.defence.means import clipped_gossip
from p2p_tally.defence.rule import rule_for
from p2p_tally.ids import NodeName, in_order
from p2p_tally.learning import merging
from p2p_tally.node.merges.contributions import PLAIN, read_plain
from p2p_tally.node.merges.exchange import FAILED, Merged, Peers, Read, Runs
from p2p_tally.protocol.changes import ChangeFormat, fits
from p2p_tally.protocol.messages import Announce, Stage, Withdraw
from p2p_tally.protocol.segments import runs
from p2p_tally.topologies import Topology


class Mixing:
    """The merges of one node over a sparse graph."""

    def __init__(
        self, peers: Peers, topology: Topology, format: ChangeFormat = PLAIN, robust_merge: str = "off"
    ) -> None:
        self._peers = peers
        self._robust_merge = robust_merge
        self._topology = topology
        self._format = format.dense  # parameters are sent, not changes

    async def merge(self, round: int, vector: np.ndarray) -> Merged:
        """The weighted mean over this node and its neighbours.

        If a neighbour fails during the merge, the others still get all parameters of this node. With rounding the
        result is x + sum of weight x (rounded neighbour - rounded own). So what rounding takes from the values sent
        stays in this node, and a merge of plain means does not change the mean over all peers.
        """
        name, coding = self._peers.name, self._format
        weights = {NodeName(peer): weight for peer, weight in self._topology.weights(name, round).items()}
        exchanged = Runs(self._peers, round)
        heard = await exchanged.announce([peer for peer in weights if peer != name], Announce(round, b""))
        rounds_off = not coding.plain
        if rounds_off and not fits(vector):
            self._peers.outbox.broadcast(heard, Withdraw(round))
            return FAILED
        partners = list(heard)
        closed = in_order([name, *partners])
        scale = 1.0 / sum(weights[peer] for peer in closed)
        weights = {peer: weights[peer] * scale for peer in closed}
        robust = rule_for(self._robust_merge, len(self._topology.members_at(round))) is not None
        result = np.empty_like(vector)
        pieces = runs(slice(0, len(vector)))
        read: Read = coding.decode if rounds_off else read_plain
        for step in range(len(pieces) + 1):
            for run in pieces[step : step + 1]:
                data = coding.encode(vector[run])
                await exchanged.send(Stage.VECTOR, step, ((peer, data) for peer in heard))
            if step >= 1:
                run = pieces[step - 1]
                parts = await exchanged.collect(Stage.VECTOR, step - 1, dict.fromkeys(partners, run), read)
                partners = list(parts)
                own = coding.rounded(vector[run]) if rounds_off else vector[run]
                if robust:
                    shares = [weights[peer] for peer in partners]
                    result[run] = clipped_gossip(vector[run], own, list(parts.values()), shares)
                elif not exchanged.broken:
                    parts[name] = own
                    result[run] = merging.weighted_sum([parts[peer] for peer in closed], list(weights.values()))
                    if rounds_off:
                        result[run] += vector[run] - own
        return FAILED if exchanged.broken and not robust else Merged(result)
