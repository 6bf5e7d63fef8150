"""The virtual clock: what the rounds of a simulation would take over given links. Pure arithmetic, nothing waits.

Every node has an uplink and a downlink. Each is a queue: one message after the other, in the order in which they come.
The bytes of a message arrive while it is still being sent, so a message that meets no other takes its bytes over the
slower of the two links, and the latency. A node goes on when the last message that it waits for has come.

Times are whole nanoseconds, so that a sum does not depend on its order, and a resumed run has the same clock. Not
charged: the setting up of connections, what congestion control holds back, TLS, and evaluations, which are ours.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from p2p_tally.node.links.outbox import Outbox
from p2p_tally.protocol.messages import Stage
from p2p_tally.runner.clock.messages import HANDOVER, MERGES, VOTES, Messages, Noted
from p2p_tally.thin_links import Link

SECOND = 10**9
HOUR = 3600 * SECOND

# What one segment of TCP over IPv4 carries on Ethernet, and the headers that it needs, with the usual timestamps.
SEGMENT, HEADERS = 1448, 52

# Votes that are passed on: the most turns in which their times are computed, for each hop.
TURNS = 8

# Phases of a round in which a node computes: before its vote is sent, and after the votes of the others have come.
BEFORE, AFTER = ("train", "vote"), ("distill",)


class Played(NamedTuple):
    """Who played a round, as ranks, and how long each computed before and after the votes, in nanoseconds: all [n]."""

    members: np.ndarray
    before: np.ndarray
    after: np.ndarray

    @classmethod
    def each(cls, seconds: Mapping[int, Mapping[str, float]]) -> "Played":
        """From the seconds of each member by phase, as measured."""
        spent = [[_sum(own, BEFORE), _sum(own, AFTER)] for own in seconds.values()]
        before, after = np.array(spent, np.int64).T
        return cls(np.array(list(seconds)), before, after)

    @classmethod
    def together(cls, there: np.ndarray, seconds: Mapping[str, float]) -> "Played":
        """From the seconds of all who are there [N] together: each has an equal share."""
        members = np.flatnonzero(there)
        shares = (np.full(len(members), _sum(seconds, phases) // len(members)) for phases in (BEFORE, AFTER))
        return cls(members, *shares)


class NoClock:
    """Where no links are given: nothing is measured."""

    reading = None

    def hear(self, *_: Any) -> None: ...

    def play(self, *_: Any) -> None: ...

    def state(self) -> dict[str, list[int]]:
        return {}

    def restore(self, _: Mapping[str, Sequence[int]]) -> None: ...


@dataclass(frozen=True)
class Reading:
    """The clock after a round."""

    hours: float  # since the run began
    idle: float  # the share of them in which a node does not compute, mean over nodes


class VirtualClock:
    """The clock of one federation of N nodes."""

    def __init__(
        self,
        links: Sequence[Link],
        compute: Sequence[int | None],
        rings: Callable[[int], bool] = lambda _round: False,
        overlaps: Callable[[int], bool] | None = None,
    ) -> None:
        """`compute`: nanoseconds that each node computes in a round, before it votes; None: as long as it is measured.
        `rings`: whether the merge of a round goes around a ring. `overlaps`: nodes use the votes of a round in the next
        one, and so the result of its merge if this says so; None: both at once."""
        self._up = np.array([link.up for link in links], float)  # [N]; 0: no limit
        self._down = np.array([link.down for link in links], float)
        self._latency = np.array([link.latency for link in links], np.int64)
        self._loss = np.array([link.loss for link in links], float)
        self._given = np.array([-1 if own is None else own for own in compute])  # -1: measured
        self._rings = rings
        self._overlaps = overlaps
        nodes = len(links)
        # All [N]. When a node can go on, its links are free, and what it will still wait for has come.
        self._now = np.zeros(nodes, np.int64)
        self._up_free = np.zeros(nodes, np.int64)
        self._down_free = np.zeros(nodes, np.int64)
        self._votes_come = np.zeros(nodes, np.int64)
        self._merge_comes = np.zeros(nodes, np.int64)
        # Nanoseconds that a node has played, and computed.
        self._played = np.zeros(nodes, np.int64)
        self._computed = np.zeros(nodes, np.int64)

    def hear(self, outboxes: Iterable[Outbox], noted: Noted) -> None:
        """Note every message that these nodes send."""
        for outbox in outboxes:
            outbox.listen(partial(noted.note, outbox))

    @property
    def reading(self) -> Reading:
        played = self._played > 0
        busy = self._computed[played] / self._played[played]
        return Reading(float(self._now.max()) / HOUR, float(1 - busy.mean()) if played.any() else 0.0)

    # --- for checkpoints

    def state(self) -> dict[str, list[int]]:
        return {name: getattr(self, name).tolist() for name in _STATE}

    def restore(self, state: Mapping[str, Sequence[int]]) -> None:
        for name in _STATE:
            getattr(self, name)[:] = state[name]

    # --- a round

    def play(self, round: int, messages: Callable[[], Messages], played: Played) -> None:
        """A round is over."""
        sent, there = messages(), played.members
        given = self._given[there]
        before = np.where(given < 0, played.before, given)
        after = np.where(given < 0, played.after, 0)
        began = self._hand_over(sent, there)

        self._now[there] += before
        self._now = np.maximum(self._now, self._merge_comes)  # a late one goes on while nodes train
        come = self._vote(sent)
        # Counts that end a warm-up are awaited in their round.
        if self._overlaps is not None and (sent.stage == Stage.VOTE).any():
            come, self._votes_come = self._votes_come, come
        self._now = np.maximum(self._now, come)
        self._now[there] += after
        ends = self._merge(sent, self._rings(round))
        if self._overlaps is not None and self._overlaps(round):
            self._merge_comes = ends
        else:
            self._now = np.maximum(self._now, ends)

        self._played[there] += self._now[there] - began
        self._computed[there] += before + after

    def _hand_over(self, sent: Messages, there: np.ndarray) -> np.ndarray:
        """Newcomers get the state of a donor, and begin when they have it. Returns when each member began [n]."""
        handed = sent.where(np.isin(sent.stage, HANDOVER))
        begins = self._now[handed.sender]  # a newcomer asks when its donor is there
        came = self._carry(handed, begins)
        np.maximum.at(self._now, handed.receiver, came)
        began: np.ndarray = self._now[there]  # a copy
        return began

    def _vote(self, sent: Messages) -> np.ndarray:
        """When the last vote of the round has come to each node [N].

        A vote that travels further is passed on when it has come. When that is depends on the queues, and they on it:
        both are computed again until nothing changes, which takes about as many turns as the longest way has hops.
        """
        votes = sent.where(np.isin(sent.stage, VOTES))
        nodes = len(self._now)
        ready = self._now[votes.sender]
        keys = votes.origin * nodes + votes.receiver  # who has whose vote: each once
        order = np.argsort(keys)
        further = np.flatnonzero(votes.hops > 1)
        source = order[np.searchsorted(keys, votes.origin[further] * nodes + votes.sender[further], sorter=order)]
        free = self._up_free.copy(), self._down_free.copy()
        for _ in range(TURNS * int(votes.hops.max(initial=1))):
            self._up_free[:], self._down_free[:] = free
            came = self._carry(votes, ready)
            again = came[source]
            if np.array_equal(ready[further], again):
                break
            ready[further] = again
        last = self._now.copy()
        np.maximum.at(last, votes.receiver, came)
        return last

    def _merge(self, sent: Messages, ring: bool) -> np.ndarray:
        """When each node has the result of the round's merge [N]; without a merge, at once."""
        merge = sent.where(np.isin(sent.stage, MERGES))
        now = self._now.copy()
        if not len(merge.sender):
            return now
        order = np.lexsort((merge.part, merge.stage))  # of equal ones the order of the table stays
        found, starts = np.unique(np.stack([merge.stage, merge.part])[:, order], axis=1, return_index=True)
        runs = dict(zip(map(tuple, found.T.tolist()), np.split(order, starts[1:]), strict=True))
        came: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        for act, *run in _acts(merge, ring):
            place = int(run[0]), run[1]
            if place in runs and act is Act.SEND:
                own = merge.where(runs[place])
                came[place] = own.receiver, self._carry(own, now[own.sender])
            elif place in runs:
                np.maximum.at(now, *came.pop(place))
        return now

    # --- links

    def _carry(self, sent: Messages, ready: np.ndarray) -> np.ndarray:
        """When each message has come as a whole [M], if it is ready to be sent at this time [M]. Takes its time from
        the links of both ends."""
        if not len(ready):
            return ready
        sender, receiver = sent.sender, sent.receiver
        segments = -(-sent.size // SEGMENT)
        bits = 8.0 * (sent.size + HEADERS * segments)
        loss = (self._loss[sender] + self._loss[receiver]) / 2
        latency = (self._latency[sender] + self._latency[receiver]) // 2
        # What is lost is sent again, and the rest of the message waits one round trip for it.
        latency = latency + _whole((1 - (1 - loss) ** segments) * 2 * latency)
        up, down = _service(bits / (1 - loss), self._up[sender]), _service(bits, self._down[receiver])
        left = _queue(sender, ready, ready + up, up, self._up_free)
        return _queue(receiver, left - up + latency, left + latency, down, self._down_free)


_STATE = ("_now", "_up_free", "_down_free", "_votes_come", "_merge_comes", "_played", "_computed")


def _queue(line: np.ndarray, first: np.ndarray, last: np.ndarray, service: np.ndarray, free: np.ndarray) -> np.ndarray:
    """When each message has passed its line [M]; `free` [N], when each line is free, is set to the last of them.

    `first` and `last`: when the first and the last byte of a message come to the line. Messages are served in the order
    in which they are complete. One is served as its bytes come, but not before those ahead of it have passed.
    """
    order = np.lexsort((last, line))
    lines, starts, lengths = np.unique(line[order], return_index=True, return_counts=True)
    done = np.empty_like(last)
    for place in range(int(lengths.max())):  # of each line at once: the first messages, the second ones, ...
        longer = lengths > place
        now, rows = lines[longer], order[starts[longer] + place]
        served = np.maximum(first[rows], free[now]) + service[rows]
        free[now] = done[rows] = np.maximum(last[rows], served)
    return done


def _service(bits: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Nanoseconds that so many bits take at these rates [M]; none where there is no limit."""
    return _whole(np.divide(bits * SECOND, rate, out=np.zeros_like(bits), where=rate > 0))


def _whole(values: np.ndarray) -> np.ndarray:
    whole: np.ndarray = np.rint(values).astype(np.int64)
    return whole


def _sum(spent: Mapping[str, float], phases: Sequence[str]) -> int:
    return round(sum(spent.get(phase, 0.0) for phase in phases) * SECOND)


# --- the order in which a node sends and waits in a merge: that of node/merges


class Act(Enum):
    SEND = "send"
    WAIT = "wait"


def _acts(merge: Messages, ring: bool) -> Iterator[tuple[Act, Stage, int]]:
    """What every node does in a merge with these messages, one after the other, with which run of parameters. Some runs
    do not exist: they are passed over."""
    yield Act.SEND, Stage.ANNOUNCE, 0
    yield Act.WAIT, Stage.ANNOUNCE, 0
    parts = {stage: int(merge.part[merge.stage == stage].max(initial=-1)) + 1 for stage in MERGES}
    if ring:
        # Runs go around one after the other; where segments have several, the next is sent before the last has come.
        ahead = int(parts[Stage.SCATTER] >= len(np.unique(merge.sender)))
        for stage in (Stage.SCATTER, Stage.GATHER):
            for step in range(parts[stage] + ahead):
                yield Act.SEND, stage, step
                yield Act.WAIT, stage, step - ahead
        return
    yield from _exchanges(Stage.ROLL, parts)
    for step in range(parts[Stage.VECTOR] + 1):
        yield Act.SEND, Stage.VECTOR, step
        yield Act.WAIT, Stage.VECTOR, step - 1
    for step in range(parts[Stage.SCATTER] + 2):
        yield Act.SEND, Stage.SCATTER, step
        yield Act.WAIT, Stage.SCATTER, step - 1
        yield Act.SEND, Stage.GATHER, step - 1
        yield Act.WAIT, Stage.GATHER, step - 2
    for stage in (Stage.CHECK, Stage.VERDICT):
        yield from _exchanges(stage, parts)


def _exchanges(stage: Stage, parts: Mapping[Stage, int]) -> Iterator[tuple[Act, Stage, int]]:
    """What members of a robust merge tell each other, one exchange after the other."""
    for part in range(parts[stage]):
        yield Act.SEND, stage, part
        yield Act.WAIT, stage, part
