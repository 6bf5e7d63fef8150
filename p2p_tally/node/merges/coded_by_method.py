"""Merges of a method's row whose vectors travel in a code of the row (`Exchange.code`), not as float32.

A code is of whole tensors, so a node holds the vectors of its neighbours until all have come. What coding took from a
node's own vector stays with it: the vectors that are mixed are those that travelled, its own included, and the
difference between its vector and what travelled of it is added afterwards. So nothing is lost, and where the weights
keep the mean over all peers, so does the merge.
"""

from collections.abc import Sequence

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.errors import ParameterError
from p2p_tally.ids import NodeName
from p2p_tally.learning.exchanges.code import Layout, decode, encode, size_of
from p2p_tally.learning.exchanges.exchange import Exchange, hears, pieces, tells
from p2p_tally.node.merges.by_method import bounded, heard_of, mixed
from p2p_tally.node.merges.exchange import FAILED, Merged, Peers, Runs
from p2p_tally.protocol.changes import fits
from p2p_tally.protocol.handover import piece_lengths
from p2p_tally.protocol.messages import Announce, Stage, Withdraw
from p2p_tally.protocol.segments import runs
from p2p_tally.topologies import Topology


class CodedByMethod:
    """The merges of one node."""

    def __init__(
        self, peers: Peers, topology: Topology, federation: Federation, exchange: Exchange, layout: Layout
    ) -> None:
        self._peers = peers
        self._topology = topology
        self._federation = federation
        self._exchange = exchange
        self._layout = layout

    async def merge(self, round: int, vector: np.ndarray) -> Merged:
        """Exchange what this node contributes [V W] for what the row's functions make of it and of what comes."""
        name, graph, settings, exchange = self._peers.name, self._topology, self._federation, self._exchange
        exchanged = Runs(self._peers, round)
        near = [NodeName(peer) for peer in graph.neighbours(name, round)]
        there = await exchanged.announce(near, Announce(round, b""))
        if not fits(vector):
            self._peers.outbox.broadcast(there, Withdraw(round))
            return FAILED
        givers = [NodeName(peer) for peer in hears(exchange, settings, graph, name, round) if peer in there]
        takers = [NodeName(peer) for peer in tells(exchange, settings, graph, name, round) if peer in there]
        robust = bounded(exchange, settings, graph, round)
        data = self._encode(vector)
        parts: dict[NodeName, list[bytes]] = {peer: [] for peer in givers}
        lengths = piece_lengths(len(data))
        for step in range(len(lengths) + 1):
            if step < len(lengths):
                start = sum(lengths[:step])
                sent = data[start : start + lengths[step]]
                await exchanged.send(Stage.VECTOR, step, ((peer, sent) for peer in takers))
            if step >= 1:
                owed = dict.fromkeys(parts, slice(0, lengths[step - 1]))
                came = await exchanged.collect(Stage.VECTOR, step - 1, owed, whole)
                parts = {peer: [*parts[peer], came[peer]] for peer in came}
        vectors = {}
        for peer, pieces_of_it in parts.items():
            try:
                vectors[peer] = self._decode(b"".join(pieces_of_it), len(vector))
            except ParameterError as error:
                self._peers.refuse(peer, error)
        if len(vectors) < len(givers) and not robust:
            return FAILED
        own = self._decode(data, len(vector))
        return Merged(result_of(exchange, settings, graph, name, round, vector, own, vectors, robust))

    def _encode(self, vector: np.ndarray) -> bytes:
        assert self._exchange.code is not None
        return encode(self._exchange.code, vector, self._layout, self._federation)

    def _decode(self, data: bytes, length: int) -> np.ndarray:
        assert self._exchange.code is not None
        vector = decode(self._exchange.code, data, length, self._layout, self._federation)
        if not fits(vector):
            raise ParameterError("NaN, infinity or an absurdly large value", reason="not-finite")
        return vector


def whole(data: bytes, length: int) -> bytes:
    """A part of a coded vector from a peer; or a ParameterError."""
    if len(data) != length:
        raise ParameterError(f"{len(data)} bytes instead of {length} of a coded vector", reason="shape")
    return data


def coded_lengths(exchange: Exchange, layout: Layout, federation: Federation) -> list[int]:
    """The bytes of each message that takes a contribution to a neighbour."""
    assert exchange.code is not None
    return piece_lengths(size_of(exchange.code, layout, exchange.vectors, federation))


def result_of(
    exchange: Exchange,
    federation: Federation,
    topology: Topology,
    name: str,
    round: int,
    vector: np.ndarray,
    sent: np.ndarray,
    came: dict[NodeName, np.ndarray],
    robust: bool,
) -> np.ndarray:
    """What a member that contributed `vector` [V W], of which `sent` travelled, makes of what came: the vector after
    the merge, or for a row that chooses from whole vectors its own and those that came [1 + k, V W]. Where the row's
    merge step is told what coding kept, that is behind the vector [2 V W]."""
    cut = pieces(len(vector) // exchange.vectors, exchange.vectors, runs)
    result = np.empty_like(vector)
    gathered = {peer: np.empty_like(vector) for peer in came} if exchange.takes is not None else {}
    for piece in cut:
        runs_of = {peer: values[piece.run] for peer, values in came.items()}
        heard = heard_of(exchange, federation, topology, name, round, piece, sent, runs_of, robust)
        for peer, values in gathered.items():
            values[piece.run] = heard[peer].values
        if exchange.takes is None:
            result[piece.run] = mixed(exchange, federation, topology, name, round, piece, sent, heard)
    if exchange.takes is not None:
        return np.stack([vector, *gathered.values()])
    kept = vector - sent
    return np.concatenate([result, kept]) if exchange.returns_kept else result + kept


def as_sent(
    exchange: Exchange, layout: Layout, federation: Federation, vectors: Sequence[np.ndarray]
) -> list[np.ndarray] | None:
    """What travels of the contributions of many, as those who receive it have it; None where one cannot be coded."""
    code = exchange.code
    assert code is not None
    if not all(fits(vector) for vector in vectors):
        return None
    coded = [encode(code, vector, layout, federation) for vector in vectors]
    return [decode(code, data, len(vector), layout, federation) for data, vector in zip(coded, vectors, strict=True)]
