"""The parameter exchange: from this node's vector to the mean over the peers, over the links.

First everybody says that they take part. Then, where all are neighbours of each other (a full mesh), each sums one
segment for all the others and hands the mean out: 2 (N - 1) / N |W| sent a peer, and everybody ends with the same
bits. On other graphs neighbours swap whole vectors and average them with the topology's mixing weights: degree x |W|.
Where the federation codes its merges, changes since the last one travel in an all-reduce (parcels.py), and rounded
parameters between neighbours.

Vectors go run by run, a few in flight, so nobody holds more of them than one. A mean that a failure left incomplete
is dropped whole: a model is the old one or the new one.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from p2p_tally.errors import ParameterError
from p2p_tally.ids import NodeName, in_order
from p2p_tally.learning import merging
from p2p_tally.learning.feedback import ErrorFeedback
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.merges.contributions import PLAIN, Changes, Merged, Parameters, Parcel, read_plain
from p2p_tally.node.step.mailbox import Mailbox
from p2p_tally.protocol.changes import ChangeFormat, fits
from p2p_tally.protocol.masks import from_mask, to_mask
from p2p_tally.protocol.messages import Announce, Shard, Stage, Withdraw
from p2p_tally.protocol.segments import runs, segments

log = logging.getLogger(__name__)

Read = Callable[[bytes, int], np.ndarray]


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
        format: ChangeFormat = PLAIN,
    ) -> None:
        self.name = name
        self.members = in_order(members)
        self.mailbox = mailbox
        self.outbox = outbox
        self.timeout = timeout
        self.format = format
        self.alone = False  # nobody else announced the last merge
        self._broken = False

    async def all_reduce(self, round: int, vector: np.ndarray, feedback: ErrorFeedback | None = None) -> Merged | None:
        """The mean over the members that take part, the same bits at each; None where it could not be completed.

        With `feedback` changes since its base are sent, if all who take part have that base; else parameters.
        """
        others = [member for member in self.members if member != self.name]
        present = [self.name, *(peer for peer in others if peer not in self.mailbox.silent)]
        own = Announce(round, to_mask(present, self.members), b"" if feedback is None else feedback.name)
        heard = await self._announce(round, others, own)
        self.alone = not heard
        announced = {**heard, self.name: own}
        taking_part = participants({peer: said.present for peer, said in announced.items()}, self.members)
        if self.name not in taking_part:
            # Whoever heard fewer announcements may count this node in.
            self.outbox.broadcast(heard, Withdraw(round))
            return None
        self._broken = False
        if taking_part == [self.name]:
            return Merged(vector)  # the mean over one is no merge that others could build on
        parcel = self._parcel(vector, feedback, [announced[peer].base for peer in taking_part])
        result = None if parcel is None else await self._all_reduce(round, parcel, taking_part)
        if result is None:
            # The others lack what this node has not handed out: they should not wait for it.
            self.outbox.broadcast([peer for peer in taking_part if peer != self.name], Withdraw(round))
        return result

    def _parcel(self, vector: np.ndarray, feedback: ErrorFeedback | None, bases: list[bytes]) -> Parcel | None:
        """What this node puts in: everybody decides alike, by what all who take part announced."""
        if feedback is None:
            return Parameters(vector)
        if set(bases) != {feedback.name}:
            log.info("bases differ: this merge sends whole parameters", extra={"event": "merge-whole"})
            return Parameters(vector, feedback)
        # Since nothing but zeros a change is the model itself, of which every part is needed.
        changes = Changes(vector, feedback, self.format if feedback.base.any() else self.format.dense)
        return changes if changes.fits else None

    async def _all_reduce(self, round: int, parcel: Parcel, members: list[NodeName]) -> Merged | None:
        """Runs are summed and handed out in a pipeline: scatter t, while t - 1 is summed and t - 2 collected."""
        cut = {member: runs(whole) for member, whole in zip(members, segments(len(parcel), len(members)), strict=True)}
        others = [member for member in members if member != self.name]
        mine = cut[self.name]
        longest = max(map(len, cut.values()))
        for step in range(longest + 2):
            await self._send(
                round,
                Stage.SCATTER,
                step,
                ((peer, parcel.send(run)) for peer in others for run in cut[peer][step : step + 1]),
            )
            if 0 <= step - 1 < len(mine):
                run = mine[step - 1]
                parts = await self._collect(round, Stage.SCATTER, step - 1, dict.fromkeys(others, run), parcel.read)
                if self._broken:
                    return None
                parts[self.name] = parcel.own(run)
                mean = parcel.reduce(run, [parts[member] for member in members])
                if mean is None:
                    return None
                await self._send(round, Stage.GATHER, step - 1, ((peer, mean) for peer in others))
            if step >= 2:
                owed = {peer: cut[peer][step - 2] for peer in others if step - 2 < len(cut[peer])}
                collected = await self._collect(round, Stage.GATHER, step - 2, owed, parcel.read)
                for peer, part in collected.items():
                    parcel.take(owed[peer], part)
                if self._broken:
                    return None
        return parcel.close()

    async def mix(self, round: int, vector: np.ndarray, weights: dict[NodeName, float]) -> Merged | None:
        """The weighted mean over the closed neighbourhood; `weights` holds this node's own too.

        Where a neighbour fails in the middle the others still get all of this node's parameters. What rounding takes
        from what they get stays in this node's own: x + sum of weight x (rounded neighbour - rounded own). So a
        merge leaves the mean over all peers where it was.
        """
        neighbours = [peer for peer in weights if peer != self.name]
        heard = await self._announce(round, neighbours, Announce(round, b""))
        coding = self.format.dense  # what is swapped is no change
        rounds_off = not coding.plain
        if rounds_off and not fits(vector):
            self.outbox.broadcast(heard, Withdraw(round))
            return None
        partners = list(heard)
        self._broken = False
        closed = in_order([self.name, *partners])
        scale = 1.0 / sum(weights[peer] for peer in closed)
        result = np.empty_like(vector)
        pieces = runs(slice(0, len(vector)))
        read: Read = coding.decode if rounds_off else read_plain
        for step in range(len(pieces) + 1):
            for run in pieces[step : step + 1]:
                data = coding.encode(vector[run])
                await self._send(round, Stage.VECTOR, step, ((peer, data) for peer in heard))
            if step >= 1:
                run = pieces[step - 1]
                parts = await self._collect(round, Stage.VECTOR, step - 1, dict.fromkeys(partners, run), read)
                partners = list(parts)
                if not self._broken:
                    parts[self.name] = own = coding.rounded(vector[run]) if rounds_off else vector[run]
                    result[run] = merging.weighted_sum(
                        [parts[peer] for peer in closed], [weights[peer] * scale for peer in closed]
                    )
                    if rounds_off:
                        result[run] += vector[run] - own
        return None if self._broken else Merged(result)

    async def _announce(self, round: int, peers: list[NodeName], own: Announce) -> dict[NodeName, Announce]:
        self.outbox.broadcast(peers, own)
        heard: dict[NodeName, Announce] = await self.mailbox.gather(Stage.ANNOUNCE, (round, 0), peers, self.timeout())
        return heard

    async def _send(self, round: int, stage: Stage, part: int, data: Iterable[tuple[NodeName, bytes]]) -> None:
        """Each peer its run. Side by side: a peer that reads slowly holds up no other."""
        await asyncio.gather(*(self.outbox.stream(peer, Shard(round, stage, part, run)) for peer, run in data))

    async def _collect(
        self, round: int, stage: Stage, part: int, owed: dict[NodeName, slice], read: Read
    ) -> dict[NodeName, np.ndarray]:
        """The runs that peers owe this node; one that is missing or bad breaks the merge."""
        came = await self.mailbox.gather(stage, (round, part), owed, self.timeout())
        parts = {}
        for peer, data in came.items():
            run = owed[peer]
            try:
                parts[peer] = read(data, run.stop - run.start)
            except ParameterError as error:
                self.mailbox.arrivals[error.reason] += 1
                log.warning("refused: %s", error, extra={"event": "refused", "peer": peer, "reason": error.reason})
        if len(parts) < len(owed):
            self._broken = True
        return parts
