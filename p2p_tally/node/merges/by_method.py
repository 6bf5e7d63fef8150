"""Merges as the method's row says: over which links, which values, and how they are mixed (`Exchange`).

Announcements go to all neighbours, so that they stay in step; parameters over the links that this merge uses. With a
robust rule no neighbour can pull further than the nearer half of them, and one that fails during the merge pulls no
further.
"""

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.defence.means import nearer_half
from p2p_tally.defence.rule import rule_for
from p2p_tally.ids import NodeName
from p2p_tally.learning.exchanges.exchange import Exchange, Heard, Piece, hears, pieces, sent_count, tells
from p2p_tally.node.merges.contributions import PLAIN, read_plain
from p2p_tally.node.merges.exchange import FAILED, Merged, Peers, Runs
from p2p_tally.protocol.messages import Announce, Stage
from p2p_tally.protocol.segments import runs
from p2p_tally.topologies import Topology


class ByMethod:
    """The merges of one node."""

    def __init__(self, peers: Peers, topology: Topology, federation: Federation, exchange: Exchange) -> None:
        self._peers = peers
        self._topology = topology
        self._federation = federation
        self._exchange = exchange

    async def merge(self, round: int, vector: np.ndarray) -> Merged:
        """Exchange what this node contributes [V W] for what the row's functions make of it and of what comes."""
        name, graph, settings, exchange = self._peers.name, self._topology, self._federation, self._exchange
        exchanged = Runs(self._peers, round)
        near = [NodeName(peer) for peer in graph.neighbours(name, round)]
        there = await exchanged.announce(near, Announce(round, b""))
        givers = [NodeName(peer) for peer in hears(exchange, settings, graph, name, round) if peer in there]
        takers = [NodeName(peer) for peer in tells(exchange, settings, graph, name, round) if peer in there]
        robust = bounded(exchange, settings, graph, round)
        result = np.empty_like(vector)
        whole = {peer: np.empty_like(vector) for peer in givers} if exchange.takes is not None else {}
        cut = list(pieces(len(vector) // exchange.vectors, exchange.vectors, runs))
        for step in range(len(cut) + 1):
            for piece in cut[step : step + 1]:
                sent = [(peer, PLAIN.encode(self._of(vector, piece, name, peer, round))) for peer in takers]
                await exchanged.send(Stage.VECTOR, step, sent)
            if step >= 1:
                piece = cut[step - 1]
                count = sent_count(exchange, settings, piece.length)
                owed = dict.fromkeys(givers, slice(0, count))
                came = await exchanged.collect(Stage.VECTOR, step - 1, owed, read_plain)
                givers = list(came)
                if robust or not exchanged.broken:
                    heard = heard_of(exchange, settings, graph, name, round, piece, vector, came, robust)
                    if exchange.takes is None:
                        result[piece.run] = mixed(exchange, settings, graph, name, round, piece, vector, heard)
                    for peer in whole.keys() & heard.keys():
                        whole[peer][piece.run] = heard[peer].values
        if exchanged.broken and not robust:
            return FAILED
        return Merged(result if exchange.takes is None else np.stack([vector, *(whole[peer] for peer in givers)]))

    def _of(self, vector: np.ndarray, piece: Piece, sender: str, receiver: str, round: int) -> np.ndarray:
        return chosen(self._exchange, self._federation, vector[piece.run], piece, sender, receiver, round)


def bounded(exchange: Exchange, federation: Federation, topology: Topology, round: int) -> bool:
    """Whether --robust-merge limits how far a neighbour can pull."""
    members = len(topology.members_at(round))
    return exchange.bounds and not exchange.keeps_total and rule_for(federation.robust_merge, members) is not None


def chosen(
    exchange: Exchange, federation: Federation, run: np.ndarray, piece: Piece, sender: str, receiver: str, round: int
) -> np.ndarray:
    """The values of a run that travel from one to another."""
    if exchange.places is None:
        return run
    values: np.ndarray = run[exchange.places(federation, sender, receiver, round, piece.part, piece.length)]
    return values


def heard_of(
    exchange: Exchange,
    federation: Federation,
    topology: Topology,
    name: str,
    round: int,
    piece: Piece,
    vector: np.ndarray,
    came: dict[NodeName, np.ndarray],
    robust: bool,
) -> dict[NodeName, Heard]:
    """What came of a run to a member that contributed `vector` [V W], with weights; if `robust`, within bounds."""
    own = vector[piece.run]
    weights = exchange.weights(exchange, federation, topology, name, round, list(came))[piece.vector]
    places = {
        peer: exchange.places and exchange.places(federation, peer, name, round, piece.part, piece.length)
        for peer in came
    }
    values = list(came.values())
    if robust:
        values = nearer_half([own if places[peer] is None else own[places[peer]] for peer in came], values)
    return {peer: Heard(part, places[peer], weights[peer]) for peer, part in zip(came, values, strict=True)}


def mixed(
    exchange: Exchange,
    federation: Federation,
    topology: Topology,
    name: str,
    round: int,
    piece: Piece,
    vector: np.ndarray,
    heard: dict[NodeName, Heard],
) -> np.ndarray:
    """A run after the merge, from a member's own contribution [V W] and what it heard of the run."""
    weights = exchange.weights(exchange, federation, topology, name, round, list(heard))[piece.vector]
    return exchange.mix(vector[piece.run], weights[name], list(heard.values()))
