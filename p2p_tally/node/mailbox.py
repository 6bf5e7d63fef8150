"""What comes in: frames become checked items at the barrier, and the round loop waits here for a stage to fill.

A peer's mistake ends here: counted by reason, logged, dropped.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from p2p_tally.errors import ParameterError, PeerError
from p2p_tally.ids import NodeName
from p2p_tally.learning.parameters import checked_vector
from p2p_tally.protocol import frames
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.barrier import Arrival, Barrier
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.ledger import Ledger
from p2p_tally.protocol.messages import Message, Ready, Shard, Stage, Vote

log = logging.getLogger(__name__)


@dataclass
class _Assembly:
    """A parameter vector on its way in. Runs come in order: a link keeps its frames so."""

    round: int
    values: np.ndarray
    filled: int = 0


class Mailbox:
    """One node's incoming side. Only the event loop's thread touches it."""

    def __init__(
        self, name: NodeName, peers: Iterable[NodeName], limits: Limits, ballots: BallotFormat, ledger: Ledger
    ) -> None:
        self.name = name
        self.limits = limits
        self.ballots = ballots
        self.ledger = ledger
        self.arrivals: Counter[str] = Counter()
        self._barrier = Barrier(peers)
        self._filled = asyncio.Event()
        self._lengths: dict[tuple[NodeName, Stage], int] = {}
        self._assemblies: dict[tuple[NodeName, Stage], _Assembly] = {}

    def expect_vectors(self, lengths: dict[tuple[NodeName, Stage], int]) -> None:
        """How many parameters each peer sends at each stage; anything else is refused before it is stored."""
        self._lengths = lengths

    async def gather(self, stage: Stage, round: int, awaited: Iterable[NodeName]) -> dict[NodeName, Any]:
        """The items of one stage of a round, in order of name, once all awaited peers have sent theirs."""
        self._barrier.open(stage, round, awaited)
        if not self._barrier.complete:
            self._filled.clear()
            await self._filled.wait()
        return self._barrier.close()

    def deliver(self, peer: NodeName, frame: bytes, framed: int) -> None:
        """A frame from a link. Never raises for what a peer did."""
        try:
            message = frames.decode(frame, self.limits)
            self.ledger.book_received(peer, message.stage, message.payload, framed)
            verdict: str = self._accept(peer, message)
        except PeerError as error:
            verdict = error.reason
            log.warning("%s: refused from %s: %s", self.name, peer, error)
        self.arrivals[verdict] += 1
        if self._barrier.complete:
            self._filled.set()

    def _accept(self, peer: NodeName, message: Message) -> Arrival:
        match message:
            case Vote():
                item = self.ballots.decode(message.ballot)
                return self._barrier.arrive(peer, Stage.VOTE, message.round, item, message.ballot)
            case Ready():
                # It stands in for the ballot that this peer is not casting yet.
                return self._barrier.arrive(peer, Stage.VOTE, message.round, message)
            case Shard():
                return self._accept_shard(peer, message)

    def _accept_shard(self, peer: NodeName, shard: Shard) -> Arrival:
        verdict = self._barrier.judge(peer, shard.stage, shard.round)
        if verdict not in (Arrival.RECORDED, Arrival.EARLY):
            return verdict
        key = peer, shard.stage
        length = self._lengths.get(key, 0)
        assembly = self._assemblies.get(key)
        if assembly is None or assembly.round != shard.round:
            assembly = self._assemblies[key] = _Assembly(shard.round, np.empty(length, np.float32))
        run = np.frombuffer(shard.data, "<f4")
        if shard.offset != assembly.filled or shard.offset + len(run) > length:
            del self._assemblies[key]
            raise ParameterError(
                f"{len(run)} parameters from {shard.offset}, expected from {assembly.filled}, {length} in all",
                reason="shape",
            )
        assembly.values[shard.offset : shard.offset + len(run)] = run
        assembly.filled += len(run)
        if assembly.filled < length:
            return verdict
        del self._assemblies[key]
        return self._barrier.arrive(peer, shard.stage, shard.round, checked_vector(assembly.values, length))
