"""What all kinds of merges share: announcing a merge, sending runs of parameters, and collecting those of others.

Vectors are sent run by run with few runs in flight, so that a node never holds whole vectors of others. If a merge
fails, the incomplete mean is dropped: a model is always the old one or the new one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from p2p_tally.errors import ParameterError, PeerError
from p2p_tally.ids import NodeName, digest
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.step.waits import USUAL, Leeway
from p2p_tally.protocol.messages import Announce, Shard, Stage
from p2p_tally.protocol.peers import Roster
from p2p_tally.topologies import Topology

# Decodes a run of this many values from a peer's bytes; or raises a ParameterError.
Read = Callable[[bytes, int], Any]


class Gather(Protocol):
    """Waits for what peers send for one part of a stage of a round; returns what came in time, in order of name."""

    def __call__(
        self, stage: Stage, round: int, part: int, peers: Iterable[NodeName], leeway: Leeway = USUAL
    ) -> Awaitable[dict[NodeName, Any]]: ...


class Merged(NamedTuple):
    """The result of a merge at one node."""

    average: np.ndarray | None  # [W]; None: the merge was not completed, and nothing has changed
    kept: np.ndarray | None = None  # [W], the residual for the next merge, if changes were sent
    alone: bool = False  # nobody else announced it
    outer: np.ndarray | None = None  # the mean of the outer states, if they were merged too
    whole: bool = False  # all members took part


FAILED = Merged(None)


class Exchange(Protocol):
    """The merges of one node."""

    async def merge(self, round: int, vector: np.ndarray) -> Merged:
        """Exchange this node's parameters [W] for the mean over the peers."""
        ...


class Peers(NamedTuple):
    """What an exchange needs to reach the other members."""

    name: NodeName  # of this node
    roster: Roster
    outbox: Outbox
    gather: Gather
    refuse: Callable[[NodeName, PeerError], None]  # counts and logs an error of a peer
    least: Callable[[int], int] = lambda _round: 1  # the least number of participants in a merge of a round
    members: Callable[[int], bytes] | None = None  # digest of the members of a round, where there is a members' list
    merges_with: Callable[[NodeName], bool] = lambda _: True  # False: this node does not merge with that peer
    deadline: Callable[[], float | None] = lambda: None  # seconds; None: there are no deadlines
    arriving: Callable[[], float] = lambda: 0.0  # seconds of the last wait in which bytes of those awaited kept coming


def members_digest(topology: Topology) -> Callable[[int], bytes]:
    """The digest of the members of a round, as this node plays it."""
    return lambda round: bytes.fromhex(digest(*(name.encode() for name in sorted(topology.members_at(round)))))[:16]


class Runs:
    """Sends and collects the runs of parameters of one merge."""

    def __init__(self, peers: Peers, round: int) -> None:
        self._peers = peers
        self._round = round
        self.broken = False  # a run is missing, or was refused

    async def announce(self, to: Collection[NodeName], own: Announce) -> dict[NodeName, Announce]:
        """Announce that this node takes part. Returns the announcements of the others, in order of name."""
        expected = self._peers.members(self._round) if self._peers.members is not None else b""
        own = replace(own, members=expected) if expected else own
        self._peers.outbox.broadcast(to, own)
        heard = await self._peers.gather(Stage.ANNOUNCE, self._round, 0, to)
        for peer in [peer for peer, said in heard.items() if said.members != expected]:
            # It has not heard of a change of members, or this node has not: they do not merge in this round.
            self._peers.refuse(peer, PeerError(f"round {self._round} with other members", reason="members"))
            del heard[peer]
        return {peer: said for peer, said in heard.items() if self._peers.merges_with(peer)}

    async def send(self, stage: Stage, part: int, data: Iterable[tuple[NodeName, bytes]]) -> None:
        """Send a run to each peer. Concurrently, so that a slow peer does not delay the others."""
        stream, sending, shard = self._peers.outbox.stream, [], None
        for peer, run in data:
            if shard is None or shard.data is not run:  # a mean goes to all: its checksum is computed once
                shard = Shard(self._round, stage, part, run)
            sending.append(stream(peer, shard))
        await asyncio.gather(*sending)

    async def collect(
        self, stage: Stage, part: int, owed: dict[NodeName, slice], read: Read, leeway: Leeway = USUAL
    ) -> dict[NodeName, Any]:
        """Collect the runs that these peers must send. If one is missing or invalid, the merge is broken."""
        came = await self._peers.gather(stage, self._round, part, owed, leeway)
        parts = {}
        for peer, data in came.items():
            run = owed[peer]
            try:
                parts[peer] = read(data, run.stop - run.start)
            except ParameterError as error:
                self._peers.refuse(peer, error)
        if len(parts) < len(owed):
            self.broken = True
        return parts
