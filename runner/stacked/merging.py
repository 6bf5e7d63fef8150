"""What a merge gives stacked peers: around a ring, over all or with neighbours, coded or not, with the rule that
`--robust-merge` names.

The rules are the nodes' own, applied to the runs that a node would apply them to.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.defence import bounds
from p2p_tally.defence.means import clipped_gossip
from p2p_tally.defence.rule import Rule, rule_for
from p2p_tally.learning import merging
from p2p_tally.learning.exchanges.code import Layout
from p2p_tally.learning.graph import merge_ring
from p2p_tally.learning.methods import method_of
from p2p_tally.protocol.segments import runs, segments
from p2p_tally.runner.stacked.by_method import Owners, mixed_by_method
from p2p_tally.runner.stacked.coded_merge import CodedMerge, MeanOfRun
from p2p_tally.runner.stacked.neighbourhoods import Neighbourhoods
from p2p_tally.topologies import Topology


class Averages(NamedTuple):
    """What a merge gives each peer [N, W], or all of them [1, W]; and what rounding kept back at each [n, W]."""

    average: Tensor | None  # None: it cannot be coded
    kept: np.ndarray | None = None


def averages(
    parameters: Tensor,
    graph: Neighbourhoods,
    federation: Federation,
    topology: Topology,
    round: int,
    coded: CodedMerge | None,
    owners: Owners | None = None,
    layout: Layout = (),
) -> Averages:
    """The merge of a round, of parameters [N, W], or of what peers contribute instead. `layout`: of the model."""
    exchange = method_of(federation).exchange
    if exchange is not None:
        return Averages(mixed_by_method(parameters, exchange, federation, topology, round, owners, layout))
    rule = rule_for(federation.robust_merge, len(topology.members_at(round)))
    if merge_ring(federation, topology, round) is not None:
        return Averages(graph.mean_of_all(parameters))
    if coded is None or graph.there.sum() == 1:  # a peer alone has nobody to send a change to
        if rule is None:
            return Averages(graph.mix(parameters))
        return Averages(
            _robust_mean(parameters, graph, rule) if graph.complete else _gossip(parameters, parameters, graph)
        )
    if graph.complete:
        return Averages(*coded.mean(parameters, graph.there, _mean_of(rule)) or (None,))
    sent = coded.sent_to_neighbours(parameters)
    if sent is None:
        return Averages(None)
    # Each peer adds what rounding took from its own.
    return Averages(graph.mix(sent).add_(parameters - sent) if rule is None else _gossip(parameters, sent, graph))


def _mean_of(rule: Rule | None) -> MeanOfRun:
    """The mean of the runs of all members, as the one at a place among them sums it."""
    if rule is None:
        return lambda parts, _: merging.mean(parts)
    return lambda parts, place: rule.mean([parts[other] for other in bounds.counting(parts, place)])


def _robust_mean(parameters: Tensor, graph: Neighbourhoods, rule: Rule) -> Tensor:
    vectors = graph.present(parameters).cpu().numpy()  # [n, W]
    result = np.empty(vectors.shape[1], np.float32)
    mean_of = _mean_of(rule)
    for place, segment in enumerate(segments(len(result), len(vectors))):
        for run in runs(segment):
            result[run] = mean_of(list(vectors[:, run]), place)
    return torch.from_numpy(result)[None].to(parameters.device)


def _gossip(parameters: Tensor, sent: Tensor, graph: Neighbourhoods) -> Tensor:
    """Clipped gossip at every peer. `sent` [N, W]: what neighbours get."""
    vectors, others = parameters.cpu().numpy(), sent.cpu().numpy()
    result = np.empty_like(vectors)
    for peer, (near, weights) in enumerate(graph.weighted()):
        beside = near != peer
        for run in runs(slice(0, vectors.shape[1])):
            chosen = [others[place, run] for place in near[beside]]
            result[peer, run] = clipped_gossip(vectors[peer, run], others[peer, run], chosen, weights[beside].tolist())
    return torch.from_numpy(result).to(parameters.device)
