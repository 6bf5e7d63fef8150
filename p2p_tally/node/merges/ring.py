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
from typing import Any

import numpy as np

from p2p_tally.ids import NodeName
from p2p_tally.node.merges.contributions import Merged, read_plain
from p2p_tally.node.merges.exchange import MergeExchange
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


class RingExchange(MergeExchange):
    """One node's part in merges around a ring, given in its order."""

    def __init__(self, ring: Sequence[NodeName], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ring = list(ring)

    async def around(self, round: int, vector: np.ndarray) -> Merged | None:
        """The mean over all members, the same bits at each; None where it could not be completed."""
        ways = self._ways(len(vector))
        beside = list(dict.fromkeys(peer for way in ways for peer in (way.before, way.after)))
        heard = await self._announce(round, beside, Announce(round, b""))
        self.alone = not heard
        self._broken = len(heard) < len(beside)
        result = vector.astype("<f4")  # a copy
        for stage in (Stage.SCATTER, Stage.GATHER):
            if not self._broken:
                await self._go_round(round, stage, ways, result)
            if stage is Stage.SCATTER and not self._broken:
                self._divide(ways, result)
        if self._broken:
            self.outbox.broadcast(beside, Withdraw(round))
            return None
        return Merged(result)

    def _ways(self, parameters: int) -> list[Way]:
        count, place = len(self.ring), self.ring.index(self.name)
        before, after = self.ring[place - 1], self.ring[(place + 1) % count]
        cuts = halves(parameters, count)
        ways = [Way(before, after, place, cuts[0])]
        if len(cuts) > 1:
            ways.append(Way(after, before, count - 1 - place, cuts[1]))
        return ways

    async def _go_round(self, round: int, stage: Stage, ways: list[Way], result: np.ndarray) -> None:
        """Everybody passes on, step by step, the segment that it had from the one before it in the last step."""
        most = max(len(segment) for way in ways for segment in way.cut)
        steps = (len(self.ring) - 1) * most
        first = 0 if stage is Stage.SCATTER else 1  # the segment that a node begins with: its own, or the one it summed
        # Where a segment has several runs the next one can go out before the last has come.
        ahead = 1 if most > 1 else 0
        for part in range(steps + ahead):
            if part < steps:
                step, number = divmod(part, most)
                sent = [(way.after, way.run(way.place + first - step, number)) for way in ways]
                data = [(peer, result[run].tobytes()) for peer, run in sent if run is not None]
                await self._send(round, stage, part, data)
            if part >= ahead:
                step, number = divmod(part - ahead, most)
                came = [(way.before, way.run(way.place + first - step - 1, number)) for way in ways]
                owed = {peer: run for peer, run in came if run is not None}
                parts = await self._collect(round, stage, part - ahead, owed, read_plain)
                if self._broken:
                    return
                for peer, values in parts.items():
                    result[owed[peer]] = values if stage is Stage.GATHER else result[owed[peer]] + values

    def _divide(self, ways: list[Way], result: np.ndarray) -> None:
        """This node was the last to add to these segments."""
        for way in ways:
            for run in way.cut[(way.place + 1) % len(way.cut)]:
                result[run] /= np.float32(len(self.ring))
                if not np.isfinite(result[run]).all():  # this node's own NaN, or an overflow: the others will refuse it
                    self._broken = True
