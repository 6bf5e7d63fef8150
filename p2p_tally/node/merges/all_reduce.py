"""The exact mean on a full mesh: an all-reduce.

First each node announces that it takes part. Then each node sums one segment of the vector for all, and sends the mean
of that segment to all others. Each peer sends 2 (N - 1) / N |W|, and all end with the same bits. With a merge precision
or top-k, the changes since the last merge are sent instead of parameters (contributions.py).
"""

from collections.abc import Callable, Sequence

import numpy as np

from p2p_tally.ids import NodeName, in_order
from p2p_tally.node.merges.contributions import Contribution, Sources
from p2p_tally.node.merges.exchange import FAILED, Merged, Peers, Runs
from p2p_tally.protocol.masks import from_mask, to_mask
from p2p_tally.protocol.messages import Announce, Stage, Withdraw
from p2p_tally.protocol.segments import runs, segments


def participants(announced: dict[NodeName, bytes], members: Sequence[NodeName]) -> list[NodeName]:
    """The members that sent an announcement and are in the mask of every announcement. Nodes that received the same
    announcements get the same result."""
    taking_part = set(announced)
    for mask in announced.values():
        taking_part &= from_mask(mask, members)
    return in_order(taking_part)


class AllReduce:
    """The merges of one node over a mesh."""

    def __init__(
        self,
        peers: Peers,
        sources: Sources | None = None,
        members: Callable[[int], list[NodeName]] | None = None,
    ) -> None:
        """`sources`: of this node's contributions; by default its parameters. `members`: those of a round, in order of
        name; by default all that this node knows."""
        self._peers = peers
        self._sources = sources or Sources()
        self._members = members or (lambda _: in_order([peers.name, *peers.roster]))

    async def merge(self, round: int, vector: np.ndarray) -> Merged:
        """The mean over the members that take part: the same bits at each."""
        name, roster, outbox = self._peers.name, self._peers.roster, self._peers.outbox
        members = self._members(round)
        others = [member for member in members if member != name]
        present = [name, *(peer for peer in others if roster[peer].is_there and self._peers.merges_with(peer))]
        own = Announce(round, to_mask(present, members), self._sources.name)
        exchanged = Runs(self._peers, round)
        heard = await exchanged.announce(others, own)
        announced = {**heard, name: own}
        taking_part = participants({peer: said.present for peer, said in announced.items()}, members)
        if name not in taking_part or len(taking_part) < self._peers.least(round):
            # Nodes that received other announcements may count this node as a participant.
            outbox.broadcast(heard, Withdraw(round))
            return FAILED._replace(alone=not heard)
        if taking_part == [name]:
            # The mean over one node is its own vector; `alone` says whether nobody else announced a merge.
            return Merged(vector, alone=not heard, whole=members == [name])
        own_part = self._sources.make(vector, [announced[peer].base for peer in taking_part])
        result = FAILED if own_part is None else await self._reduce(exchanged, own_part, taking_part)
        if result.average is None:
            # The others must not wait for what this node will not send.
            outbox.broadcast([peer for peer in taking_part if peer != name], Withdraw(round))
        return result._replace(whole=taking_part == members)

    async def _reduce(self, exchanged: Runs, own: Contribution, members: list[NodeName]) -> Merged:
        """A pipeline: in step t run t is sent, run t - 1 is summed, and the mean of run t - 2 is collected."""
        cut = {member: runs(whole) for member, whole in zip(members, segments(len(own), len(members)), strict=True)}
        name = self._peers.name
        others = [member for member in members if member != name]
        mine = cut[name]
        longest = max(map(len, cut.values()))
        for step in range(longest + 2):
            sent = ((peer, own.send(run)) for peer in others for run in cut[peer][step : step + 1])
            await exchanged.send(Stage.SCATTER, step, sent)
            if 0 <= step - 1 < len(mine):
                run = mine[step - 1]
                parts = await exchanged.collect(Stage.SCATTER, step - 1, dict.fromkeys(others, run), own.read)
                if exchanged.broken:
                    return FAILED
                parts[name] = own.own(run)
                mean = own.reduce(run, [parts[member] for member in members])
                if mean is None:
                    return FAILED
                await exchanged.send(Stage.GATHER, step - 1, ((peer, mean) for peer in others))
            if step >= 2:
                owed = {peer: cut[peer][step - 2] for peer in others if step - 2 < len(cut[peer])}
                collected = await exchanged.collect(Stage.GATHER, step - 2, owed, own.read)
                for peer, part in collected.items():
                    own.take(owed[peer], part)
                if exchanged.broken:
                    return FAILED
        return own.close()
