"""A topology whose members change at given rounds: an epoch for each time, with a plain topology over its members.

Ranks are those among all who are ever a member. Who does not take part in a round has no neighbours in it, and is
nobody's neighbour. Epochs can be added while rounds are played: new members then get the ranks after the last.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from p2p_tally.topologies.errors import TopologyError
from p2p_tally.topologies.topology import Phase, Schedule, Topology

# A phase is one number: that of its epoch, and below these bits the phase of the epoch's own topology.
PHASE_BITS = 32


class Epoch(NamedTuple):
    """The graph of all rounds from `first` to the next epoch. Its members are those of these rounds."""

    first: int
    topology: Topology


class Epochs(Topology):
    """Topologies that follow each other."""

    def __init__(self, epochs: Iterable[tuple[int, Topology]], members: Iterable[str] = ()) -> None:
        """The first epoch begins with round 1. `members`: everybody who is ever a member, in order of rank; by default
        in the order in which the epochs name them."""
        self._epochs: list[Epoch] = []
        self._firsts: list[int] = []
        self._sets: list[frozenset[str]] = []  # the members of each epoch
        given = [Epoch(*epoch) for epoch in epochs]
        if not given or given[0].first != 1:
            raise TopologyError("members that change: the first epoch must begin with round 1")
        super().__init__(given[0].topology.name, members, Schedule(lambda _: (), phases=None))
        for epoch in given:
            self.extend(*epoch)

    def extend(self, first: int, topology: Topology, ranks: Iterable[str] = ()) -> None:
        """From round `first` on these are the members and this is the graph. Epochs that would begin then or later are
        dropped. The caller sees to it that no such round has been played. `ranks`: new members in the order of their
        ranks; by default as in the graph."""
        if first < 1 or (not self._firsts and first != 1):
            raise TopologyError(f"members that change at round {first}: rounds start at 1")
        kept = bisect_right(self._firsts, first - 1)
        self._epochs = [*self._epochs[:kept], Epoch(first, topology)]
        self._firsts = [*self._firsts[:kept], first]
        self._sets = [*self._sets[:kept], frozenset(topology.members)]
        new = [member for member in dict.fromkeys((*ranks, *topology.members)) if member not in self._rank]
        self.members = (*self.members, *new)
        self._rank = {member: rank for rank, member in enumerate(self.members)}
        self._phase.cache_clear()
        self._reach.cache_clear()

    # --- who takes part

    def members_at(self, round: int) -> tuple[str, ...]:
        return self._epoch(round).topology.members

    def newcomers(self, round: int) -> tuple[str, ...]:
        number = self._number(round)
        if not number or self._firsts[number] != round:
            return ()
        return tuple(m for m in self._epochs[number].topology.members if m not in self._sets[number - 1])

    def next_round(self, member: str, round: int) -> int | None:
        number = self._number(round)
        ahead = (
            max(round, epoch.first)
            for epoch, there in zip(self._epochs[number:], self._sets[number:], strict=True)
            if member in there
        )
        return next(ahead, None)

    def next_entry(self, member: str, round: int) -> int | None:
        firsts = (first for first in self._firsts[1:] if first >= round)
        return next((first for first in firsts if member in self.newcomers(first)), None)

    def last_round(self, member: str, rounds: int) -> int:
        ends = [*(first - 1 for first in self._firsts[1:]), rounds]
        spans = zip(self._firsts, ends, self._sets, strict=True)
        played = (min(end, rounds) for first, end, there in spans if member in there and first <= rounds)
        return max(played, default=0)

    # --- graphs

    def phase(self, round: int) -> int:
        number = self._number(round)
        return number << PHASE_BITS | self._epochs[number].topology.phase(round)

    def ring_at(self, round: int) -> tuple[str, ...] | None:
        return self._epoch(round).topology.ring

    def _epoch(self, round: int) -> Epoch:
        return self._epochs[self._number(round)]

    def _number(self, round: int) -> int:
        return max(0, bisect_right(self._firsts, round) - 1)

    def _draw(self, phase: int) -> Phase:
        number, own = phase >> PHASE_BITS, phase & ((1 << PHASE_BITS) - 1)
        topology = self._epochs[number].topology
        near = topology.drawn(own).neighbours
        edges = ((self._rank[member], self._rank[peer]) for member, peers in near.items() for peer in peers)
        return Phase(self.members, edges, present=len(topology.members))
