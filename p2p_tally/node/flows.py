"""Who sends the messages of a round to whom: traffic.py counts the copies of a message, here each has its two ends.

The virtual clock of a simulation needs the ends. Tests check that the copies are those that traffic.py counts, and
those that real nodes send. Ranks are those of traffic.py. Messages of the handshake, for which nobody
waits, are left out.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from p2p_tally.learning.exchanges.exchange import used_links
from p2p_tally.learning.feedback import NAME_BYTES
from p2p_tally.learning.graph import merge_ring
from p2p_tally.learning.schedule import sends_changes
from p2p_tally.node.merges.ring import halves
from p2p_tally.node.traffic import NUMBER_WIDTHS, Handed, Traffic, VotesSent
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.masks import mask_of_all
from p2p_tally.protocol.messages import Announce, Message, Relayed, Shard, Stage
from p2p_tally.protocol.segments import runs
from p2p_tally.topologies import Topology


class Flow(NamedTuple):
    """A message of the right size, and the two ends of each of its copies, as ranks [n]."""

    message: Message
    sender: np.ndarray
    receiver: np.ndarray
    origin: np.ndarray  # who wrote it: the sender, unless it is passed on
    hops: np.ndarray  # links that it has passed when it arrives

    @classmethod
    def direct(cls, message: Message, sender: np.ndarray, receiver: np.ndarray) -> "Flow":
        return cls(message, sender, receiver, sender, np.ones_like(sender))


def flows(
    traffic: Traffic,
    r: int,
    votes: Iterable[VotesSent] = (),
    merge: ChangeFormat | None = None,
    handed: Handed | None = None,
) -> Iterator[Flow]:
    """The flows of round r. The arguments are those of `Traffic.round`."""
    topology, federation = traffic.topology, traffic.federation
    for newcomer, donor, piece in traffic.handovers(r, handed):
        yield Flow.direct(piece, np.array([donor]), np.array([newcomer]))
    ends, others = topology.links(r)
    for message, senders in votes:
        chosen = senders[ends]
        yield Flow.direct(message, ends[chosen], others[chosen])
        if federation.hops != 1 and not topology.is_complete(r):
            yield from _passed_on(topology, r, traffic.federation.hops, message, senders)
    if merge is None:
        return
    ring = merge_ring(federation, topology, r)
    if traffic.exchange is not None:
        yield Flow.direct(Announce(r, b""), ends, others)
        used = used_links(traffic.exchange, federation, topology, r)
        for shard in traffic.by_method(r):
            yield Flow.direct(shard, *used)
    elif ring is not None:
        yield from _around_the_ring(r, np.array([topology.rank(member) for member in ring]), traffic.parameters)
    elif topology.is_complete(r):
        base = bytes(NAME_BYTES) if sends_changes(federation) else b""
        there = np.array([topology.rank(member) for member in topology.members_at(r)])
        yield Flow.direct(Announce(r, mask_of_all(len(there)), base), ends, others)
        for shard in traffic.robust(r, len(there), named=bool(base)):
            yield Flow.direct(shard, ends, others)
        yield from _all_reduce(r, there, traffic.owners(len(there)), merge)
    else:
        yield Flow.direct(Announce(r, b""), ends, others)
        for part, run in enumerate(runs(slice(0, traffic.parameters))):
            data = bytes(merge.dense.size(run.stop - run.start))
            yield Flow.direct(Shard(r, Stage.VECTOR, part, data), ends, others)


def _passed_on(topology: Topology, r: int, hops: int | str, message: Message, senders: np.ndarray) -> Iterator[Flow]:
    """The copies of votes that travel further, together where origin and hops take as many bytes in a frame."""
    reach = topology.reach(r, hops)  # type: ignore[arg-type]
    wanted = (reach.distance > 1) & senders[reach.origin]
    entries = (reach.parent[wanted], reach.member[wanted], reach.origin[wanted], reach.distance[wanted])
    _, _, origin, distance = entries
    for (low, high), (least, most) in product(pairwise(NUMBER_WIDTHS), repeat=2):
        alike = (low <= origin) & (origin < high) & (least <= distance) & (distance < most)
        if alike.any():
            yield Flow(Relayed(low, max(2, least), message), *(column[alike] for column in entries))  # type: ignore[arg-type]


def _all_reduce(
    r: int, there: np.ndarray, runs_owned: dict[tuple[int, int], list[int]], format: ChangeFormat
) -> Iterator[Flow]:
    """`there`: the ranks of the members [n]. `runs_owned`: see `Traffic.owners`."""
    for (part, length), owners in runs_owned.items():
        owner, other = (grid.ravel() for grid in np.meshgrid(np.array(owners), np.arange(len(there)), indexing="ij"))
        apart = owner != other
        owner, other = there[owner[apart]], there[other[apart]]
        data = bytes(format.size(length))
        yield Flow.direct(Shard(r, Stage.SCATTER, part, data), other, owner)
        yield Flow.direct(Shard(r, Stage.GATHER, part, data), owner, other)


def _around_the_ring(r: int, order: np.ndarray, parameters: int) -> Iterator[Flow]:
    """`order`: the ranks in the order of the ring [n]."""
    count, cuts = len(order), halves(parameters, len(order))
    most = max(len(segment) for cut in cuts for segment in cut)
    for way, cut in zip([order, order[::-1]], cuts, strict=False):
        after = np.roll(way, -1)
        yield Flow.direct(Announce(r, b""), way, after)
        for step, number in product(range(count - 1), range(most)):
            sizes = np.array([_length(segment, number) for segment in cut])  # [n], by segment
            for stage, first in ((Stage.SCATTER, 0), (Stage.GATHER, 1)):
                sent = sizes[(np.arange(count) + first - step) % count]  # [n], by place on the ring
                for length in np.unique(sent[sent > 0]).tolist():
                    alike = sent == length
                    message = Shard(r, stage, step * most + number, bytes(ChangeFormat().size(length)))
                    yield Flow.direct(message, way[alike], after[alike])


def _length(segment: list[slice], number: int) -> int:
    return segment[number].stop - segment[number].start if number < len(segment) else 0
