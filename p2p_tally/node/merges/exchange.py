"""What every kind of merge shares: announcing it, sending runs of parameters, collecting those of others.

Vectors go run by run, a few in flight, so nobody holds more of them than one. A mean that a failure left incomplete
is dropped whole: a model is the old one or the new one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np

from p2p_tally.errors import ParameterError, PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.protocol.messages import Announce, Shard, Stage
from p2p_tally.protocol.peers import Roster

# A run of so many values from a peer's bytes; or a ParameterError.
Read = Callable[[bytes, int], np.ndarray]

# What peers send for a part of a stage of a round, in order of name, before their deadlines.
Gather = Callable[[Stage, int, int, Iterable[NodeName]], Awaitable[dict[NodeName, Any]]]


class Merged(NamedTuple):
    """What a merge gave a node."""

    average: np.ndarray | None  # [W]; None: it was not completed, and all is as it was
    kept: np.ndarray | None = None  # [W] kept back for the next merge, where all peers came out of this one alike
    alone: bool = False  # nobody else announced it


FAILED = Merged(None)


class Exchange(Protocol):
    """One node's part in the merges of a run."""

    async def merge(self, round: int, vector: np.ndarray) -> Merged:
        """From this node's parameters [W] to the mean over the peers."""
        ...


class Peers(NamedTuple):
    """The other members, as an exchange needs them."""

    name: NodeName  # this node's own
    roster: Roster
    outbox: Outbox
    gather: Gather
    refuse: Callable[[NodeName, PeerError], None]  # count and log what a peer did wrong


class Runs:
    """The runs of parameters of one merge: out to peers, and in from them."""

    def __init__(self, peers: Peers, round: int) -> None:
        self._peers = peers
        self._round = round
        self.broken = False  # a run is missing, or was refused

    async def announce(self, to: Collection[NodeName], own: Announce) -> dict[NodeName, Announce]:
        """Say that this node takes part; what the others say, in order of name."""
        self._peers.outbox.broadcast(to, own)
        return await self._peers.gather(Stage.ANNOUNCE, self._round, 0, to)

    async def send(self, stage: Stage, part: int, data: Iterable[tuple[NodeName, bytes]]) -> None:
        """Each peer its run. Side by side: a peer that reads slowly holds up no other."""
        stream = self._peers.outbox.stream
        await asyncio.gather(*(stream(peer, Shard(self._round, stage, part, run)) for peer, run in data))

    async def collect(self, stage: Stage, part: int, owed: dict[NodeName, slice], read: Read) -> dict[NodeName, Any]:
        """The runs that peers owe this node; one that is missing or bad breaks the merge."""
        came = await self._peers.gather(stage, self._round, part, owed)
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
