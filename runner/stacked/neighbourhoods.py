"""One round's graph as arrays: tallies, soft means and mixing over closed neighbourhoods, in O(edges).

Where votes travel several hops, a neighbourhood for tallies is all within reach, in O(pairs within reach).

Owns the adjacency; knows no model. Where all are neighbours of all, no edge is visited: one result serves all peers.
N peers in all, n of this process, m that these hear; P probes, C classes, E entries of the closed neighbourhoods (each
peer's own included). Where all peers are in this process, n and m are N.
"""

from collections.abc import Iterator, Sequence
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

    def __init__(
        self,
        topology: Topology,
        round: int,
        hops: Hops = 1,
        tally_weights: str = "uniform",
        held: Sequence[np.ndarray] | None = None,
        here: int = 0,
    ) -> None:
        """`held`: the ranks that each process holds, ascending; this one is number `here`. By default it holds all."""
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
        self._all_held = [np.arange(self.nodes)] if held is None else held
        self._held = self._all_held[here]  # [n]
        self._here = here
        self._wanted: dict[int, np.ndarray] = {}

    @cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Who counts [E] and who is counted [E], both ascending."""
        own = np.arange(self.nodes)
        linked = self._topology.links(self._round) if self.reach is None else (self.reach.member, self.reach.origin)
        rows, columns = (np.append(ends, own) for ends in linked)
        order = np.lexsort((columns, rows))
        return rows[order], columns[order]

    def wanted(self, process: int) -> np.ndarray:
        """The ranks whose answers or parameters the peers of a process need [m], their own included; ascending."""
        held = self._all_held[process]
        if self.alike and len(held):
            return np.arange(self.nodes)
        if len(held) in (0, self.nodes):
            return held
        if process not in self._wanted:
            rows, columns = self._edges
            self._wanted[process] = np.unique(columns[np.isin(rows, held)])
        return self._wanted[process]

    @cached_property
    def _near(self) -> tuple[np.ndarray, np.ndarray]:
        """`_edges` of the peers here: places of those who count among these n, of those who are counted among the m."""
        rows, columns = self._edges
        if len(self._held) == self.nodes:
            return rows, columns
        own = np.isin(rows, self._held)
        return np.searchsorted(self._held, rows[own]), np.searchsorted(self.wanted(self._here), columns[own])

    # --- sums over neighbourhoods; the first axis is one for all where the graph is complete. Arrays [N] are known
    # everywhere. Others hold the rows of m peers, and what comes of them are the rows of n.

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Each peer's sum of values [N] over its closed neighbourhood: [N], or [1] for all."""
        if self.complete:
            return np.array([values.sum()])
        rows, columns = self._edges
        return np.bincount(rows, values[columns], self.nodes)

    def tally(self, votes: np.ndarray, classes: int, voting: np.ndarray, inverse_agreement: float) -> np.ndarray:
        """Histograms [n, P, C], or [1, P, C], of the votes [m, P] of those who vote [N]; as consensus.from_votes."""
        rows, columns = self._voters(voting)
        groups, (_, probes) = self._groups, votes.shape
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
        """How far the votes [m, P] that each peer hears agree beyond chance [n], or [1] for all."""
        rows, columns = self._voters(voting)
        groups, probes, cells = self._groups, votes.shape[1], classes + 1
        places = (votes[columns] + (rows[:, None] * probes + np.arange(probes)) * cells).ravel()
        counted = np.bincount(places, minlength=groups * probes * cells).reshape(groups, probes, cells)
        return beyond_chance(counted[..., :classes])

    def _tally_of_cast(
        self, rows: np.ndarray, columns: np.ndarray, counted: np.ndarray, cast: np.ndarray, classes: int
    ) -> np.ndarray:
        """Histograms where some have no opinion, a vote of C."""
        groups, probes, cells = self._groups, counted.shape[1], classes + 1
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
        totals, weights = voters, np.ones(len(rows))
        if self._mixing:
            weights = self._mixed[self._held[rows], self.wanted(self._here)[columns]]
            totals = np.bincount(rows, weights, self._groups)
        shares: np.ndarray = weights / totals[rows]
        return shares

    @cached_property
    def _mixed(self) -> csr_array:
        """What mixing over as many rounds as votes have hops would give each vote at each peer [N, N], sparse."""
        rows, columns, values = self._topology.mixing(self._round)
        once = csr_array((values, (rows, columns)), shape=(self.nodes, self.nodes))
        return once if self.reach is None else matrix_power(once, self.reach.furthest)

    @property
    def _groups(self) -> int:
        """How many different results there are."""
        return 1 if self.alike else len(self._held)

    def _voters(self, voting: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.alike:
            columns = np.flatnonzero(voting)
            return np.zeros_like(columns), columns
        rows, columns = self._near
        if voting.all():
            return rows, columns
        speak = voting[self.wanted(self._here)[columns]]
        return rows[speak], columns[speak]

    def heard(self, voting: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Whose answers each peer has, in order of name, and how much each counts (None: all the same).

        One entry for each peer, or a single one where everyone hears the same.
        """
        rows, columns = self._voters(voting)
        groups = self._groups
        shares = self._shares(rows, columns, np.bincount(rows, minlength=groups)) if self._mixing else None
        for first, last in pairwise(np.searchsorted(rows, np.arange(groups + 1))):
            yield columns[first:last], None if shares is None else shares[first:last]

    def mean(self, answers: Tensor, voting: np.ndarray) -> Tensor:
        """Means [n, ...], or [1, ...], of the answers [m, ...] of those who vote [N]."""
        flat = answers.flatten(1)
        if self.alike:
            return flat[torch.from_numpy(np.flatnonzero(voting)).to(flat.device)].mean(0).view(1, *answers.shape[1:])
        rows, columns = self._voters(voting)
        weights = self._shares(rows, columns, np.bincount(rows, minlength=self._groups))
        mean: Tensor = self._matrix(rows, columns, weights, flat) @ flat
        return mean.view(-1, *answers.shape[1:])

    def mix(self, vectors: Tensor) -> Tensor:
        """What a merge with neighbours gives: Metropolis-Hastings means [n, W] of vectors [m, W]."""
        mixed: Tensor = self._matrix(*self._near, self._weights, vectors) @ vectors
        return mixed

    def weighted(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Of each peer here: its place among the m, its closed neighbourhood there, in order of name, and the mixing
        weights in it."""
        rows, columns = self._near
        own = np.searchsorted(self.wanted(self._here), self._held).tolist()
        ends = np.searchsorted(rows, np.arange(len(own) + 1))
        for place, (first, last) in zip(own, pairwise(ends), strict=True):
            yield place, columns[first:last], self._weights[first:last]

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
        rows = (topology.weights(members[rank], self._round).values() for rank in self._held)
        return np.concatenate([np.fromiter(row, float) / sum(row) for row in rows])

    def _matrix(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, of: Tensor) -> Tensor:
        """[n, m], for a product with `of` [m, ...]."""
        return torch.sparse_coo_tensor(
            torch.from_numpy(np.stack([rows, columns])),
            torch.from_numpy(values.astype(np.float32)),
            (len(self._held), len(of)),
            device=of.device,
            is_coalesced=True,  # the entries are in order, and none is there twice
            check_invariants=False,
        )
