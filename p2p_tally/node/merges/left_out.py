"""Who was left out of a robust merge is given its result afterwards: of two that accuse each other one may be honest.

Each member that has adopted the result sends those left out an offer: who has adopted it, and the digests of all
segments. Then it sends them the segment that it has summed; where several liars are borne, also the next ones in order
of name, because one liar at least is among those left out. Who was left out takes what more than half of those that
went on without it offer, if the segments have these digests.

Nobody waits for those left out, one of which may be a liar that does not read: who has no room for the next run in time
gets no more. Where nobody is left out nothing is sent.
"""

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from p2p_tally.defence.agreement import MOST_EXCHANGES, majority
from p2p_tally.defence.verdicts import DIGEST, from_bits, mask_bytes, to_bits
from p2p_tally.ids import NodeName
from p2p_tally.node.merges.budget import Budget
from p2p_tally.node.merges.contributions import PLAIN, Parameters, Sources, read_plain
from p2p_tally.node.merges.exchange import FAILED, Merged, Peers, Runs
from p2p_tally.protocol.messages import Shard, Stage
from p2p_tally.protocol.segments import runs, segments

log = logging.getLogger(__name__)

# The runs of each segment.
Cut = Sequence[Sequence[slice]]

# How often a merge is tried, each time without those that spoiled the last try.
MOST_TRIES = 3
# The steps of a try besides its runs, with which those are busy that go on without this member.
STEPS = 2 + MOST_EXCHANGES
# The number of an offer among verdicts, after all of these.
OFFER = MOST_TRIES * MOST_EXCHANGES


@dataclass(frozen=True)
class Offer:
    """A result that some members have adopted: which (numbered in order of name), and the digests of its segments."""

    adopters: list[int]
    digests: list[bytes]

    def encode(self, members: int) -> bytes:
        return to_bits(self.adopters, members) + b"".join(self.digests)

    @classmethod
    def decode(cls, data: bytes, members: int) -> "Offer | None":
        """None: it cannot be understood."""
        width = mask_bytes(members)
        adopters = sorted(from_bits(data[:width], members)) if len(data) > width else []
        if not adopters or len(data) != width + len(adopters) * DIGEST:
            return None
        return cls(adopters, [data[start : start + DIGEST] for start in range(width, len(data), DIGEST)])


@dataclass(frozen=True)
class Afterwards:
    """One node's side of it, for the merge of one round."""

    exchanged: Runs
    peers: Peers
    round: int
    members: list[NodeName]
    liars: int  # how many are borne
    budget: Budget

    async def offer(
        self, names: list[NodeName], digests: list[bytes], result: np.ndarray, left: list[NodeName]
    ) -> None:
        """To those left out, by one of those that have adopted a result; `names`: of these, in order."""
        # With each liar goes one honest member at most.
        left = [peer for peer in left if self.peers.merges_with(peer)][: 2 * self.liars]
        offer = Offer([self.members.index(name) for name in names], digests).encode(len(self.members))
        self.peers.outbox.broadcast(left, Shard(self.round, Stage.VERDICT, OFFER, offer))
        own = names.index(self.peers.name)
        await asyncio.gather(*(self._send(peer, own, _cut(len(result), len(names)), result) for peer in left))

    async def _send(self, peer: NodeName, own: int, cut: Cut, result: np.ndarray) -> None:
        first, longest = self._parts(cut)
        try:
            async with asyncio.timeout(self.budget.seconds()):
                for copy in range(self._copies):
                    for number, run in enumerate(cut[(own + copy) % len(cut)]):
                        part = first + copy * longest + number
                        await self.exchanged.send(Stage.GATHER, part, [(peer, PLAIN.encode(result[run]))])
        except TimeoutError:
            log.warning("no room for the result", extra={"event": "missed", "peer": peer})
            self.peers.roster[peer].kept_waiting(1.0)

    @property
    def _copies(self) -> int:
        """By how many members each segment is sent."""
        return max(1, self.liars)

    @staticmethod
    def _parts(cut: Cut) -> tuple[int, int]:
        """The first part of the runs that are sent afterwards, after those of all tries; and how many parts a segment
        has."""
        longest = max(map(len, cut))
        return MOST_TRIES * (longest + 2), longest

    async def take(
        self, vector: np.ndarray, rest: list[NodeName], sources: Sources, bases: Mapping[NodeName, bytes]
    ) -> Merged:
        """By a member left out: the result of the `rest`, or FAILED. `bases`: what each says that it has."""
        if not rest:
            return FAILED
        # Runs may come before the last offer. Fewer may adopt the result than are left; then segments are longer.
        _, longest = self._parts(_cut(len(sources.receiver(vector, [bases[peer] for peer in rest])), len(rest)))
        ahead = 2 * self._copies * longest
        came = await self.peers.gather(Stage.VERDICT, self.round, OFFER, rest, self.budget.afterwards(STEPS, ahead))
        offered = majority(came.values(), len(rest))
        offer = None if offered is None else Offer.decode(offered, len(self.members))
        names = [] if offer is None else [self.members[place] for place in offer.adopters]
        if offer is None or not set(names) <= set(rest):
            return FAILED
        own = sources.receiver(vector, [bases[peer] for peer in names])
        if not await self._collect(own, names, offer.digests, ahead):
            return FAILED
        log.info("left out of the merge of round %d: took the result of %d others", self.round, len(names),
                 extra={"event": "merge-given"})  # fmt: skip
        return own.close()

    async def _collect(self, own: Parameters, names: list[NodeName], digests: Sequence[bytes], ahead: int) -> bool:
        """Put the segments together. Returns whether all have come, with the right digests."""
        cut = _cut(len(own), len(names))
        first, longest = self._parts(cut)
        missing = set(range(len(names)))
        for copy in range(self._copies):
            owners = {name: (place + copy) % len(names) for place, name in enumerate(names)}
            owners = {name: segment for name, segment in owners.items() if segment in missing}
            for number in range(longest):
                owed = {name: cut[place][number] for name, place in owners.items() if number < len(cut[place])}
                part, leeway = first + copy * longest + number, self.budget.afterwards(STEPS, ahead)
                came = await self.exchanged.collect(Stage.GATHER, part, owed, read_plain, leeway) if owed else {}
                for name, values in came.items():
                    own.take(owed[name], values)
                owners = {name: place for name, place in owners.items() if name in came or name not in owed}
            for place in owners.values():
                whole = own.result[cut[place][0].start : cut[place][-1].stop] if cut[place] else own.result[:0]
                if hashlib.sha256(whole.data).digest()[:DIGEST] == digests[place]:
                    missing.discard(place)
        return not missing


def _cut(length: int, count: int) -> Cut:
    return [runs(whole) for whole in segments(length, count)]
