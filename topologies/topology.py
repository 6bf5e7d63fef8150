"""A topology: which members are neighbours in which round, and their mixing weights.

It has the lookups that every node makes in every round. The schedule draws the edges.
"""

from bisect import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Literal

import networkx as nx
import numpy as np

from p2p_tally.topologies.cycles import ring_through_all
from p2p_tally.topologies.errors import TopologyError
from p2p_tally.topologies.reach import Ranks, Reach
from p2p_tally.topologies.weights import MixingEntries, metropolis_row, mixed_row, mixing_entries

Edge = tuple[int, int]  # two ranks, in either order; repeats are harmless

# How many graphs are kept in memory: enough for all phases of a periodic schedule with up to 2^32 members, and for
# lookups some rounds back. Older graphs of a long run are dropped.
KEPT = 32
# How many reaches are kept in memory: each may have an entry for every pair of members.
REACHES_KEPT = 16

Hops = int | Literal["all"]


@dataclass(frozen=True)
class Schedule:
    """Which edges a round has: phases 0, 1, ... follow each other, each with its own graph."""

    draw: Callable[[int], Iterable[Edge]]  # the edges of a phase: the same ones at each call
    hold: int = 1  # rounds in a phase
    phases: int | None = 1  # after this many phases the first comes again; None: drawn anew without end

    def phase(self, round: int) -> int:
        phase = (round - 1) // self.hold
        return phase if self.phases is None else phase % self.phases


class Topology:
    """A connected graph over the members, or one for each round. Members are in order of rank; rounds start at 1."""

    def __init__(self, name: str, members: Iterable[str], schedule: Schedule) -> None:
        self.name = name
        self.members = tuple(members)
        self._rank = {member: rank for rank, member in enumerate(self.members)}
        self._schedule = schedule
        self._phase = lru_cache(maxsize=KEPT)(self._draw)
        self._reach = lru_cache(maxsize=REACHES_KEPT)(self._spread)

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, {len(self.members)} members)"

    @property
    def period(self) -> int | None:
        """Rounds after which the graphs repeat: 1 if they never change, None if they never repeat."""
        return None if self._schedule.phases is None else self._schedule.phases * self._schedule.hold

    @property
    def hold(self) -> int:
        """Rounds in each phase, if the graph changes."""
        return self._schedule.hold

    @property
    def varies(self) -> bool:
        """Whether the graph may change from round to round."""
        return self.period != 1

    def phase(self, round: int) -> int:
        """The phase of a round: rounds of the same phase have the same graph."""
        return self._schedule.phase(round)

    # --- who takes part; in a plain topology everybody, from the first round to the last (epochs.py: otherwise)

    def members_at(self, round: int) -> tuple[str, ...]:  # noqa: ARG002
        """Those who take part in a round, in order of rank."""
        return self.members

    def newcomers(self, round: int) -> tuple[str, ...]:  # noqa: ARG002
        """The members of a round who were none in the round before. In round 1 nobody is new."""
        return ()

    def donors(self, member: str, round: int) -> tuple[str, ...]:
        """The neighbours of a newcomer that took part in the round before, in order of rank; if there are none, all
        other members that did."""
        before = set(self.members_at(round - 1)) - {member}
        near = tuple(peer for peer in self.neighbours(member, round) if peer in before)
        return near or tuple(peer for peer in self.members_at(round) if peer in before)

    def next_round(self, member: str, round: int) -> int | None:  # noqa: ARG002
        """The first round, from this one on, in which somebody takes part; None: never again."""
        return round

    def next_entry(self, member: str, round: int) -> int | None:  # noqa: ARG002
        """The first round, from this one on, in which somebody is a newcomer; None: in none."""
        return None

    def last_round(self, member: str, rounds: int) -> int:  # noqa: ARG002
        """The last of so many rounds in which somebody takes part; 0: in none."""
        return rounds

    # --- graphs

    def graph(self, round: int = 1) -> nx.Graph:
        """The graph of a round; its nodes are the members in order of rank. It is frozen, because it is shared."""
        return self._at(round).graph

    def union(self, rounds: int | None = None) -> nx.Graph:
        """Every edge of rounds 1 to `rounds`; without `rounds`, every edge that can ever be used.

        A graph drawn anew without end can use any edge: its union is the complete graph, with O(N^2) edges.
        """
        if rounds is None and self.period is None:
            return nx.freeze(_graph(self.members, combinations(self.members, 2)))
        last = rounds if rounds is not None else self.period or 1
        if last < 1:
            raise TopologyError(f"a union over {last} rounds: rounds start at 1")
        phases = {self.phase(round): round for round in range(1, last + 1)}
        if len(phases) == 1:
            return self.graph(last)
        edges = (edge for round in phases.values() for edge in self._at(round).edges())
        return nx.freeze(_graph(self.members, edges))

    def neighbours(self, member: str, round: int = 1) -> tuple[str, ...]:
        """The members that share an edge with this member in a round, in order of rank."""
        phase = self._at(round)
        try:
            return phase.neighbours[member]
        except KeyError:
            raise TopologyError(f"{member!r} is not one of the {len(self.members)} members") from None

    def rank(self, member: str) -> int:
        """The position of a member in the order of ranks, from 0."""
        return self._rank[member]

    def reach(self, round: int, hops: Hops) -> Reach:
        """Who is within this number of hops of whom in the graph of a round, and how messages are passed on."""
        return self._reach(self.phase(round), len(self.members) - 1 if hops == "all" else hops)

    def _spread(self, phase: int, hops: int) -> Reach:
        drawn = self._phase(phase)
        return Reach([[self._rank[peer] for peer in peers] for peers in drawn.neighbours.values()], hops, drawn.present)

    def ring_at(self, round: int) -> tuple[str, ...] | None:  # noqa: ARG002
        """All members of a round in the order of a ring of edges through them; None if there is none or the graph
        changes while the members stay."""
        return self.ring

    @cached_property
    def ring(self) -> tuple[str, ...] | None:
        """The same for the members of all rounds."""
        if self.varies:
            return None
        near = [[self._rank[peer] for peer in peers] for peers in self._at(1).neighbours.values()]
        order = ring_through_all(near)
        return None if order is None else tuple(self.members[rank] for rank in order)

    def mixed_weights(self, member: str, round: int, hops: Hops) -> dict[str, float]:
        """The weight of each member's answer after `hops` rounds of mixing over the graph of this round, in order of
        rank.

        This is the member's row of the weight matrix to the power of `hops`. The power is at most the largest distance
        in the graph; that is also the power for all hops.
        """
        if hops == 1:
            return self.weights(member, round)
        row = mixed_row(self._rank[member], self.mixing(round), self.reach(round, hops).furthest)
        return {self.members[rank]: weight for rank, weight in enumerate(row.tolist()) if weight > 0.0}

    def links(self, round: int = 1) -> tuple[Ranks, Ranks]:
        """Every edge of a round from both ends: the ranks of members, ascending, and the ranks of their neighbours."""
        return self._at(round).links

    def mixing(self, round: int = 1) -> MixingEntries:
        """All Metropolis-Hastings weights of a round, entry by entry."""
        return self._at(round).weights

    def weights(self, member: str, round: int = 1) -> dict[str, float]:
        """Metropolis-Hastings weights of the member and its neighbours, in order of rank; they sum to 1."""
        neighbours = self.neighbours(member, round)
        degrees = self._at(round).neighbours
        own, others = metropolis_row(len(neighbours), [len(degrees[other]) for other in neighbours])
        place = bisect(neighbours, self._rank[member], key=self._rank.__getitem__)
        names = (*neighbours[:place], member, *neighbours[place:])
        return dict(zip(names, (*others[:place], own, *others[place:]), strict=True))

    def degrees(self, round: int = 1) -> tuple[int, ...]:
        """How many neighbours each member has in a round, in order of rank."""
        return self._at(round).degrees

    def is_complete(self, round: int = 1) -> bool:
        """Whether all members are neighbours of each other in a round."""
        return self._at(round).complete

    def _at(self, round: int) -> "Phase":
        if round < 1:
            raise TopologyError(f"round {round}: rounds start at 1")
        return self._phase(self.phase(round))

    def drawn(self, phase: int) -> "Phase":
        """The graph of a phase."""
        return self._phase(phase)

    def _draw(self, phase: int) -> "Phase":
        return Phase(self.members, self._schedule.draw(phase))


