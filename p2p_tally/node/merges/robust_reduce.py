"""A robust mean on a full mesh: an all-reduce in which no member owns a segment, and none can veto.

As all_reduce.py, with a rule in place of the mean, and more:

1. After the announcements the members agree on who takes part (a roll call).
2. Whose contribution to a run is missing, invalid or absurd is left out of that run by the member that sums it.
3. When all means have come, each member sends digests of what it has and asks all others what they contributed in a few
   places, which it draws only now (a check). So each can see whether all have the same, and whether each mean can be
   right.
4. The members agree on the verdicts. Either all adopt the result, or all leave the same members out and try again.
5. Who was left out is given the result afterwards (left_out.py).

Nothing outside changes before the result is adopted.
"""

import asyncio
import hashlib
import logging
import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from p2p_tally.defence import bounds, spots, verdicts
from p2p_tally.defence.agreement import exchanges, majority, message_bytes
from p2p_tally.defence.rule import Rule, rule_for
from p2p_tally.defence.verdicts import DIGEST, REFUSED, Outcome, Verdict
from p2p_tally.ids import NodeName, in_order
from p2p_tally.learning.feedback import NAME_BYTES
from p2p_tally.node.merges.budget import Budget
from p2p_tally.node.merges.circle import Circle
from p2p_tally.node.merges.contributions import Contribution, Sources
from p2p_tally.node.merges.exchange import FAILED, Merged, Peers, Runs
from p2p_tally.node.merges.left_out import MOST_TRIES, Afterwards
from p2p_tally.protocol.masks import to_mask
from p2p_tally.protocol.messages import Announce, Stage, Withdraw
from p2p_tally.protocol.segments import runs, segments

log = logging.getLogger(__name__)

# Bytes from which the places follow that a member asks about.
SEED = 16

# What each member says that it contributed in the places that this one asked about.
Claims = Mapping[int, np.ndarray]


class RobustReduce:
    """The robust merges of one node over a mesh."""

    def __init__(
        self,
        peers: Peers,
        robust_merge: str,
        sources: Sources | None = None,
        members: Callable[[int], list[NodeName]] | None = None,
    ) -> None:
        """As for AllReduce; `robust_merge`: the option, which must name a rule for so many members."""
        self._peers = peers
        self._robust_merge = robust_merge
        self._sources = sources or Sources()
        self._members = members or (lambda _: in_order([peers.name, *peers.roster]))

    async def merge(self, round: int, vector: np.ndarray) -> Merged:
        """The robust mean over the members that take part: the same bits at each that adopts it."""
        name, roster = self._peers.name, self._peers.roster
        members = self._members(round)
        rule = rule_for(self._robust_merge, len(members))
        assert rule is not None, "without a rule the merge is an AllReduce"
        others = [member for member in members if member != name]
        present = [name, *(peer for peer in others if roster[peer].is_there and self._peers.merges_with(peer))]
        base = self._sources.name
        exchanged = Runs(self._peers, round)
        heard = await exchanged.announce(others, Announce(round, to_mask(present, members), base))
        if not math.isfinite(bounds.length(vector)):
            # The others must not wait for what this node cannot send.
            self._peers.outbox.broadcast(heard, Withdraw(round))
            return FAILED._replace(alone=not heard)
        budget = Budget(self._peers.deadline)
        circle = Circle(self._peers, round, members, rule, budget)
        wanted = [name, *(peer for peer in heard if peer in present)]
        mask = to_mask(wanted, members)
        # Also with who was not heard: it may have announced itself to others, who wait for it.
        said = await circle.agree(Stage.ROLL, 0, mask + base, others if heard else [])
        width = len(mask)
        rolls = [roll if len(roll) >= width else b"" for roll in said]
        names = [members[place] for place in verdicts.taking_part([roll[:width] for roll in rolls])]
        bases = {member: roll[width:] for member, roll in zip(members, rolls, strict=True)}
        afterwards = Afterwards(exchanged, self._peers, round, members, rule.liars, budget)
        for attempt in range(MOST_TRIES):
            if len(names) >= self._peers.least(round) and name not in names and heard:
                return await afterwards.take(vector, names, self._sources, bases)
            if name not in names or len(names) < self._peers.least(round):
                return FAILED._replace(alone=not heard)
            if names == [name]:
                return Merged(vector, alone=not heard, whole=members == [name])
            own = self._sources.make(vector, [bases[peer] for peer in names], rule.mean)
            if own is None:
                self._peers.outbox.broadcast([peer for peer in names if peer != name], Withdraw(round))
                return FAILED
            tried = Try(exchanged, Circle(self._peers, round, names, rule, budget), own, attempt)
            digest = await tried.reduce()
            found = await tried.judge(digest)
            if found.adopted is not None:
                if found.adopted != digest:
                    return FAILED
                left = [member for member, roll in zip(members, rolls, strict=True) if roll and member not in names]
                await afterwards.offer(names, tried.digests, own.result, left)
                return own.close()._replace(whole=names == members)
            out = [names[place] for place in found.out]
            names = [names[place] for place in found.rest]
            log.warning("merge of round %d again without %s", round, ", ".join(out) or "anybody less",
                        extra={"event": "merge-again"})  # fmt: skip
            if not out:
                return FAILED
        return FAILED


