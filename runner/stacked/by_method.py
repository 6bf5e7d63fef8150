"""Merges of stacked peers as the method's row says: what node/merges/by_method.py does, on rows of a matrix.

The row's functions are called peer by peer, on the runs that a node would call them on.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.learning.exchanges.code import Layout
from p2p_tally.learning.exchanges.exchange import Exchange, hears, pieces
from p2p_tally.learning.own import Own
from p2p_tally.node.merges.by_method import bounded, chosen, heard_of, mixed
from p2p_tally.node.merges.coded_by_method import as_sent, result_of
from p2p_tally.protocol.segments import runs
from p2p_tally.topologies import Topology

# The rank of a peer -> what its row may do with its own data.
Owners = Callable[[int], Own]


def mixed_by_method(
    contributions: Tensor,
    exchange: Exchange,
    federation: Federation,
    topology: Topology,
    round: int,
    owners: Owners | None = None,
    layout: Layout = (),
) -> Tensor | None:
    """What the merge of a round makes of what the peers contribute [N, V W]; who takes no part keeps its own. `owners`:
    for a row that takes whole models. `layout`: for one with a code. None: what one of them contributes has no code."""
    given = contributions.cpu().numpy()
    if exchange.code is not None:
        return _coded(given, exchange, federation, topology, round, owners, layout, contributions.device)
    result = given.copy()
    robust = bounded(exchange, federation, topology, round)
    cut = list(pieces(given.shape[1] // exchange.vectors, exchange.vectors, runs))
    for name in topology.members_at(round):
        own, near = topology.rank(name), hears(exchange, federation, topology, name, round)
        rows = {NodeName(peer): given[topology.rank(peer)] for peer in near}
        whole = np.stack([given[own], *rows.values()])
        for piece in cut:
            came = {
                peer: chosen(exchange, federation, row[piece.run], piece, peer, name, round)
                for peer, row in rows.items()
            }
            heard = heard_of(exchange, federation, topology, name, round, piece, given[own], came, robust)
            if exchange.takes is None:
                result[own, piece.run] = mixed(exchange, federation, topology, name, round, piece, given[own], heard)
                continue
            for place, peer in enumerate(rows, 1):
                whole[place, piece.run] = heard[peer].values
        if exchange.takes is not None:
            assert owners is not None
            vectors = torch.from_numpy(whole).to(contributions.device)
            taken = exchange.takes(vectors, owners(own), federation).cpu().numpy()
            result[own, : len(taken)] = taken
    width = result.shape[1] - exchange.vectors * exchange.extra if exchange.takes is not None else result.shape[1]
    return torch.from_numpy(result[:, :width]).to(contributions.device)


def _coded(
    given: np.ndarray,
    exchange: Exchange,
    federation: Federation,
    topology: Topology,
    round: int,
    owners: Owners | None,
    layout: Layout,
    device: torch.device,
) -> Tensor | None:
    """The same of vectors that travel in the row's code."""
    there = [topology.rank(name) for name in topology.members_at(round)]
    sent = dict(zip(there, as_sent(exchange, layout, federation, list(given[there])) or [], strict=False))
    if not sent:
        return None
    result = np.hstack([given, np.zeros_like(given)]) if exchange.returns_kept else given.copy()
    robust = bounded(exchange, federation, topology, round)
    for name in topology.members_at(round):
        own = topology.rank(name)
        near = hears(exchange, federation, topology, name, round)
        came = {NodeName(peer): sent[topology.rank(peer)] for peer in near}
        mixed = result_of(exchange, federation, topology, name, round, given[own], sent[own], came, robust)
        if exchange.takes is not None:
            assert owners is not None
            mixed = exchange.takes(torch.from_numpy(mixed).to(device), owners(own), federation).cpu().numpy()
        result[own] = mixed
    return torch.from_numpy(result).to(device)
