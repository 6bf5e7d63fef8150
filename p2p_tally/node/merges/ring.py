"""Exact averages on a sparse graph: an all-reduce around a ring of links that goes through all members.

Each way round travels one half of the vector, cut into a segment for each place on the ring. Going round once, a
segment gathers everybody's part (scatter); the last to add has the mean, which goes round once more (gather). So a
peer sends 2 (N - 1) / N |W|, whatever the graph, and all end with the same bits.

Both ways at once keep neighbours in step: whoever is ahead waits for what the other has not sent. So nobody holds more
than a few runs of others. If anyone fails, those beside it say Withdraw, and it goes round: the merge is dropped
whole, by all who have not finished it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p2p_tally.ids import NodeName
from p2p_tally.node.merges.contributions import read_plain
from p2p_tally.node.merges.exchange import FAILED, Merged, Peers, Runs
from p2p_tally.protocol.messages import Announce, Stage, Withdraw
from p2p_tally.protocol.segments import runs, segments


@dataclass(frozen=True)
class Way:
    """One way round: from whom and to whom, this node's place on it, and what travels."""

    before: NodeName
    after: NodeName
    place: int
    cut: Sequence[Sequence[slice]]  # the runs of each segment

    def run(self, segment: int, number: int) -> slice | None:
        """A run of a segment; None where this segment has one fewer than others, or none at all."""
        cut = self.cut[segment % len(self.cut)]
        return cut[number] if number < len(cut) else None


def halves(parameters: int, members: int) -> list[list[list[slice]]]:
    """What travels each way round: the runs of each segment. Between two there is one way only."""
    whole = segments(parameters, 1 if members == 2 else 2)
    return [
        [
            runs(slice(half.start + segment.start, half.start + segment.stop))
            for segment in segments(half.stop - half.start, members)
        ]
        for half in whole
    ]


class RingReduce:
    """One node's part in merges around a ring, given in its order."""

    def __init__(self, peers: Peers, ring: Sequence[NodeName]) -> None:
        self._peers = peers
        self._ring = list(ring)

    async def merge(self, round: int, vector: np.ndarray) -> Merged:
        """The mean over all members, the same bits at each."""
        ways = self._ways(len(vector))
        beside = list(dict.fromkeys(peer for way in ways for peer in (way.before, way.after)))
        exchanged = Runs(self._peers, round)
        heard = await exchanged.announce(beside, Announce(round, b""))
        result = vector.astype("<f4")  # a copy
        completed = (
            len(heard) == len(beside)
            and await self._go_round(exchanged, Stage.SCATTER, ways, result)
            and self._divide(ways, result)
            and await self._go_round(exchanged, Stage.GATHER, ways, result)
        )
        if not completed:
            self._peers.outbox.broadcast(beside, Withdraw(round))
            return FAILED._replace(alone=not heard)
        return Merged(result)

    def _ways(self, parameters: int) -> list[Way]:
        count, place = len(self._ring), self._ring.index(self._peers.name)
        before, after = self._ring[place - 1], self._ring[(place + 1) % count]
        cuts = halves(parameters, count)
        ways = [Way(before, after, place, cuts[0])]
        if len(cuts) > 1:
            ways.append(Way(after, before, count - 1 - place, cuts[1]))
        return ways

    async def _go_round(self, exchanged: Runs, stage: Stage, ways: list[Way], result: np.ndarray) -> bool:
        """Everybody passes on, step by step, the segment that it had from the one before it in the last step. False
        where that could not be completed."""
        most = max(len(segment) for way in ways for segment in way.cut)
        steps = (len(self._ring) - 1) * most
        first = 0 if stage is Stage.SCATTER else 1  # the segment that a node begins with: its own, or the one it summed
        # Where a segment has several runs the next one can go out before the last has come.
        ahead = 1 if most > 1 else 0
        for part in range(steps + ahead):
            if part < steps:
                step, number = divmod(part, most)
                sent = [(way.after, way.run(way.place + first - step, number)) for way in ways]
                data = [(peer, result[run].tobytes()) for peer, run in sent if run is not None]
                await exchanged.send(stage, part, data)
            if part >= ahead:
                step, number = divmod(part - ahead, most)
                came = [(way.before, way.run(way.place + first - step - 1, number)) for way in ways]
                owed = {peer: run for peer, run in came if run is not None}
                parts = await exchanged.collect(stage, part - ahead, owed, read_plain)
                if exchanged.broken:
                    return False
                for peer, values in parts.items():
                    result[owed[peer]] = values if stage is Stage.GATHER else result[owed[peer]] + values
        return True

    def _divide(self, ways: list[Way], result: np.ndarray) -> bool:
        """This node was the last to add to these segments. False where it has no mean of them to hand out."""
        for way in ways:
            for run in way.cut[(way.place + 1) % len(way.cut)]:
                result[run] /= np.float32(len(self._ring))
                if not np.isfinite(result[run]).all():  # its own NaN, or an overflow: the others would refuse it
                    return False
        return True
