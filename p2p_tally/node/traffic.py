"""The messages that all peers of a federation send in a round: the one model of bytes.

The closed forms, the ledger of the stacked engine and the bytes of a graph all add up what `Traffic.round` yields. Real
nodes book each frame as they send it; tests hold both to the same numbers.

A frame's length comes from the codec, on a message of the same size. How often it is sent comes from the graph. The
side of a link that dialled masks what it sends, which makes a frame longer, so masked copies are counted apart. N peers
in order of rank, which is the order of their names; of two neighbours the one of smaller rank dials.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.learning.feedback import NAME_BYTES
from p2p_tally.learning.graph import merge_ring
from p2p_tally.learning.schedule import channel, merges, sends_changes
from p2p_tally.node.formats import merge_formats
from p2p_tally.node.merges.ring import halves
from p2p_tally.protocol import frames
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.ledger import Count
from p2p_tally.protocol.masks import to_mask
from p2p_tally.protocol.messages import Announce, Here, Message, Ready, Relayed, Shard, Stage, Vote
from p2p_tally.protocol.segments import runs, segments
from p2p_tally.topologies import Topology
from p2p_tally.topologies.reach import Reach

# Where msgpack takes another byte or two for a number.
NUMBER_WIDTHS = (0, 1 << 7, 1 << 8, 1 << 16, 1 << 32)

# A message, and which peers [N] send one of that size.
Said = tuple[Vote | Ready, np.ndarray]


class Copies(NamedTuple):
    """A message of the right size (what it says does not matter) and how often it is sent."""

    message: Message
    copies: int
    masked: int  # those of the copies that a side sends that dialled


class Planned(NamedTuple):
    """A round as the schedule alone has it."""

    round: int
    said: Sequence[Said]
    merge: ChangeFormat | None  # how the merge at its end is written; None where there is none


def totals(sent: Iterable[Copies]) -> dict[Stage, Count]:
    """Payload and framed bytes by stage, as the ledgers of all nodes together have them."""
    counts: dict[Stage, Count] = {}
    for message, copies, masked in sent:
        length = len(frames.encode(message))
        framed = copies * length
        framed += masked * frames.websocket_header(length, masked=True)
        framed += (copies - masked) * frames.websocket_header(length, masked=False)
        counts.setdefault(message.stage, Count()).add(copies * message.payload, framed, copies)
    return counts


def payload(sent: Iterable[Copies]) -> int:
    """Payload bytes alone, which no frame need be written for."""
    return sum(copies * message.payload for message, copies, _ in sent)


class Traffic:
    """What the peers of one federation send. Nobody fails here: all that is due is sent, once."""

    def __init__(self, federation: Federation, topology: Topology, ballots: BallotFormat, parameters: int) -> None:
        self.federation = federation
        self.topology = topology
        self.ballots = ballots
        self.parameters = parameters
        self.nodes = len(topology.members)
        self._counted: dict[int, _Links] = {}  # by phase of the graph

    def round(self, r: int, said: Iterable[Said] = (), merge: ChangeFormat | None = None) -> Iterator[Copies]:
        """All messages of round r: `said` for its probes, and those of its merge, if it has one, written as given."""
        for copies in self._round(r, said, merge):
            if copies.copies:
                yield copies

    def planned(self) -> Iterator[Planned]:
        """Every round by the schedule: all peers speak while the channel is open, with ballots of the largest size.

        What only a run can tell is left out: an automatic warm-up counts as none, and merges keep to the clock.
        """
        federation = self.federation
        warmup = federation.warmup if isinstance(federation.warmup, int) else 0
        formats = merge_formats(federation)
        for r in range(1, federation.rounds + 1):
            speaks = channel(federation, r, warmup).speaks
            said = [(Vote(r, bytes(self.ballots.largest)), self.everyone)] if speaks else []
            yield Planned(r, said, next(formats) if merges(federation, r) else None)

    @cached_property
    def everyone(self) -> np.ndarray:
        return np.ones(self.nodes, bool)

    def _round(self, r: int, said: Iterable[Said], merge: ChangeFormat | None) -> Iterator[Copies]:
        links = self._links(r)
        if r == 1:
            yield links.to_neighbours(Here(0))
        for message, senders in said:
            yield links.to_neighbours(message, senders)
            for (origin, hops), (copies, masked) in links.relays.items():
                relayed = Relayed(origin, hops, message)
                yield Copies(relayed, int(copies[senders].sum()), int(masked[senders].sum()))
        if merge is None:
            return
        if merge_ring(self.federation, self.topology) is not None:
            yield from self._around_the_ring(r)
        elif self.topology.is_complete(r):
            yield from self._all_reduce(r, links, merge)
        else:
            yield links.to_neighbours(Announce(r, b""))
            for part, run in enumerate(runs(slice(0, self.parameters))):
                # Neighbours swap parameters and not changes: every value is sent.
                data = bytes(merge.dense.size(run.stop - run.start))
                yield links.to_neighbours(Shard(r, Stage.VECTOR, part, data))

    def _links(self, r: int) -> "_Links":
        phase = self.topology.phase(r)
        if phase not in self._counted:
            if self.topology.period is None:
                self._counted.clear()  # no graph comes again
            self._counted[phase] = _Links.of(self.topology, r, self.federation)
        return self._counted[phase]

    # --- a merge that everyone takes part in

    def _all_reduce(self, r: int, links: "_Links", format: ChangeFormat) -> Iterator[Copies]:
        base = bytes(NAME_BYTES) if sends_changes(self.federation) else b""
        yield links.to_neighbours(Announce(r, self._mask_of_all, base))
        for (part, length), owners in self._owners.items():
            # All others send a segment's owner their part of it, and it sends all of them the mean. Those before it in
            # name order dial it, those after it are dialled by it.
            before = sum(owners)
            others = len(owners) * (self.nodes - 1)
            data = bytes(format.size(length))
            yield Copies(Shard(r, Stage.SCATTER, part, data), others, before)
            yield Copies(Shard(r, Stage.GATHER, part, data), others, others - before)

    @cached_property
    def _mask_of_all(self) -> bytes:
        names = [NodeName(member) for member in self.topology.members]
        return to_mask(names, names)

    @cached_property
    def _owners(self) -> dict[tuple[int, int], list[int]]:
        """Of each kind of run, by its number and its length: whose segments have one, by rank."""
        found: dict[tuple[int, int], list[int]] = {}
        for rank, segment in enumerate(segments(self.parameters, self.nodes)):
            for part, run in enumerate(runs(segment)):
                found.setdefault((part, run.stop - run.start), []).append(rank)
        return found

    def _around_the_ring(self, r: int) -> Iterator[Copies]:
        for way in self._ways:
            yield Copies(Announce(r, b""), self.nodes, int(_dialling(way).sum()))
        for (stage, part, length), (copies, masked) in self._ring_runs.items():
            yield Copies(Shard(r, stage, part, bytes(ChangeFormat().size(length))), copies, masked)

    @cached_property
    def _ways(self) -> list[np.ndarray]:
        """The ranks in the order of the ring [N], each way round; between two there is one way only."""
        ring = merge_ring(self.federation, self.topology) or ()
        way = np.array([self.topology.rank(member) for member in ring])
        return [way] if len(way) == 2 else [way, way[::-1]]

    @cached_property
    def _ring_runs(self) -> dict[tuple[Stage, int, int], tuple[int, int]]:
        """How many runs of each length go around in each stage, and how many of them are masked.

        Counted apart where the number of a run takes more room in a frame; the smallest such number stands for all.
        """
        count = self.nodes
        found: Counter[tuple[Stage, int, int]] = Counter()
        dialled: Counter[tuple[Stage, int, int]] = Counter()
        cuts = halves(self.parameters, count)
        most = max(len(segment) for cut in cuts for segment in cut)
        for way, cut in zip(self._ways, cuts, strict=True):
            dialling = _dialling(way)
            for number in range(most):
                lengths = np.array([_length(segment, number) for segment in cut])  # [N], by segment
                for step, (stage, first) in product(range(count - 1), ((Stage.SCATTER, 0), (Stage.GATHER, 1))):
                    sent = lengths[(np.arange(count) + first - step) % count]  # [N], by place
                    part = max(width for width in NUMBER_WIDTHS if width <= step * most + number)
                    for length in np.unique(sent[sent > 0]).tolist():
                        found[stage, part, length] += int((sent == length).sum())
                        dialled[stage, part, length] += int((dialling & (sent == length)).sum())
        return {key: (copies, dialled[key]) for key, copies in found.items()}


@dataclass(frozen=True)
class _Links:
    """The links of one graph, counted. Arrays [N]; no peer and no edge is walked again after this."""

    neighbours: np.ndarray
    dialled: np.ndarray  # how many of its neighbours a peer dials
    # How often the message of each peer is passed on, and how many of those copies are masked; by an origin and a
    # number of hops that stand for all that take as much room in a frame.
    relays: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, topology: Topology, r: int, federation: Federation) -> "_Links":
        nodes = len(topology.members)
        neighbours = np.array(topology.degrees(r))
        if topology.is_complete(r):
            return cls(neighbours, np.arange(nodes)[::-1].copy(), {})
        ends, others = topology.links(r)
        relays = {} if federation.hops == 1 else _relays(topology.reach(r, federation.hops))
        return cls(neighbours, np.bincount(ends[ends < others], minlength=nodes), relays)

    def to_neighbours(self, message: Message, senders: np.ndarray | None = None) -> Copies:
        """A message from the senders [N] (everyone) to all neighbours of each."""
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


def _dialling(way: np.ndarray) -> np.ndarray:
    """Of each on a ring, whether it dials the one after it [N]."""
    dialling: np.ndarray = way < np.roll(way, -1)
    return dialling


def _length(segment: Sequence[slice], number: int) -> int:
    return segment[number].stop - segment[number].start if number < len(segment) else 0
