"""One round's graph as arrays: tallies, soft means and mixing over closed neighbourhoods, in O(edges).

Where votes travel several hops, a neighbourhood for tallies is all within reach, in O(pairs within reach).

Owns the adjacency; knows no model. Where all are neighbours of all, no edge is visited: one result serves all peers.
N peers, P probes, C classes, E entries of the closed neighbourhoods (each peer's own included).
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import matrix_power
from torch import Tensor

from p2p_tally.learning.consensus import beyond_chance, over_votes_cast
from p2p_tally.topologies import Hops, Topology


class Neighbourhoods:
    """The closed neighbourhoods of one graph. Members are in rank order, which is that of their names."""

    def __init__(self, topology: Topology, round: int, hops: Hops = 1, tally_weights: str = "uniform") -> None:
        self.nodes = len(topology.members)
        self.there = np.zeros(self.nodes, bool)  # [N], who takes part in the round
        self.there[[topology.rank(member) for member in topology.members_at(round)]] = True
        self.complete = topology.is_complete(round)
        self.degree = np.array(topology.degrees(round))  # [N]
        self.reach = None
        if hops != 1 and not self.complete:
            self.reach = topology.reach(round, hops)
            self.complete = self.reach.everyone
            self.degree = self.reach.sizes
        # All hear the same votes and give them the same weights: over a complete graph mixing weights are uniform too.
        self.alike = self.complete and (tally_weights != "mixing" or self.reach is None)
        self._mixing = tally_weights == "mixing" and not self.alike
        self._topology = topology
        self._round = round

    @cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Who counts [E] and who is counted [E], both ascending."""
        own = np.arange(self.nodes)
        linked = self._topology.links(self._round) if self.reach is None else (self.reach.member, self.reach.origin)
        rows, columns = (np.append(ends, own) for ends in linked)
        order = np.lexsort((columns, rows))
        return rows[order], columns[order]

    # --- sums over neighbourhoods; the first axis is one for all where the graph is complete

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Each peer's sum of values [N] over its closed neighbourhood: [N], or [1] for all."""
        if self.complete:
            return np.array([values.sum()])
        rows, columns = self._edges
        return np.bincount(rows, values[columns], self.nodes)

    def tally(self, votes: np.ndarray, classes: int, voting: np.ndarray, inverse_agreement: float) -> np.ndarray:
        """Histograms [N, P, C], or [1, P, C], of the votes [N, P] of those who vote [N]; as consensus.from_votes."""
        rows, columns = self._voters(voting)
        groups, (_, probes) = 1 if self.alike else self.nodes, votes.shape
        counted = votes[columns]  # [E, P]
        cast = counted < classes
        if not cast.all():
            return self._tally_of_cast(rows, columns, counted, cast, classes)
        # Each vote's cell in the flat table; entries are in order of name, so weighted sums add up as a node's do.
        places = (counted + (rows[:, None] * probes + np.arange(probes)) * classes).ravel()
        shape, cells = (groups, probes, classes), groups * probes * classes
        voters = np.bincount(rows, minlength=groups)  # [G]
        base = self._shares(rows, columns, voters)  # [E]
        histogram: np.ndarray
        if self._mixing:
            histogram = np.bincount(places, np.repeat(base, probes), cells).reshape(shape)
        else:
            histogram = np.bincount(places, minlength=cells).reshape(shape) / np.maximum(voters, 1)[:, None, None]
        if inverse_agreement:
            plurality = histogram.astype(np.float32).argmax(2)  # [G, P]
            dissent = 1.0 - (counted == plurality[rows]).mean(1)  # [E]
            total = np.bincount(rows, dissent, groups)[rows]  # [E]
            share = np.where(total > 0, dissent / np.where(total > 0, total, 1.0), base)
            weights = (1.0 - inverse_agreement) * base + inverse_agreement * share
            histogram = np.bincount(places, np.repeat(weights, probes), cells).reshape(shape)
        return histogram.astype(np.float32)

    def beyond_chance(self, votes: np.ndarray, classes: int, voting: np.ndarray) -> np.ndarray:
        """How far the votes [N, P] that each peer hears agree beyond chance [N], or [1] for all."""
        rows, columns = self._voters(voting)
        groups, probes, cells = 1 if self.alike else self.nodes, votes.shape[1], classes + 1
        places = (votes[columns] + (rows[:, None] * probes + np.arange(probes)) * cells).ravel()
        counted = np.bincount(places, minlength=groups * probes * cells).reshape(groups, probes, cells)
        return beyond_chance(counted[..., :classes])

    def _tally_of_cast(
        self, rows: np.ndarray, columns: np.ndarray, counted: np.ndarray, cast: np.ndarray, classes: int
    ) -> np.ndarray:
        """Histograms where some have no opinion, a vote of C."""
        groups, probes, cells = 1 if self.alike else self.nodes, counted.shape[1], classes + 1
        places = (counted + (rows[:, None] * probes + np.arange(probes)) * cells).ravel()
        weights = None
        if self._mixing:
            weights = np.repeat(self._shares(rows, columns, np.bincount(rows, minlength=groups)), probes)
        shape = (groups, probes, cells)
        summed = np.bincount(places, weights, groups * probes * cells).reshape(shape)
        numbers = np.zeros((groups, probes), np.int64)
        np.add.at(numbers, rows, cast)
        return over_votes_cast(summed[..., :classes], numbers)

    def _shares(self, rows: np.ndarray, columns: np.ndarray, voters: np.ndarray) -> np.ndarray:
        """How much each of these entries counts [E]; those of one peer add up to 1."""
        weights = self._mixed[rows, columns] if self._mixing else np.ones(len(rows))
        totals = np.bincount(rows, weights, self.nodes) if self._mixing else voters
        shares: np.ndarray = weights / totals[rows]
        return shares

    @cached_property
    def _mixed(self) -> csr_array:
        """What mixing over as many rounds as votes have hops would give each vote at each peer [N, N], sparse."""
        rows, columns, values = self._topology.mixing(self._round)
        once = csr_array((values, (rows, columns)), shape=(self.nodes, self.nodes))
        return once if self.reach is None else matrix_power(once, self.reach.furthest)

    def _voters(self, voting: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.alike:
            columns = np.flatnonzero(voting)
            return np.zeros_like(columns), columns
        rows, columns = self._edges
        return (rows, columns) if voting.all() else (rows[voting[columns]], columns[voting[columns]])

    def heard(self, voting: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Whose answers each peer has, in order of name, and how much each counts (None: all the same).

        One entry for each peer, or a single one where everyone hears the same.
        """
        rows, columns = self._voters(voting)
        groups = 1 if self.alike else self.nodes
        shares = self._shares(rows, columns, np.bincount(rows, minlength=groups)) if self._mixing else None
        for first, last in pairwise(np.searchsorted(rows, np.arange(groups + 1))):
            yield columns[first:last], None if shares is None else shares[first:last]

    def mean(self, answers: Tensor, voting: np.ndarray) -> Tensor:
        """Means [N, ...], or [1, ...], of the answers [N, ...] of those who vote."""
        flat = answers.flatten(1)
        if self.alike:
            return flat[torch.from_numpy(np.flatnonzero(voting)).to(flat.device)].mean(0).view(1, *answers.shape[1:])
        rows, columns = self._voters(voting)
        voters = np.bincount(rows, minlength=self.nodes)
        weights = self._shares(rows, columns, voters)
        return (self._matrix(rows, columns, weights, flat.device) @ flat).view(answers.shape)

    def mix(self, vectors: Tensor) -> Tensor:
        """What a merge gives: the mean [1, W] over a complete graph, elsewhere Metropolis-Hastings means [N, W]."""
        if self.complete:
            return self.mean_of_all(vectors)
        mixed: Tensor = self._matrix(*self._edges, self._weights, vectors.device) @ vectors
        return mixed

    def weighted(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Each peer's closed neighbourhood, in order of name, and the mixing weights in it."""
        rows, columns = self._edges
        for first, last in pairwise(np.searchsorted(rows, np.arange(self.nodes + 1))):
            yield columns[first:last], self._weights[first:last]

    def mean_of_all(self, vectors: Tensor) -> Tensor:
        """The mean [1, W] of the vectors [N, W] of those who take part."""
        return self.present(vectors).mean(0, keepdim=True)

    def present(self, rows: Tensor) -> Tensor:
        """The rows [n, ...] of those who take part, of all [N, ...]."""
        return rows if self.there.all() else rows[torch.from_numpy(np.flatnonzero(self.there)).to(rows.device)]

    @cached_property
    def _weights(self) -> np.ndarray:
        """Mixing weights [E]; a node takes those of its neighbourhood to add up to 1, and so do we."""
        members, topology = self._topology.members, self._topology
        rows = (topology.weights(member, self._round).values() for member in members)
        return np.concatenate([np.fromiter(row, float) / sum(row) for row in rows])

    def _matrix(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, device: torch.device) -> Tensor:
        return torch.sparse_coo_tensor(
            torch.from_numpy(np.stack([rows, columns])),
            torch.from_numpy(values.astype(np.float32)),
            (self.nodes, self.nodes),
            device=device,
            is_coalesced=True,  # the entries are in order, and none is there twice
            check_invariants=False,
        )
