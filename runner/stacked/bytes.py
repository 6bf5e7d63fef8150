"""What every message of a round would take on the links, to the byte, without sending one.

A frame's length comes from the codec itself, on a message of the same size; who sends it to how many comes from the
graph. The side that dialled masks what it sends, so each peer's messages count by how many neighbours it dials.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise, product

import numpy as np

from p2p_tally.ids import ranked_names
from p2p_tally.learning.feedback import NAME_BYTES
from p2p_tally.node.links.outbox import framed_bytes
from p2p_tally.node.merges.ring import halves
from p2p_tally.protocol import frames
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.ledger import Count
from p2p_tally.protocol.masks import to_mask
from p2p_tally.protocol.messages import Announce, Message, Ready, Relayed, Shard, Stage, Vote
from p2p_tally.protocol.segments import runs, segments
from p2p_tally.runner.stacked.coded_merge import CodedMerge
from p2p_tally.runner.stacked.neighbourhoods import Neighbourhoods
from p2p_tally.topologies.reach import Reach

_DIALLING, _DIALLED = ranked_names(2)

# Where msgpack takes another byte or two for a number.
NUMBER_WIDTHS = (0, 1 << 7, 1 << 8, 1 << 16, 1 << 32)

Sent = dict[Stage, Count]


def broadcast(sent: Sent, graph: Neighbourhoods, message: Message, senders: np.ndarray | None = None) -> None:
    """Book a message of this size from the senders [N] (everyone) to all neighbours of each."""
    to, dialled = graph.degree, graph.dialled
    if senders is not None:
        to, dialled = to[senders], dialled[senders]
    _book(sent, message, int(to.sum()), int(dialled.sum()))


def relay(sent: Sent, reach: Reach, word: Vote | Ready, senders: np.ndarray) -> None:
    """Book what the nodes between pass on of a word of this size from the senders [N], down the trees."""
    for (origin, hops), (messages, masked) in _relays(reach).items():
        _book(sent, Relayed(origin, hops, word), int(messages[senders].sum()), int(masked[senders].sum()))


@lru_cache(maxsize=4)
def _relays(reach: Reach) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
    """How often each origin's word is passed on [N], and how often by a side that dialled [N].

    Apart for origins and hops that take different room in a frame; of each such pair one stands for all.
    """
    passed = reach.distance > 1
    origin, hops = reach.origin[passed], reach.distance[passed]
    dialled = reach.parent[passed] < reach.member[passed]
    found = {}
    for low, high in pairwise(NUMBER_WIDTHS):
        for least, most in pairwise(NUMBER_WIDTHS):
            alike = (low <= origin) & (origin < high) & (least <= hops) & (hops < most)
            if alike.any():
                messages = np.bincount(origin[alike], minlength=reach.nodes)
                masked = np.bincount(origin[alike & dialled], minlength=reach.nodes)
                found[low, max(2, least)] = messages, masked
    return found


def merge(sent: Sent, graph: Neighbourhoods, round: int, parameters: int, coded: CodedMerge | None) -> None:
    """Book a merge that everyone takes part in: an all-reduce over a complete graph, else vectors to neighbours."""
    nodes = graph.nodes
    coding = ChangeFormat() if coded is None else coded.coding if graph.complete else coded.coding.dense
    if not graph.complete:
        broadcast(sent, graph, Announce(round, b""))
        for part, run in enumerate(runs(slice(0, parameters))):
            broadcast(sent, graph, Shard(round, Stage.VECTOR, part, bytes(coding.size(run.stop - run.start))))
        return
    names = ranked_names(nodes)
    broadcast(sent, graph, Announce(round, to_mask(names, names), b"" if coded is None else bytes(NAME_BYTES)))
    for (part, length), owners in _owners(nodes, parameters).items():
        # Of a segment's owner all others send it their part, and it sends all of them the mean. Those before it in
        # name order dial it, those after it are dialled by it.
        before = sum(owners)
        others = len(owners) * (nodes - 1)
        data = bytes(coding.size(length))
        _book(sent, Shard(round, Stage.SCATTER, part, data), others, before)
        _book(sent, Shard(round, Stage.GATHER, part, data), others, others - before)


def ring_merge(sent: Sent, ring: tuple[int, ...], round: int, parameters: int) -> None:
    """Book a merge around a ring of ranks that everyone takes part in."""
    ways = [ring] if len(ring) == 2 else [ring, ring[::-1]]
    for way in ways:
        _book(sent, Announce(round, b""), len(way), int(_dialling(way).sum()))
    for (stage, part, length), (messages, masked) in _around(ring, parameters).items():
        _book(sent, Shard(round, stage, part, bytes(4 * length)), messages, masked)


def _dialling(way: tuple[int, ...]) -> np.ndarray:
    """Of each on the ring, whether it dials the one after it [N]."""
    return np.array(way) < np.roll(way, -1)


@lru_cache(maxsize=4)
def _around(ring: tuple[int, ...], parameters: int) -> dict[tuple[Stage, int, int], tuple[int, int]]:
    """How many runs of each length go around in each stage, and how many of them from a side that dialled.

    Apart for numbers of runs that take different room in a frame; the smallest stands for all of them.
    """
    count = len(ring)
    found: Counter[tuple[Stage, int, int]] = Counter()
    dialled: Counter[tuple[Stage, int, int]] = Counter()
    cuts = halves(parameters, count)
    most = max(len(segment) for cut in cuts for segment in cut)
    for way, cut in zip([ring, ring[::-1]], cuts, strict=False):
        dialling = _dialling(way)
        for number in range(most):
            lengths = np.array([_length(segment, number) for segment in cut])  # [N], by segment
            for step, (stage, first) in product(range(count - 1), ((Stage.SCATTER, 0), (Stage.GATHER, 1))):
                sent = lengths[(np.arange(count) + first - step) % count]  # [N], by place
                part = max(width for width in NUMBER_WIDTHS if width <= step * most + number)
                for length in np.unique(sent[sent > 0]).tolist():
                    found[stage, part, length] += int((sent == length).sum())
                    dialled[stage, part, length] += int((dialling & (sent == length)).sum())
    return {key: (messages, dialled[key]) for key, messages in found.items()}


def _length(segment: Sequence[slice], number: int) -> int:
    return segment[number].stop - segment[number].start if number < len(segment) else 0


@lru_cache(maxsize=4)
def _owners(nodes: int, parameters: int) -> dict[tuple[int, int], Sequence[int]]:
    """Of each kind of run, by its number and its length: whose segments have one, by rank."""
    found: dict[tuple[int, int], list[int]] = {}
    for rank, segment in enumerate(segments(parameters, nodes)):
        for part, run in enumerate(runs(segment)):
            found.setdefault((part, run.stop - run.start), []).append(rank)
    return dict(found)


def _book(sent: Sent, message: Message, messages: int, masked: int) -> None:
    """`messages` copies of one, `masked` of them sent by the side that dialled."""
    if not messages:
        return
    length = len(frames.encode(message))
    framed = masked * framed_bytes(_DIALLING, _DIALLED, length)
    framed += (messages - masked) * framed_bytes(_DIALLED, _DIALLING, length)
    sent.setdefault(message.stage, Count()).add(messages * message.payload, framed, messages)
