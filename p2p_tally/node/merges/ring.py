"""Exact averages on a sparse graph: an all-reduce around a ring of links that contains all members.

In each direction one half of the vector is sent, split into one segment for each place on the ring. A segment goes
around once, and each member adds its values (scatter). The last member to add divides by N, and the mean goes around
once more (gather). So a peer sends 2 (N - 1) / N |W| on any graph, and all end with the same bits.

Sending in both directions at once keeps neighbours in step: a node that is ahead waits for the other direction. So no
node holds more than a few runs of others. If a member fails, its neighbours on the ring send a Withdraw, which is
passed around: all members that have not finished the merge drop it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p2p_tally.ids import NodeName
from p2p_tally.node.merges.contributions import read_plain
from p2p_tally.node.merges.exchange import FAILED, Merged, Peers, Runs
from p2p_tally.node.merges.outer import OuterState
from p2p_tally.protocol.messages import Announce, Stage, Withdraw
from p2p_tally.protocol.segments import runs, segments


@dataclass(frozen=True)
class Direction:
    """One direction around the ring: the neighbours in it, this node's place, and what is sent."""

    before: NodeName  # receives from this neighbour
    after: NodeName  # sends to this neighbour
    place: int
    cut: Sequence[Sequence[slice]]  # the runs of each segment

    def run(self, segment: int, number: int) -> slice | None:
        """A run of a segment; None if this segment has fewer runs."""
        cut = self.cut[segment % len(self.cut)]
        return cut[number] if number < len(cut) else None


def halves(parameters: int, members: int) -> list[list[list[slice]]]:
    """What is sent in each direction: the runs of each segment. With two members there is one direction only."""
    whole = segments(parameters, 1 if members == 2 else 2)
    return [
        [
            runs(slice(half.start + segment.start, half.start + segment.stop))
            for segment in segments(half.stop - half.start, members)
        ]
        for half in whole
    ]


class RingReduce:
    """The merges of one node around a ring; `ring`: the members in its order.

    Nobody hears the announcements of all. So who has seen the last merge fail averages its outer state (`outer`) too,
    and merges only with neighbours that do the same. If a member has not seen it, this merge fails at all, and in the
    next one all do the same.
    """

    def __init__(self, peers: Peers, ring: Sequence[NodeName], outer: OuterState | None = None) -> None:
        self._peers = peers
        self._ring = list(ring)
        self._outer = outer

    async def merge(self, round: int, vector: np.ndarray) -> Merged:
        """The mean over all members: the same bits at each."""
        base = b"" if self._outer is None else self._outer.name
        more = self._outer.vector() if self._outer is not None and base else None
        result = vector.astype("<f4") if more is None else np.concatenate([vector, more], dtype="<f4")  # a copy
        directions = self._directions(len(result))
        beside = list(dict.fromkeys(peer for way in directions for peer in (way.before, way.after)))
        exchanged = Runs(self._peers, round)
        heard = await exchanged.announce(beside, Announce(round, b"", base))
        completed = (
            len(heard) == len(beside)
            and all(bool(said.base) == bool(base) for said in heard.values())
            and await self._go_around(exchanged, Stage.SCATTER, directions, result)
            and self._divide(directions, result)
            and await self._go_around(exchanged, Stage.GATHER, directions, result)
        )
        if not completed:
            self._peers.outbox.broadcast(beside, Withdraw(round))
            return FAILED._replace(alone=not heard)
        count = len(vector)
        return Merged(result[:count], outer=None if more is None else result[count:], whole=True)

    def _directions(self, parameters: int) -> list[Direction]:
        count, place = len(self._ring), self._ring.index(self._peers.name)
        before, after = self._ring[place - 1], self._ring[(place + 1) % count]
        cuts = halves(parameters, count)
        directions = [Direction(before, after, place, cuts[0])]
        if len(cuts) > 1:
            directions.append(Direction(after, before, count - 1 - place, cuts[1]))
        return directions

    async def _go_around(self, exchanged: Runs, stage: Stage, directions: list[Direction], result: np.ndarray) -> bool:
        """In each step every member sends on the segment that it received in the step before. False: a run is missing,
        and the merge has failed."""
        most = max(len(segment) for way in directions for segment in way.cut)
        steps = (len(self._ring) - 1) * most
        first = 0 if stage is Stage.SCATTER else 1  # a node starts with its own segment, or with the one it summed
        # If a segment has several runs, a node sends the next run before it has received the last one.
        ahead = 1 if most > 1 else 0
        for part in range(steps + ahead):
            if part < steps:
                step, number = divmod(part, most)
                sent = [(way.after, way.run(way.place + first - step, number)) for way in directions]
                data = [(peer, result[run].tobytes()) for peer, run in sent if run is not None]
                await exchanged.send(stage, part, data)
            if part >= ahead:
                step, number = divmod(part - ahead, most)
                came = [(way.before, way.run(way.place + first - step - 1, number)) for way in directions]
                owed = {peer: run for peer, run in came if run is not None}
                parts = await exchanged.collect(stage, part - ahead, owed, read_plain)
                if exchanged.broken:
                    return False
                for peer, values in parts.items():
                    result[owed[peer]] = values if stage is Stage.GATHER else result[owed[peer]] + values
        return True

    def _divide(self, directions: list[Direction], result: np.ndarray) -> bool:
        """Divide the segments that this node was the last to add to. False if a mean is not finite."""
        for way in directions:
            for run in way.cut[(way.place + 1) % len(way.cut)]:
                result[run] /= np.float32(len(self._ring))
                if not np.isfinite(result[run]).all():  # NaN or an overflow: the others would refuse it
                    return False
        return True