class Phase:
    """One graph, stored for lookups. The networkx graph is made only when asked for, because a mesh is large."""

    def __init__(self, members: tuple[str, ...], edges: Iterable[Edge], present: int | None = None) -> None:
        """`present`: how many members take part, all of which have edges unless they are alone; None: all."""
        adjacent: list[list[int]] = [[] for _ in members]
        for one, other in edges:
            adjacent[one].append(other)
            adjacent[other].append(one)
        self.neighbours = {
            member: tuple(members[rank] for rank in sorted(set(ranks)))
            for member, ranks in zip(members, adjacent, strict=True)
        }
        self.degrees = tuple(map(len, self.neighbours.values()))
        self.present = len(members) if present is None else present
        self.complete = sum(self.degrees) == self.present * (self.present - 1)

    def edges(self) -> Iterable[tuple[str, str]]:
        return ((member, other) for member, others in self.neighbours.items() for other in others)

    @cached_property
    def graph(self) -> nx.Graph:
        return nx.freeze(_graph(tuple(self.neighbours), self.edges()))

    @cached_property
    def links(self) -> tuple[Ranks, Ranks]:
        rank = {member: place for place, member in enumerate(self.neighbours)}
        others = (rank[other] for others in self.neighbours.values() for other in others)
        ends = np.repeat(np.arange(len(rank)), self.degrees)
        return ends, np.fromiter(others, np.int64, len(ends))

    @cached_property
    def weights(self) -> MixingEntries:
        """All Metropolis-Hastings weights, entry by entry."""
        rank = {member: place for place, member in enumerate(self.neighbours)}
        near = ([rank[other] for other in others] for others in self.neighbours.values())
        return mixing_entries(list(near))


def _graph(members: tuple[str, ...], edges: Iterable[tuple[str, str]]) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(members)
    graph.add_edges_from(edges)
    return graph
