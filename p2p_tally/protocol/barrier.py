"""At one stage of a round: whose messages are awaited, which have come, which are missing. No clock, no sockets.

A message that comes early is held, up to a few places ahead. One that comes late, twice or from a stranger is
classified and dropped. A place is (round, part): votes have one part in a round, parameters have one part for each run.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Any

from p2p_tally.ids import NodeName, in_order
from p2p_tally.protocol.messages import Stage

Place = tuple[int, int]

# An honest peer can be one exchange ahead of this node: it may send its next message before it gets ours of this
# exchange. In a merge several runs of parameters are in flight, and it can be three ahead. Holding more would let a
# peer fill our memory.
HELD_AHEAD = 2
RUNS_HELD_AHEAD = 4


class Arrival(StrEnum):
    """What became of a message; the value is also the name of its counter."""

    RECORDED = "recorded"
    EARLY = "early"  # held for its round
    LATE = "late"
    DUPLICATE = "duplicate"  # the same message a second time
    EQUIVOCATION = "equivocation"  # a different message for the same place: the first one counts
    AGAIN = "again"  # the same over another link: the sender may have been started again. The first one counts
    STRANGER = "stranger"
    TOO_FAR = "too-far-ahead"


IN_TIME = (Arrival.RECORDED, Arrival.EARLY)

# What arrived: the item, its bytes, and the number of the link that it came over; 0: not known. A second message with
# the same bytes is a copy, with others a contradiction.
_Entry = tuple[Any, bytes | memoryview, int]


class Barrier:
    """Collects what one node waits for. It does not look into the items: answers, parameters, counts."""

    def __init__(self, peers: Collection[NodeName], held_ahead: int = HELD_AHEAD) -> None:
        """`peers`: asked anew for every item, because members may come. `held_ahead`: how many votes, or announcements,
        of one peer are held."""
        self._peers = peers
        self._held_ahead = held_ahead
        self._runs_ahead = RUNS_HELD_AHEAD
        self._round = 0  # the round of the stage opened last
        self._passed: dict[Stage, Place] = {}  # the place opened last, for each stage
        self._early: dict[Stage, dict[Place, dict[NodeName, _Entry]]] = {stage: {} for stage in Stage}
        self._open: tuple[Stage, Place] | None = None
        self._accepted: frozenset[NodeName] = frozenset()
        self._awaited: set[NodeName] = set()
        self._came: dict[NodeName, _Entry] = {}

    def open(
        self,
        stage: Stage,
        place: Place,
        accepted: Iterable[NodeName],
        awaited: Iterable[NodeName] | None = None,
        runs_ahead: int = RUNS_HELD_AHEAD,
    ) -> None:
        """Start to record what the `accepted` peers send. It is complete when all `awaited` ones among them have sent.

        Without `awaited` all accepted peers are awaited. What they sent early counts at once. `runs_ahead`: how many
        runs of parameters of one peer are held from now on.
        """
        assert self._open is None, "one stage at a time"
        self._runs_ahead = runs_ahead
        self._open = stage, place
        self._passed[stage] = place
        self._round = place[0]
        self._accepted = frozenset(accepted)
        self._awaited = set(self._accepted if awaited is None else awaited)
        early = self._early[stage]
        self._came = {peer: entry for peer, entry in early.pop(place, {}).items() if peer in self._accepted}
        # Rounds only increase. Items held for past rounds, at any stage, are dropped: they would take up the space of
        # items that are still needed.
        for places in self._early.values():
            for skipped in [held for held in places if held[0] < self._round or (places is early and held < place)]:
                del places[skipped]

    def wants(self, peer: NodeName, stage: Stage, place: Place) -> bool:
        """Whether a new item from this peer would be recorded or held. If not, there is no need to decode it."""
        if self._open == (stage, place):
            return peer in self._accepted and peer not in self._came
        held = self._early[stage]
        ahead = place[0] >= self._round and place > self._passed.get(stage, (0, 0))
        return peer in self._peers and ahead and peer not in held.get(place, ()) and self._has_room(peer, stage)

    def holds(self, peer: NodeName, stage: Stage, place: Place) -> bool:
        """Whether something of this peer came early for a place that has not been opened."""
        return peer in self._early[stage].get(place, ())

    def _has_room(self, peer: NodeName, stage: Stage) -> bool:
        most = self._held_ahead if stage is Stage.VOTE or stage is Stage.ANNOUNCE else self._runs_ahead
        return sum(peer in entries for entries in self._early[stage].values()) < most

    def arrive(
        self, peer: NodeName, stage: Stage, place: Place, item: Any, raw: bytes | memoryview = b"", link: int = 0
    ) -> Arrival:
        """An item came from a peer. The order of arrival does not change what `close` returns."""
        if peer not in self._peers:
            return Arrival.STRANGER
        if self._open == (stage, place):
            if peer not in self._accepted:
                return Arrival.STRANGER
            if peer in self._came:
                return _second(self._came[peer], raw, link)
            self._came[peer] = item, raw, link
            return Arrival.RECORDED
        if place[0] < self._round or place <= self._passed.get(stage, (0, 0)):
            return Arrival.LATE
        held = self._early[stage]
        if peer in held.get(place, ()):
            return _second(held[place][peer], raw, link)
        if not self._has_room(peer, stage):
            return Arrival.TOO_FAR
        held.setdefault(place, {})[peer] = item, raw, link
        return Arrival.EARLY

    def stop_awaiting(self, peer: NodeName) -> None:
        """Do not wait for this peer any longer. What it has sent still counts."""
        self._awaited.discard(peer)

    def awaits(self, peer: NodeName) -> bool:
        """Whether something of this peer is awaited, and has not come."""
        return self._open is not None and peer in self._awaited and peer not in self._came

    @property
    def place(self) -> tuple[Stage, int] | None:
        """The stage and the round that are open now; None if nothing is."""
        return None if self._open is None else (self._open[0], self._open[1][0])

    @property
    def round(self) -> int:
        """The round of the stage opened last."""
        return self._round

    def is_open(self, stages: Collection[Stage], round: int) -> bool:
        """Whether one of these stages of this round is open."""
        return self._open is not None and self._open[0] in stages and self._open[1][0] == round

    @property
    def complete(self) -> bool:
        return self._open is not None and self._awaited <= self._came.keys()

    @property
    def missing(self) -> list[NodeName]:
        return in_order(self._awaited - self._came.keys())

    def close(self) -> dict[NodeName, Any]:
        """End the stage, and return what came, in order of name."""
        assert self._open is not None
        self._open = None
        came, self._came = self._came, {}
        return {name: came[name][0] for name in in_order(came)}


def _second(first: _Entry, raw: bytes | memoryview, link: int) -> Arrival:
    """What a second item for the same place is."""
    if first[1] == raw:
        return Arrival.DUPLICATE
    return Arrival.AGAIN if link and first[2] and link != first[2] else Arrival.EQUIVOCATION


def has_passed(theirs: tuple[Stage, int], ours: tuple[Stage, int]) -> bool:
    """Whether a peer that waits at `theirs` has already sent everything that it will ever send for `ours`.

    In a round votes come first, then announcements, then parameters. Of parameters several runs are in flight at once:
    a peer that waits for one run may still send another.
    """
    order = {Stage.VOTE: 0, Stage.ANNOUNCE: 1}
    here, there = (ours[1], order.get(ours[0], 2)), (theirs[1], order.get(theirs[0], 2))
    return there > here or (there == here and here[1] < 2)
