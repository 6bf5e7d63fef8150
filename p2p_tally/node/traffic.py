"""The messages that all peers of a federation send in a round: the one model of bytes.

The closed forms, the ledger of the stacked engine and the bytes of a graph all add up what `Traffic.round` yields. Real
nodes count each frame as they send it; tests check that both give the same numbers.

The length of a frame comes from encoding a message of the same size. The number of copies comes from the graph. The
side of a link that dialled masks what it sends, which makes frames longer, so masked copies are counted separately. The
N peers are in order of rank, which is the order of their names. Of two neighbours the one with the smaller rank dials.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.defence.rule import rule_for
from p2p_tally.learning.exchanges.code import Layout
from p2p_tally.learning.exchanges.exchange import pieces, sent_count, used_links
from p2p_tally.learning.feedback import NAME_BYTES
from p2p_tally.learning.graph import merge_ring
from p2p_tally.learning.handed_over import handed_bytes
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.overlap import uses_votes
from p2p_tally.learning.schedule import channel, merges, sends_changes
from p2p_tally.node.formats import merge_formats
from p2p_tally.node.merges.coded_by_method import coded_lengths
from p2p_tally.node.merges.ring import halves
from p2p_tally.node.merges.robust_reduce import robust_messages
from p2p_tally.protocol import frames
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.handover import piece_lengths
from p2p_tally.protocol.handover_messages import DIGEST_BYTES, Piece, State
from p2p_tally.protocol.ledger import Count
from p2p_tally.protocol.masks import mask_of_all
from p2p_tally.protocol.messages import Announce, Here, Message, Ready, Relayed, Shard, Stage, Vote
from p2p_tally.protocol.segments import runs, segments
from p2p_tally.topologies import Topology
from p2p_tally.topologies.reach import Reach

# From each of these on, msgpack needs more bytes for a number.
NUMBER_WIDTHS = (0, 1 << 7, 1 << 8, 1 << 16, 1 << 32)

# A message, and which peers [N] send one of its size.
VotesSent = tuple[Vote | Ready, np.ndarray]

# What a peer of this rank tells a newcomer of itself: when its channel opened, and when it last merged.
Handed = Callable[[int], tuple[int | None, int]]

# For each stage, number and length of a run: how many are sent around a ring, and how many of them are masked.
RingRuns = dict[tuple[Stage, int, int], tuple[int, int]]


class Copies(NamedTuple):
    """A message of the right size (its contents do not matter) and how often it is sent."""

    message: Message
    copies: int
    masked: int  # how many of the copies are masked


class Planned(NamedTuple):
    """A round according to the schedule."""

    round: int
    votes: Sequence[VotesSent]
    merge: ChangeFormat | None  # the format of the merge at its end; None without a merge


def totals(sent: Iterable[Copies]) -> dict[Stage, Count]:
    """Payload and framed bytes by stage, summed over all nodes."""
    counts: dict[Stage, Count] = {}
    for message, copies, masked in sent:
        length = len(frames.encode(message))
        framed = copies * length
        framed += masked * frames.websocket_header(length, masked=True)
        framed += (copies - masked) * frames.websocket_header(length, masked=False)
        counts.setdefault(message.stage, Count()).add(copies * message.payload, framed, copies)
    return counts


def payload(sent: Iterable[Copies]) -> int:
    """Payload bytes only; no frame is encoded for this."""
    return sum(copies * message.payload for message, copies, _ in sent)


class Traffic:
    """What the peers of one federation send, if no peer fails: each message once."""

    def __init__(
        self,
        federation: Federation,
        topology: Topology,
        ballots: BallotFormat,
        parameters: int,
        layout: Layout = (),
    ) -> None:
        """`layout`: of the model's tensors, for methods whose merges travel in a code."""
        self.federation = federation
        self.topology = topology
        self.ballots = ballots
        self.parameters = parameters
        self.nodes = len(topology.members)
        self.exchange = method_of(federation).exchange
        self._layout = layout
        self._counted: dict[int, _LinkCounts] = {}  # by phase of the graph
        self._rings: dict[int, RingRuns] = {}  # the same; of the last one only
        self._owned: dict[int, dict[tuple[int, int], list[int]]] = {}  # by the number of members

    def round(
        self,
        r: int,
        votes: Iterable[VotesSent] = (),
        merge: ChangeFormat | None = None,
        handed: Handed | None = None,
    ) -> Iterator[Copies]:
        """All messages of round r: these votes, and its merge in this format, if it has one.

        `handed`: what a donor of this rank tells a newcomer of itself; by default what the schedule says."""
        for taker, giver, message in self.handovers(r, handed):
            yield Copies(message, 1, int(giver < taker))
        for copies in self._round(r, votes, merge):
            if copies.copies:
                yield copies

    def handovers(self, r: int, handed: Handed | None = None) -> Iterator[tuple[int, int, State | Piece]]:
        """What newcomers get before their first round, each from its first donor: the ranks of both, and a message."""
        handed = handed or self._by_schedule(r)
        for newcomer in self.topology.newcomers(r):
            for donor in self.topology.donors(newcomer, r)[:1]:
                taker, giver = self.topology.rank(newcomer), self.topology.rank(donor)
                size = self._handed_bytes
                yield taker, giver, State(r - 1, *handed(giver), size, bytes(DIGEST_BYTES))
                for part, length in enumerate(piece_lengths(size)):
                    yield taker, giver, Piece(part, bytes(length))

    @cached_property
    def _handed_bytes(self) -> int:
        return handed_bytes(self.federation, self.parameters)

    def _by_schedule(self, r: int) -> Handed:
        federation = self.federation
        warmup = federation.warmup if isinstance(federation.warmup, int) else None
        return lambda _: (warmup, next((before for before in range(r - 1, 0, -1) if merges(federation, before)), 0))

    def planned(self) -> Iterator[Planned]:
        """Every round according to the schedule: while the channel is open all peers send ballots of the largest size.

        What is known only in a run is left out: an automatic warm-up has no rounds, and merges are by the clock.
        """
        federation = self.federation
        warmup = federation.warmup if isinstance(federation.warmup, int) else 0
        formats = merge_formats(federation)
        for r in range(1, federation.rounds + 1):
            speaks = channel(federation, r, warmup).speaks and uses_votes(federation, r)
            votes = [(Vote(r, bytes(self.ballots.largest)), self.everyone)] if speaks else []
            yield Planned(r, votes, next(formats) if merges(federation, r) else None)

    @cached_property
    def everyone(self) -> np.ndarray:
        return np.ones(self.nodes, bool)

    def _round(self, r: int, votes: Iterable[VotesSent], merge: ChangeFormat | None) -> Iterator[Copies]:
        links = self._links(r)
        if r == 1:
            yield links.to_neighbours(Here(0))
        for message, senders in votes:
            yield links.to_neighbours(message, senders)
            for (origin, hops), (copies, masked) in links.relays.items():
                relayed = Relayed(origin, hops, message)
                yield Copies(relayed, int(copies[senders].sum()), int(masked[senders].sum()))
        if merge is None:
            return
        ring = merge_ring(self.federation, self.topology, r)
        if self.exchange is not None:
            yield links.to_neighbours(Announce(r, b""))
            ends, others = used_links(self.exchange, self.federation, self.topology, r)
            for shard in self.by_method(r):
                yield Copies(shard, len(ends), int((ends < others).sum()))
        elif ring is not None:
            yield from self._around_the_ring(r, np.array([self.topology.rank(member) for member in ring]))
        elif self.topology.is_complete(r):
            yield from self._all_reduce(r, links, merge)
        else:
            yield links.to_neighbours(Announce(r, b""))
            for part, run in enumerate(runs(slice(0, self.parameters))):
                # Neighbours exchange parameters, not changes: every value is sent.
                data = bytes(merge.dense.size(run.stop - run.start))
                yield links.to_neighbours(Shard(r, Stage.VECTOR, part, data))

    def _links(self, r: int) -> "_LinkCounts":
        phase = self.topology.phase(r)
        if phase not in self._counted:
            if self.topology.period is None:
                self._counted.clear()  # the graphs never repeat
            self._counted[phase] = _LinkCounts.of(self.topology, r, self.federation)
        return self._counted[phase]

    def by_method(self, r: int) -> Iterator[Shard]:
        """What goes over each link that a merge by the method's row uses."""
        assert self.exchange is not None
        for part, length in self._pieces:
            yield Shard(r, Stage.VECTOR, part, bytes(length))

    @cached_property
    def _pieces(self) -> list[tuple[int, int]]:
        """The messages over a link in a merge by the method's row: their numbers, and the bytes of each."""
        assert self.exchange is not None
        if self.exchange.code is not None:
            return list(enumerate(coded_lengths(self.exchange, self._layout, self.federation)))
        cut = pieces(self.parameters + self.exchange.extra, self.exchange.vectors, runs)
        return [(one.part, 4 * sent_count(self.exchange, self.federation, one.length)) for one in cut]

    def alike(self, r: int) -> int:
        """A number that is the same for rounds that use the same links: the phase of the graph, or where the method
        draws links for each merge the round."""
        return self.topology.phase(r) if self.exchange is None else r

    # --- merges over all peers

    def _all_reduce(self, r: int, links: "_LinkCounts", format: ChangeFormat) -> Iterator[Copies]:
        base = bytes(NAME_BYTES) if sends_changes(self.federation) else b""
        count = len(self.topology.members_at(r))
        yield links.to_neighbours(Announce(r, mask_of_all(count), base))
        for message in self.robust(r, count, named=bool(base)):
            yield links.to_neighbours(message)
        for (part, length), owners in self.owners(count).items():
            # All others send their values of a segment to its owner, and it sends the mean to all of them. The owner is
            # dialled by peers that come before it in order of name, and dials those that come after it.
            before = sum(owners)
            others = len(owners) * (count - 1)
            data = bytes(format.size(length))
            yield Copies(Shard(r, Stage.SCATTER, part, data), others, before)
            yield Copies(Shard(r, Stage.GATHER, part, data), others, others - before)

    def robust(self, r: int, count: int, *, named: bool) -> Iterator[Shard]:
        """What each member sends each other in a robust merge besides runs."""
        rule = rule_for(self.federation.robust_merge, count)
        if rule is not None and count > 1:
            for stage, part, length in robust_messages(self.parameters, count, rule, named=named):
                yield Shard(r, stage, part, bytes(length))

    def owners(self, count: int) -> dict[tuple[int, int], list[int]]:
        """For each number and length of a run: the places, among so many members, whose segments have such a run."""
        if count not in self._owned:
            found: dict[tuple[int, int], list[int]] = {}
            for place, segment in enumerate(segments(self.parameters, count)):
                for part, run in enumerate(runs(segment)):
                    found.setdefault((part, run.stop - run.start), []).append(place)
            self._owned[count] = found
        return self._owned[count]

    def _around_the_ring(self, r: int, order: np.ndarray) -> Iterator[Copies]:
        """`order`: the ranks in the order of the ring [n]."""
        # With two peers there is one direction only.
        directions = [order] if len(order) == 2 else [order, order[::-1]]
        for way in directions:
            yield Copies(Announce(r, b""), len(order), int(_dialling(way).sum()))
        phase = self.topology.phase(r)
        if phase not in self._rings:
            self._rings = {phase: self._ring_runs(directions)}
        for (stage, part, length), (copies, masked) in self._rings[phase].items():
            yield Copies(Shard(r, stage, part, bytes(ChangeFormat().size(length))), copies, masked)

    def _ring_runs(self, directions: Sequence[np.ndarray]) -> RingRuns:
        """How many runs of each length are sent in each stage, and how many of them are masked.

        Run numbers that need the same number of bytes in a frame are counted together, under the smallest of them.
        """
        count = len(directions[0])
        found: Counter[tuple[Stage, int, int]] = Counter()
        dialled: Counter[tuple[Stage, int, int]] = Counter()
        cuts = halves(self.parameters, count)
        most = max(len(segment) for cut in cuts for segment in cut)
        for order, cut in zip(directions, cuts, strict=True):
            dialling = _dialling(order)
            for number in range(most):
                lengths = np.array([_length(segment, number) for segment in cut])  # [N], by segment
                for step, (stage, first) in product(range(count - 1), ((Stage.SCATTER, 0), (Stage.GATHER, 1))):
                    sent = lengths[(np.arange(count) + first - step) % count]  # [N], by place on the ring
                    part = max(width for width in NUMBER_WIDTHS if width <= step * most + number)
                    for length in np.unique(sent[sent > 0]).tolist():
                        found[stage, part, length] += int((sent == length).sum())
                        dialled[stage, part, length] += int((dialling & (sent == length)).sum())
        return {key: (copies, dialled[key]) for key, copies in found.items()}


