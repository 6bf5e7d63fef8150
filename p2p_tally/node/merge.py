"""The parameter exchange: from this node's vector to the mean over the peers, over the links.

Where all participants are neighbours of each other (a full mesh), each sums one segment for all the others and hands
the mean out: 2 (N - 1) / N |W| sent a peer, and everybody ends with the same bits. On other graphs neighbours swap
whole vectors and average them with the topology's mixing weights: degree x |W|.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from p2p_tally.ids import NodeName, in_order
from p2p_tally.learning import merging
from p2p_tally.node.mailbox import Mailbox
from p2p_tally.node.outbox import Outbox
from p2p_tally.protocol.frames import CHUNK_BYTES
from p2p_tally.protocol.messages import Shard, Stage

CHUNK = CHUNK_BYTES // 4


def segments(length: int, parts: int) -> list[slice]:
    """`length` cut into `parts` runs that differ by at most one; the longer ones first."""
    short, longer = divmod(length, parts)
    ends = [0]
    for part in range(parts):
        ends.append(ends[-1] + short + (part < longer))
    return [slice(start, end) for start, end in pairwise(ends)]


def expected_lengths(name: NodeName, members: Sequence[NodeName], length: int) -> dict[tuple[NodeName, Stage], int]:
    """What each peer sends this node at each stage of a merge, for the mailbox to hold them to."""
    cut = dict(zip(members, segments(length, len(members)), strict=True))
    own = cut[name].stop - cut[name].start
    lengths: dict[tuple[NodeName, Stage], int] = {}
    for peer in members:
        if peer != name:
            lengths[peer, Stage.VECTOR] = length
            lengths[peer, Stage.SCATTER] = own
            lengths[peer, Stage.GATHER] = cut[peer].stop - cut[peer].start
    return lengths


class MergeExchange:
    """One node's part in the merges of a run."""

    def __init__(self, name: NodeName, members: Sequence[NodeName], mailbox: Mailbox, outbox: Outbox) -> None:
        self.name = name
        self.members = in_order(members)
        self.mailbox = mailbox
        self.outbox = outbox

    async def all_reduce(self, round: int, vector: np.ndarray) -> np.ndarray:
        """The mean over all members, the same bits at each."""
        cut = dict(zip(self.members, segments(len(vector), len(self.members)), strict=True))
        others = [member for member in self.members if member != self.name]
        await self._send(round, Stage.SCATTER, {peer: vector[cut[peer]] for peer in others})
        own = vector[cut[self.name]]
        parts = await self.mailbox.gather(Stage.SCATTER, round, others if len(own) else [])
        summed = (
            merging.mean([own if member == self.name else parts[member] for member in self.members])
            if len(own)
            else own
        )
        await self._send(round, Stage.GATHER, dict.fromkeys(others, summed))
        means = await self.mailbox.gather(
            Stage.GATHER, round, [peer for peer in others if cut[peer].stop > cut[peer].start]
        )
        means[self.name] = summed
        return np.concatenate([means[member] for member in self.members if member in means])

    async def mix(self, round: int, vector: np.ndarray, weights: dict[NodeName, float]) -> np.ndarray:
        """The weighted mean over the closed neighbourhood; `weights` holds this node's own too."""
        neighbours = [peer for peer in weights if peer != self.name]
        await self._send(round, Stage.VECTOR, dict.fromkeys(neighbours, vector))
        vectors = await self.mailbox.gather(Stage.VECTOR, round, neighbours)
        vectors[self.name] = vector
        at_hand = in_order(vectors)
        return merging.weighted_mean([vectors[peer] for peer in at_hand], [weights[peer] for peer in at_hand])

    async def _send(self, round: int, stage: Stage, vectors: dict[NodeName, np.ndarray]) -> None:
        """Each peer its vector, in runs, turn and turn about so that no peer waits for another's last run."""
        longest = max((len(vector) for vector in vectors.values()), default=0)
        for start in range(0, longest, CHUNK):
            for peer, vector in vectors.items():
                run = vector[start : start + CHUNK]
                if len(run):
                    await self.outbox.stream(peer, Shard(round, stage, start, run.astype("<f4", copy=False).tobytes()))
