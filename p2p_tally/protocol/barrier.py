"""Who is awaited at a stage of a round, who came, and who is missing. No clock, no sockets, no waiting.

What comes early is held, a little way ahead; what comes late, twice or from a stranger is told apart and dropped.
A place is (round, part): votes have one part a round, parameters one a run.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Any

from p2p_tally.ids import NodeName, in_order
from p2p_tally.protocol.messages import Stage

Place = tuple[int, int]

# A peer can be one exchange ahead of us in good faith: its message of the next one passes ours of this one. In a
# merge, which keeps runs of parameters in flight, it can be three. More would let a peer fill our memory.
HELD_AHEAD = 2
RUNS_HELD_AHEAD = 4


class Arrival(StrEnum):
    """What became of something that arrived; the value is also its counter's name."""

    RECORDED = "recorded"
    EARLY = "early"  # held for its round
    LATE = "late"
    DUPLICATE = "duplicate"  # the same again
    EQUIVOCATION = "equivocation"  # something else for the same place: the first stands
    STRANGER = "stranger"
    TOO_FAR = "too-far-ahead"


IN_TIME = (Arrival.RECORDED, Arrival.EARLY)

# What arrived: the item, and the bytes by which a second copy is told from a contradiction.
_Entry = tuple[Any, bytes]


class Barrier:
    """One node's waiting room. Items are opaque: answers, parameters, counts."""

    def __init__(self, peers: Iterable[NodeName]) -> None:
        self._peers = frozenset(peers)
        self._round = 0  # the last one that a stage was opened of
        self._passed: dict[Stage, Place] = {}  # the last place opened, by stage
        self._early: dict[Stage, dict[Place, dict[NodeName, _Entry]]] = {stage: {} for stage in Stage}
        self._open: tuple[Stage, Place] | None = None
        self._welcome: frozenset[NodeName] = frozenset()
        self._awaited: set[NodeName] = set()
        self._came: dict[NodeName, _Entry] = {}

    def open(
        self, stage: Stage, place: Place, welcome: Iterable[NodeName], awaited: Iterable[NodeName] | None = None
    ) -> None:
        """Begin to take what `welcome` peers send, until the `awaited` among them (all, if not said) have come.

        What they sent early counts at once.
        """
        assert self._open is None, "one stage at a time"
        self._open = stage, place
        self._passed[stage] = place
        self._round = place[0]
        self._welcome = frozenset(welcome)
        self._awaited = set(self._welcome if awaited is None else awaited)
        early = self._early[stage]
        self._came = {peer: entry for peer, entry in early.pop(place, {}).items() if peer in self._welcome}
        # Rounds only go up. What is held for one that is past, at any stage, would take the room of what will be used.
        for places in self._early.values():
            for skipped in [held for held in places if held[0] < self._round or (places is early and held < place)]:
                del places[skipped]

    def wants(self, peer: NodeName, stage: Stage, place: Place) -> bool:
        """Whether something new from this peer would be taken: what is not wanted need not be decoded."""
        if self._open == (stage, place):
            return peer in self._welcome and peer not in self._came
        held = self._early[stage]
        ahead = place[0] >= self._round and place > self._passed.get(stage, (0, 0))
        return peer in self._peers and ahead and peer not in held.get(place, ()) and self._has_room(peer, stage)

    def holds(self, peer: NodeName, stage: Stage, place: Place) -> bool:
        """Whether something of this peer came early for a place that has not been opened."""
        return peer in self._early[stage].get(place, ())

    def _has_room(self, peer: NodeName, stage: Stage) -> bool:
        most = HELD_AHEAD if stage is Stage.VOTE or stage is Stage.ANNOUNCE else RUNS_HELD_AHEAD
        return sum(peer in entries for entries in self._early[stage].values()) < most

    def arrive(self, peer: NodeName, stage: Stage, place: Place, item: Any, raw: bytes = b"") -> Arrival:
        """Something came from a peer. Order of arrival has no effect on what `close` gives."""
        if peer not in self._peers:
            return Arrival.STRANGER
        if self._open == (stage, place):
            if peer not in self._welcome:
                return Arrival.STRANGER
            if peer in self._came:
                return _again(self._came[peer], raw)
            self._came[peer] = item, raw
            return Arrival.RECORDED
        if place[0] < self._round or place <= self._passed.get(stage, (0, 0)):
            return Arrival.LATE
        held = self._early[stage]
        if peer in held.get(place, ()):
            return _again(held[place][peer], raw)
        if not self._has_room(peer, stage):
            return Arrival.TOO_FAR
        held.setdefault(place, {})[peer] = item, raw
        return Arrival.EARLY

    def forgive(self, peer: NodeName) -> None:
        """This peer is gone: no longer await it. What it sent before still counts."""
        self._awaited.discard(peer)

    @property
    def place(self) -> tuple[Stage, int] | None:
        """The stage and round that are being waited for, if any."""
        return None if self._open is None else (self._open[0], self._open[1][0])

    @property
    def round(self) -> int:
        """The last round that something was waited for in."""
        return self._round

    def is_open(self, stages: Collection[Stage], round: int) -> bool:
        """Whether one of these stages of a round is being waited for."""
        return self._open is not None and self._open[0] in stages and self._open[1][0] == round

    @property
    def complete(self) -> bool:
        return self._open is not None and self._awaited <= self._came.keys()

    @property
    def missing(self) -> list[NodeName]:
        return in_order(self._awaited - self._came.keys())

    def close(self) -> dict[NodeName, Any]:
        """End the waiting: what came, in order of name."""
        assert self._open is not None
        self._open = None
        came, self._came = self._came, {}
        return {name: came[name][0] for name in in_order(came)}


def _again(first: _Entry, raw: bytes) -> Arrival:
    return Arrival.DUPLICATE if first[1] == raw else Arrival.EQUIVOCATION


def has_passed(theirs: tuple[Stage, int], ours: tuple[Stage, int]) -> bool:
    """Whether a peer that waits at one place has sent all it will ever send for another.

    Votes come before announcements, and these before parameters, of which several runs are in flight at once.
    """
    order = {Stage.VOTE: 0, Stage.ANNOUNCE: 1}
    here, there = (ours[1], order.get(ours[0], 2)), (theirs[1], order.get(theirs[0], 2))
    return there > here or (there == here and here[1] < 2)
