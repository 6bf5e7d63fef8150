"""Who is awaited at a stage of a round, who came, and who is missing. No clock, no sockets, no waiting.

What comes early is held, a little way ahead; what comes late, twice or from a stranger is told apart and dropped.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from p2p_tally.ids import NodeName, in_order
from p2p_tally.protocol.messages import Stage

# A peer can be one exchange ahead of us in good faith: its message of the next one passes ours of this one.
# Two are held; more would let a peer fill our memory.
HELD_AHEAD = 2


class Arrival(StrEnum):
    """What became of something that arrived; the value is also its counter's name."""

    RECORDED = "recorded"
    EARLY = "early"  # held for its round
    LATE = "late"
    DUPLICATE = "duplicate"  # the same again
    EQUIVOCATION = "equivocation"  # something else for the same place: the first stands
    STRANGER = "stranger"
    TOO_FAR = "too-far-ahead"


# What arrived: the item, and the bytes by which a second copy is told from a contradiction.
_Entry = tuple[Any, bytes]


class Barrier:
    """One node's waiting room. Items are opaque: answers, vectors, counts."""

    def __init__(self, peers: Iterable[NodeName]) -> None:
        self._peers = frozenset(peers)
        self._passed: dict[Stage, int] = {}  # the last round opened, by stage
        self._early: dict[Stage, dict[int, dict[NodeName, _Entry]]] = {stage: {} for stage in Stage}
        self._open: tuple[Stage, int] | None = None
        self._awaited: frozenset[NodeName] = frozenset()
        self._came: dict[NodeName, _Entry] = {}

    def open(self, stage: Stage, round: int, awaited: Iterable[NodeName]) -> None:
        """Begin to wait for `awaited`; what they sent early counts at once."""
        assert self._open is None, "one stage at a time"
        self._open = stage, round
        self._passed[stage] = round
        self._awaited = frozenset(awaited)
        early = self._early[stage]
        self._came = {peer: entry for peer, entry in early.pop(round, {}).items() if peer in self._awaited}
        for skipped in [held for held in early if held < round]:
            del early[skipped]

    def judge(self, peer: NodeName, stage: Stage, round: int) -> Arrival:
        """What `arrive` would make of something new, so that the unwanted is not even decoded."""
        if peer not in self._peers:
            return Arrival.STRANGER
        if self._open == (stage, round):
            if peer not in self._awaited:
                return Arrival.STRANGER
            return Arrival.DUPLICATE if peer in self._came else Arrival.RECORDED
        if round <= self._passed.get(stage, 0):
            return Arrival.LATE
        held = self._early[stage]
        if peer in held.get(round, ()):
            return Arrival.DUPLICATE
        if sum(peer in entries for entries in held.values()) >= HELD_AHEAD:
            return Arrival.TOO_FAR
        return Arrival.EARLY

    def arrive(self, peer: NodeName, stage: Stage, round: int, item: Any, raw: bytes = b"") -> Arrival:
        """Something came from a peer. Order of arrival has no effect on what `close` gives."""
        verdict = self.judge(peer, stage, round)
        if verdict is Arrival.RECORDED:
            self._came[peer] = item, raw
        elif verdict is Arrival.EARLY:
            self._early[stage].setdefault(round, {})[peer] = item, raw
        elif verdict is Arrival.DUPLICATE:
            first = self._came if self._open == (stage, round) else self._early[stage][round]
            return Arrival.DUPLICATE if first[peer][1] == raw else Arrival.EQUIVOCATION
        return verdict

    @property
    def complete(self) -> bool:
        return self._open is not None and len(self._came) == len(self._awaited)

    @property
    def missing(self) -> list[NodeName]:
        return in_order(self._awaited - self._came.keys())

    def close(self) -> dict[NodeName, Any]:
        """End the waiting: what came, in order of name."""
        assert self._open is not None
        self._open = None
        came, self._came = self._came, {}
        return {name: came[name][0] for name in in_order(came)}