@dataclass(frozen=True)
class _LinkCounts:
    """The links of one graph, counted once as arrays [N]: later counts need no loop over peers or edges."""

    neighbours: np.ndarray
    dialled: np.ndarray  # how many of its neighbours a peer dials
    # How often the message of each peer is passed on, and how many of those copies are masked. Origins and hops that
    # need the same number of bytes in a frame are counted together; the key is the smallest of them.
    relays: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, topology: Topology, r: int, federation: Federation) -> "_LinkCounts":
        nodes = len(topology.members)
        neighbours = np.array(topology.degrees(r))
        if topology.is_complete(r):
            there = np.zeros(nodes, np.int64)
            there[[topology.rank(member) for member in topology.members_at(r)]] = 1
            after = there.sum() - there.cumsum()  # how many members come after each
            return cls(neighbours, there * after, {})
        ends, others = topology.links(r)
        relays = {} if federation.hops == 1 else _relays(topology.reach(r, federation.hops))
        return cls(neighbours, np.bincount(ends[ends < others], minlength=nodes), relays)

    def to_neighbours(self, message: Message, senders: np.ndarray | None = None) -> Copies:
        """A message from each sender [N] (default: everyone) to all its neighbours."""
        chosen = slice(None) if senders is None else senders
        return Copies(message, int(self.neighbours[chosen].sum()), int(self.dialled[chosen].sum()))


def _relays(reach: Reach) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
    passed_on = reach.distance > 1
    origin, hops = reach.origin[passed_on], reach.distance[passed_on]
    dialled = reach.parent[passed_on] < reach.member[passed_on]
    found = {}
    for (low, high), (least, most) in product(pairwise(NUMBER_WIDTHS), repeat=2):
        alike = (low <= origin) & (origin < high) & (least <= hops) & (hops < most)
        if alike.any():
            copies = np.bincount(origin[alike], minlength=reach.nodes)
            masked = np.bincount(origin[alike & dialled], minlength=reach.nodes)
            found[low, max(2, least)] = copies, masked
    return found


def _dialling(order: np.ndarray) -> np.ndarray:
    """For each place on a ring, whether that peer dials the next one [N]."""
    dialling: np.ndarray = order < np.roll(order, -1)
    return dialling


def _length(segment: Sequence[slice], number: int) -> int:
    return segment[number].stop - segment[number].start if number < len(segment) else 0