class Try:
    """One try of a merge among given members."""

    def __init__(self, exchanged: Runs, circle: Circle, own: Contribution, attempt: int) -> None:
        self._exchanged, self._circle, self._own, self._attempt = exchanged, circle, own, attempt
        self._segments = dict(zip(circle.names, segments(len(own), len(circle.names)), strict=True))
        self._cut = {member: runs(whole) for member, whole in self._segments.items()}
        self._longest = max(map(len, self._cut.values()))
        self._first = attempt * (self._longest + 2)  # the first part of this try
        self.digests: list[bytes] = []  # of the segments, when they have come
        # Of the runs that this member summed: whose contributions count.
        self._counted: list[set[int]] = []

    async def reduce(self) -> bytes:
        """Exchange runs, as a pipeline: in step t run t is sent, run t - 1 is summed, and the mean of run t - 2 is
        collected. Returns the digest of the result; REFUSED if a mean did not come."""
        circle, own, name = self._circle, self._own, self._circle.peers.name
        mine, givers, owners = self._cut[name], circle.others, circle.others
        digests = {member: hashlib.sha256() for member in circle.names}
        for step in range(self._longest + 2):
            sent = ((peer, own.send(run)) for peer in circle.others for run in self._cut[peer][step : step + 1])
            await self._exchanged.send(Stage.SCATTER, self._first + step, sent)
            if 0 <= step - 1 < len(mine):
                run, part = mine[step - 1], self._first + step - 1
                owed = dict.fromkeys(givers, run)
                parts = await self._collect(Stage.SCATTER, step - 1, owed)
                parts[name] = own.own(run)
                givers = self._judged(parts)
                mean = own.reduce(run, [parts[peer] for peer in circle.names if peer in parts])
                if mean is not None:
                    await self._exchanged.send(Stage.GATHER, part, ((peer, mean) for peer in circle.others))
                    digests[name].update(own.result[run].data)
            if step >= 2:
                owed = {peer: self._cut[peer][step - 2] for peer in owners if step - 2 < len(self._cut[peer])}
                collected = await self._collect(Stage.GATHER, step - 2, owed)
                for peer, part_of in collected.items():
                    own.take(owed[peer], part_of)
                    digests[peer].update(own.result[owed[peer]].data)
                owners = [peer for peer in owners if peer not in owed or peer in collected]
        circle.budget.end_runs()
        whole = {name, *owners}
        self.digests = [digests[peer].digest()[:DIGEST] if peer in whole else REFUSED for peer in circle.names]
        return hashlib.sha256(b"".join(self.digests)).digest()[:DIGEST] if len(whole) == len(circle.names) else REFUSED

    async def _collect(self, stage: Stage, number: int, owed: dict[NodeName, slice]) -> dict[NodeName, np.ndarray]:
        """The runs of this number. What they take over slow links is given back to the budget."""
        budget, time = self._circle.budget, asyncio.get_running_loop().time
        began, deadline = time(), self._circle.peers.deadline()
        leeway = budget.for_runs((number + 1 + (stage is Stage.GATHER)) / (self._longest + 2))
        parts = await self._exchanged.collect(stage, self._first + number, owed, self._own.read, leeway)
        short = (deadline or 0.0) / 4 if number and len(parts) == len(owed) else 0.0  # of many runs each may be short
        budget.give_back(max(self._circle.peers.arriving(), min(time() - began, short)))
        return parts

    def _judged(self, parts: dict[NodeName, np.ndarray]) -> list[NodeName]:
        """Take absurd contributions to a run out. Returns those of the others whose next ones are awaited."""
        circle, name = self._circle, self._circle.peers.name
        judged = list(parts)
        counting = [judged[place] for place in bounds.counting(list(parts.values()), judged.index(name))]
        for peer in set(judged).difference(counting):
            theirs, ours = bounds.length(parts.pop(peer)), bounds.length(parts[name])
            circle.accuse(peer, f"parameters with a norm of {theirs:.3g} beside {ours:.3g}", "out-of-bounds")
        self._counted.append({circle.names.index(peer) for peer in parts})
        return [peer for peer in circle.others if peer in parts]

    async def judge(self, digest: bytes) -> Outcome:
        """Compare the result with the others', and agree on it."""
        circle, count = self._circle, len(self._circle.names)
        own = Check(self.digests, self._counted, secrets.token_bytes(SEED))
        message = own.encode(self._longest)
        came = await circle.ask(self._attempt * 2, dict.fromkeys(circle.others, message))
        checks = {circle.names.index(peer): Check.decode(data, count, self._longest) for peer, data in came.items()}
        # Each asks about other places, and answers all.
        summed, length = self._segments[circle.peers.name], len(self._own)
        answers = {
            circle.names[place]: self._own.sent_at(spots.places(length, check.seed), summed).astype("<f4").tobytes()
            for place, check in checks.items()
        }
        places = spots.places(length, own.seed)
        told = await circle.ask(self._attempt * 2 + 1, answers)
        claims = {circle.names.index(peer): np.frombuffer(data, "<f4") for peer, data in told.items()}
        claims[circle.place] = self._own.sent_at(places, summed)
        verdict = self._verdict(digest, {**checks, circle.place: own}, places, claims)
        said = await circle.agree(Stage.VERDICT, self._attempt, verdict.encode(count), circle.others)
        return verdicts.outcome([Verdict.decode(value, count) for value in said])

    def _verdict(self, digest: bytes, checks: dict[int, "Check"], places: np.ndarray, claims: Claims) -> Verdict:
        circle = self._circle
        accused = set()
        for place, name in enumerate(circle.names):
            if place == circle.place:
                continue
            mine = self.digests[place]
            version = majority((check.digests[place] for check in checks.values()), len(checks))
            if place not in checks or mine == REFUSED:
                accused.add(place)  # it sent nothing, or nothing valid, which has been counted
            elif version != mine or checks[place].digests[place] != mine:
                accused.add(place)
                circle.accuse(name, "others have another mean of its segment", "equivocation")
            elif digest != REFUSED and not self._is_possible(place, checks, places, claims):
                accused.add(place)
                circle.accuse(name, "a mean that does not follow from the contributions", "false-mean")
        return Verdict(REFUSED if accused else digest, frozenset(accused))

    def _is_possible(self, place: int, checks: dict[int, "Check"], places: np.ndarray, claims: Claims) -> bool:
        """Whether the means of a member's segment can be right. It may have left as many contributions out as there may
        be liars, besides those that most others left out too."""
        rule, members = self._circle.rule, len(self._circle.names)
        name = self._circle.names[place]
        counting = [check.counted[0] for check in checks.values()]
        usual = {member for member in range(members) if 2 * sum(member in one for one in counting) > len(checks)}
        alike: dict[frozenset[int], np.ndarray] = {}  # the places of the runs in which the same contributions count
        for run, counted in zip(self._cut[name], checks[place].counted, strict=False):
            if len(usual - counted) > rule.liars or not counted:
                return False
            here = (places >= run.start) & (places < run.stop)
            same = frozenset(counted)
            alike[same] = alike[same] | here if same in alike else here
        for same, here in alike.items():
            said = [claimed[here] for member, claimed in claims.items() if member in same]
            if not here.any():
                continue
            found, slack = self._own.mean_at(places[here])
            if not rule.by_coordinate:
                if len(said) == len(same) and not spots.possible(found, said, slack):
                    return False
            else:
                cut = rule.liars if rule.name == "trim" else members
                if not spots.possible_trimmed(found, said, len(same), cut, rule.liars, slack):
                    return False
        return True


