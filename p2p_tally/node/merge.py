"""The parameter exchange: from this node's vector to the mean over the peers, over the links.

First everybody says that they take part. Then, where all are neighbours of each other (a full mesh), each sums one
segment for all the others and hands the mean out: 2 (N - 1) / N |W| sent a peer, and everybody ends with the same
bits. On other graphs neighbours swap whole vectors and average them with the topology's mixing weights: degree x |W|.

Vectors go run by run, a few in flight, so nobody holds more of them than one. A mean that a failure left incomplete
is dropped whole: a model is the old one or the new one.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from p2p_tally.errors import ParameterError
from p2p_tally.ids import NodeName, in_order
from p2p_tally.learning import merging
from p2p_tally.learning.parameters import checked_vector
from p2p_tally.node.mailbox import Mailbox
from p2p_tally.node.outbox import Outbox
from p2p_tally.protocol.frames import CHUNK_BYTES
from p2p_tally.protocol.masks import from_mask, to_mask
from p2p_tally.protocol.messages import Announce, Shard, Stage, Withdraw

log = logging.getLogger(__name__)

RUN = CHUNK_BYTES // 4  # parameters


def segments(length: int, parts: int) -> list[slice]:
    """`length` cut into `parts` runs that differ by at most one; the longer ones first."""
    short, longer = divmod(length, parts)
    ends = [0]
    for part in range(parts):
        ends.append(ends[-1] + short + (part < longer))
    return [slice(start, end) for start, end in pairwise(ends)]


def runs(whole: slice) -> list[slice]:
    """A segment cut into the runs that travel."""
    return [slice(start, min(start + RUN, whole.stop)) for start in range(whole.start, whole.stop, RUN)]


def participants(announced: dict[NodeName, bytes], members: Sequence[NodeName]) -> list[NodeName]:
    """Those who announced themselves and whom every announcement counts in: all who hear the same agree."""
    taking_part = set(announced)
    for mask in announced.values():
        taking_part &= from_mask(mask, members)
    return in_order(taking_part)


class MergeExchange:
    """One node's part in the merges of a run."""

    def __init__(
        self,
        name: NodeName,
        members: Sequence[NodeName],
        mailbox: Mailbox,
        outbox: Outbox,
        timeout: Callable[[], float | None],
    ) -> None:
        self.name = name
        self.members = in_order(members)
        self.mailbox = mailbox
        self.outbox = outbox
        self.timeout = timeout
        self._broken = False

    async def all_reduce(self, round: int, vector: np.ndarray) -> np.ndarray | None:
        """The mean over the members that take part, the same bits at each; None where it could not be completed."""
        others = [member for member in self.members if member != self.name]
        present = [self.name, *(peer for peer in others if peer not in self.mailbox.silent)]
        own = Announce(round, to_mask(present, self.members))
        heard = await self._announce(round, others, own)
        taking_part = participants({**heard, self.name: own.present}, self.members)
        if self.name not in taking_part:
            # Whoever heard fewer announcements may count this node in.
            self.outbox.broadcast(heard, Withdraw(round))
            return None
        self._broken = False
        result = await self._all_reduce(round, vector, taking_part)
        if result is None:
            # The others lack what this node has not handed out: they should not wait for it.
            self.outbox.broadcast([peer for peer in taking_part if peer != self.name], Withdraw(round))
        return result

    async def _all_reduce(self, round: int, vector: np.ndarray, members: list[NodeName]) -> np.ndarray | None:
        """Runs are summed and handed out in a pipeline: scatter t, while t - 1 is summed and t - 2 collected."""
        cut = {member: runs(whole) for member, whole in zip(members, segments(len(vector), len(members)), strict=True)}
        others = [member for member in members if member != self.name]
        mine = cut[self.name]
        result = np.empty_like(vector)
        longest = max(map(len, cut.values()))
        for step in range(longest + 2):
            await self._send(
                round, Stage.SCATTER, step, {peer: vector[run] for peer in others for run in cut[peer][step : step + 1]}
            )
            if 0 <= step - 1 < len(mine):
                run = mine[step - 1]
                parts = await self._collect(round, Stage.SCATTER, step - 1, dict.fromkeys(others, run))
                if self._broken:
                    return None
                parts[self.name] = vector[run]
                result[run] = merging.mean([parts[member] for member in members])
                if not np.isfinite(result[run]).all():  # this node's own NaN, or an overflow: the others will refuse it
                    return None
                await self._send(round, Stage.GATHER, step - 1, dict.fromkeys(others, result[run]))
            if step >= 2:
                owed = {peer: cut[peer][step - 2] for peer in others if step - 2 < len(cut[peer])}
                for peer, part in (await self._collect(round, Stage.GATHER, step - 2, owed)).items():
                    result[owed[peer]] = part
                if self._broken:
                    return None
        return result

    async def mix(self, round: int, vector: np.ndarray, weights: dict[NodeName, float]) -> np.ndarray | None:
        """The weighted mean over the closed neighbourhood; `weights` holds this node's own too.

        Where a neighbour fails in the middle the others still get all of this node's parameters.
        """
        neighbours = [peer for peer in weights if peer != self.name]
        heard = await self._announce(round, neighbours, Announce(round, b""))
        partners = list(heard)
        self._broken = False
        closed = in_order([self.name, *partners])
        scale = 1.0 / sum(weights[peer] for peer in closed)
        result = np.empty_like(vector)
        pieces = runs(slice(0, len(vector)))
        for step in range(len(pieces) + 1):
            for run in pieces[step : step + 1]:
                await self._send(round, Stage.VECTOR, step, dict.fromkeys(heard, vector[run]))
            if step >= 1:
                run = pieces[step - 1]
                parts = await self._collect(round, Stage.VECTOR, step - 1, dict.fromkeys(partners, run))
                partners = list(parts)
                if not self._broken:
                    parts[self.name] = vector[run]
                    result[run] = merging.weighted_sum(
                        [parts[peer] for peer in closed], [weights[peer] * scale for peer in closed]
                    )
        return None if self._broken else result

    async def _announce(self, round: int, peers: list[NodeName], own: Announce) -> dict[NodeName, bytes]:
        self.outbox.broadcast(peers, own)
        heard = await self.mailbox.gather(Stage.ANNOUNCE, (round, 0), peers, self.timeout())
        return {peer: announce.present for peer, announce in heard.items()}

    async def _send(self, round: int, stage: Stage, part: int, vectors: dict[NodeName, np.ndarray]) -> None:
        """Each peer its run. Side by side: a peer that reads slowly holds up no other."""
        await asyncio.gather(
            *(
                self.outbox.stream(peer, Shard(round, stage, part, run.astype("<f4", copy=False).tobytes()))
                for peer, run in vectors.items()
            )
        )

    async def _collect(
        self, round: int, stage: Stage, part: int, owed: dict[NodeName, slice]
    ) -> dict[NodeName, np.ndarray]:
        """The runs that peers owe this node; one that is missing or bad breaks the merge."""
        came = await self.mailbox.gather(stage, (round, part), owed, self.timeout())
        parts = {}
        for peer, data in came.items():
            run = owed[peer]
            try:
                parts[peer] = checked_vector(np.frombuffer(data, "<f4"), run.stop - run.start)
            except ParameterError as error:
                self.mailbox.arrivals[error.reason] += 1
                log.warning("refused: %s", error, extra={"event": "refused", "peer": peer, "reason": error.reason})
        if len(parts) < len(owed):
            self._broken = True
        return parts
