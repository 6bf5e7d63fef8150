"""In which round a node begins, and when it goes to a later one: only where a majority of its neighbours says so.

Pure. A hello costs nothing and nobody signs it, so one neighbour's word is one voice among all neighbours, whether they
are linked or not. A neighbour whose link has ended has no voice.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from p2p_tally.protocol.messages import Hello

# With so few neighbours a single absent one leaves no majority of two: see `Behind`.
FEW = 2


def round_of_most(rounds: Sequence[int], neighbours: int) -> int | None:
    """The highest round that more than half of all neighbours have reached; None if too few say anything.

    One voice is never a majority: with one neighbour the answer is None.
    """
    if neighbours < 2 or len(rounds) <= neighbours // 2:
        return None
    return sorted(rounds, reverse=True)[neighbours // 2]


def most_play(hellos: Collection[Hello], neighbours: int) -> bool:
    """Whether the federation plays already, and this node joins it."""
    return round_of_most([hello.round for hello in hellos if hello.running], neighbours) is not None


class Basis(StrEnum):
    """Why a node begins where it begins."""

    PLAYED = "a majority of the neighbours plays"
    COMMON = "all have this checkpoint"
    MAJORITY = "a majority has this checkpoint"
    OWN = "it is this node's own newest"


@dataclass(frozen=True)
class StartingPoint:
    load: int  # the checkpoint to load; 0: none
    round: int  # the round to count as finished
    basis: Basis


def starting_point(own: Sequence[int], hellos: Sequence[Hello], neighbours: int) -> StartingPoint:
    """`own`: the rounds of this node's checkpoints, with 0 for a fresh start.

    If a majority of the neighbours plays, this node joins after the round that they are in. If not, and a majority of
    the neighbours and this node has a checkpoint of the same round, that one counts: if possible one that all have, so
    that a run continues with the same bits. So a few members can choose among the rounds that a majority has on disk,
    and cannot ask for any other. If there is no such round, this node keeps what it has itself.
    """
    played = round_of_most([hello.round for hello in hellos if hello.running], neighbours)
    if played is not None:
        return StartingPoint(max(own), max(*own, played + 1), Basis.PLAYED)
    lists = [set(own), *(set(hello.checkpoints) for hello in hellos)]
    held_by = Counter(round for rounds in lists for round in rounds if round)
    most = {round for round, holders in held_by.items() if 2 * holders > neighbours + 1}
    common = most.intersection(*lists)
    if common:
        return StartingPoint(max(common), max(common), Basis.COMMON)
    if most:
        return StartingPoint(max(round for round in own if round <= max(most)), max(most), Basis.MAJORITY)
    return StartingPoint(max(own), max(own), Basis.OWN)


@dataclass(frozen=True)
class Voice:
    """What one neighbour lets this node know about its round, over the link that is up now; 0: nothing."""

    said: int  # the highest round in any of its messages
    shown: int  # the highest round of a vote, an announcement or parameters: what only a node that plays it has to send
    is_there: bool  # whether it is awaited


class Behind:
    """Whether the neighbours of one node have continued without it.

    A majority of the neighbours decides. With one or two neighbours there is none when one is away, so there the
    neighbours that are there decide without it. They are believed only for what they do: all of them must have sent
    votes or parameters of later rounds, when this node asks in two different rounds of its own.
    """

    def __init__(self) -> None:
        self._since: int | None = None  # the round of this node in which few neighbours were first found ahead

    def later_round(self, round: int, voices: Sequence[Voice]) -> int | None:
        """The round that the neighbours are in, if this node in `round` is behind; otherwise None. `voices`: one for
        each neighbour."""
        theirs = round_of_most([voice.said for voice in voices], len(voices))
        if theirs is not None and theirs > round:
            return theirs
        shown = [voice.shown for voice in voices if voice.is_there]
        if len(voices) > FEW or (shown and min(shown) <= round):
            self._since = None
        elif shown and self._since is None:
            self._since = round
        elif shown and self._since is not None and self._since < round:
            self._since = None
            return min(shown)
        return None