@dataclass(frozen=True)
class Check:
    """What one member shows of a result: digests of all segments, and whose contributions it counted in each run of its
    own segment. From the seed follow the places in which it wants to know what others contributed."""

    digests: list[bytes]
    counted: list[set[int]]
    seed: bytes

    def encode(self, most_runs: int) -> bytes:
        count = len(self.digests)
        counted = [verdicts.to_bits(members, count) for members in self.counted]
        counted += [bytes(verdicts.mask_bytes(count))] * (most_runs - len(counted))
        return b"".join(self.digests) + b"".join(counted) + self.seed

    @classmethod
    def decode(cls, data: bytes, count: int, most_runs: int) -> "Check":
        """From bytes of the right length."""
        width = verdicts.mask_bytes(count)
        digests = [data[place * DIGEST : (place + 1) * DIGEST] for place in range(count)]
        start = count * DIGEST
        masks = [data[start + place * width : start + (place + 1) * width] for place in range(most_runs)]
        return cls(digests, [verdicts.from_bits(mask, count) for mask in masks], data[start + most_runs * width :])


def robust_messages(parameters: int, members: int, rule: Rule, *, named: bool) -> Iterator[tuple[Stage, int, int]]:
    """Stage, number and length of what each member sends each other besides runs, if nobody spoils the merge. `named`:
    the base of changes has a name."""
    mask = verdicts.mask_bytes(members)
    longest = max(len(runs(whole)) for whole in segments(parameters, members))
    yield Stage.CHECK, 0, members * DIGEST + longest * mask + SEED
    if parameters:
        yield Stage.CHECK, 1, 4 * spots.spots(parameters)
    for exchange in range(exchanges(members, rule.liars)):
        yield Stage.ROLL, exchange, message_bytes(mask + (NAME_BYTES if named else 0))
        yield Stage.VERDICT, exchange, message_bytes(DIGEST + mask)
