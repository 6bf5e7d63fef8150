"""What a peer has cost this node, as one number: the score. Pure: the caller passes in the time.

A peer that costs nothing has the best score. Two kinds of things lower it:

- It keeps this node waiting. An honest peer may: it is slow, hangs, is started again. So this lowers the score to 0 at
  most, which means that this node does not wait for it. It is regained by time alone, and only as fast as a federation
  can afford to wait again: so one peer makes rounds longer by that share at most, whatever it does in between.
- It breaks the protocol, which no honest peer does. This can lower the score to the worst; half of it is forgotten in
  ten minutes.

What costs how much is one table, and so is what follows from a score.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from p2p_tally.errors import BallotError, FrameError, ParameterError, PeerError

BEST, WORST = 10.0, -100.0

# The share of the time that a federation waits for one peer in the long run, when nothing is left of its ten points.
# Members may wait for it one after the other, and for each other meanwhile: so each has its part of this share.
REGAINED = 0.25
# Seconds in which half of what breaches of the protocol have cost is forgotten.
HALF_LIFE = 600.0

# A wait of less than this share of a deadline costs as much as it took, and is not worth a line.
COUNTED = 0.5

# Messages of a peer that this node has no use for: so many at once, and so many a second. An honest peer that has gone
# on without this node, or comes back from far behind, sends as many as it plays rounds.
USELESS_AT_ONCE = 4_000.0
USELESS_A_SECOND = 1_000.0


class Offence(StrEnum):
    """The value is what an operator reads."""

    WAITED = "kept waiting"  # this node waited for something that did not come; one for each deadline
    SLOW = "much slower than most"  # what it sent came in time, but long after that of most; one for each deadline
    BALLOT = "refused ballot"
    PARAMETERS = "refused parameters"
    MERGE = "spoiled merge"  # a mean that does not follow from the contributions, or differs by receiver
    FRAME = "no message"  # bytes that are no message
    CONTRADICTION = "two answers"  # two different messages for one place over one link
    FLOOD = "flood"  # a message more than the useless ones that are borne
    PROVEN = "two signed ballots"  # there is a proof


class Cost(NamedTuple):
    points: float
    breach: bool  # no honest peer does it; otherwise it takes patience alone


COSTS: Mapping[Offence, Cost] = {
    Offence.WAITED: Cost(1.0, breach=False),
    Offence.SLOW: Cost(1.0, breach=False),
    Offence.BALLOT: Cost(5.0, breach=True),
    Offence.PARAMETERS: Cost(8.0, breach=True),  # after one run that was refused it is still awaited
    Offence.MERGE: Cost(10.0, breach=True),
    Offence.FRAME: Cost(10.0, breach=True),
    Offence.CONTRADICTION: Cost(20.0, breach=True),
    Offence.FLOOD: Cost(0.05, breach=True),
    Offence.PROVEN: Cost(BEST - WORST, breach=True),
}


class Standing(StrEnum):
    """What follows from a score, from the mildest to the hardest. Each has the consequences of those before it."""

    GOOD = "good"
    IMPATIENT = "shorter patience"  # this node waits for it in vain for as many deadlines as it has points
    NOT_AWAITED = "not awaited"  # what it sends in time counts
    NOT_MERGED = "not merged with"
    CLOSED = "link closed"  # and no new one is made


# A whole deadline: with less, a peer that needs nearly one would not be waited for to the end.
LEAST_AWAITED = 1.0

# Each holds below this score, from the hardest to the mildest.
STANDINGS: tuple[tuple[float, Standing], ...] = (
    (-50.0, Standing.CLOSED),
    (-10.0, Standing.NOT_MERGED),
    (LEAST_AWAITED, Standing.NOT_AWAITED),
    (BEST / 2, Standing.IMPATIENT),
)

# The reasons of refusals that cost something; all others may be honest: a peer that has another members' list for a
# moment, or is far from this node's round.
_BY_REASON: Mapping[str, Offence] = {
    "signature": Offence.FRAME,
    "shape": Offence.PARAMETERS,
    "out-of-bounds": Offence.PARAMETERS,
    "false-mean": Offence.MERGE,
    "equivocation": Offence.MERGE,
}
_BY_CLASS: tuple[tuple[type[PeerError], Offence], ...] = (
    (FrameError, Offence.FRAME),
    (BallotError, Offence.BALLOT),
    (ParameterError, Offence.PARAMETERS),
)


def offence_of(error: PeerError) -> Offence | None:
    """What a refusal costs the peer; None: nothing."""
    by_class = next((offence for kind, offence in _BY_CLASS if isinstance(error, kind)), None)
    return _BY_REASON.get(error.reason, by_class)


@dataclass
class Score:
    """The score of one peer."""

    patience: float = BEST  # how many deadlines this node would still wait for it in vain, but for its breaches
    breaches: float = 0.0  # points, of which less and less is remembered
    counts: Counter[Offence] = field(default_factory=Counter)  # how often, since this node was started
    useless: float = 0.0  # messages, less those that time has made good

    @property
    def value(self) -> float:
        return max(WORST, self.patience - self.breaches)

    @property
    def standing(self) -> Standing:
        value = self.value
        below = (standing for highest, standing in STANDINGS if value < highest)
        return next(below, Standing.GOOD)

    @property
    def deadlines(self) -> float:
        """How many deadlines this node would still wait for the peer in vain."""
        return max(0.0, self.value)

    @property
    def awaited(self) -> bool:
        return self.patience - self.breaches >= LEAST_AWAITED  # asked for every message

    @property
    def merged(self) -> bool:
        return self.standing not in (Standing.NOT_MERGED, Standing.CLOSED)

    @property
    def closed(self) -> bool:
        return self.standing is Standing.CLOSED

    @property
    def reasons(self) -> list[str]:
        """Why the standing is not good, what cost most first; none if it is."""
        if self.standing is Standing.GOOD:
            return []
        counts = {True: self.breaches >= 1, False: self.patience <= BEST - 1}  # by whether it is a breach
        found = [offence for offence in self.counts if counts[COSTS[offence].breach]]
        found.sort(key=lambda offence: -self.counts[offence] * COSTS[offence].points)
        return [f"{offence}, {self.counts[offence]} times" for offence in found]

    def charge(self, offence: Offence, times: float = 1.0) -> None:
        points, breach = COSTS[offence]
        if breach or times >= COUNTED:
            self.counts[offence] += 1
        if breach:
            self.breaches = min(BEST - WORST, self.breaches + points * times)
        else:
            self.patience = max(0.0, self.patience - points * times)

    def bears_useless(self) -> bool:
        """A message of no use came. False: it is one too many, unless time has passed that makes it good."""
        self.useless += 1
        return not self.is_flooded

    @property
    def is_flooded(self) -> bool:
        return self.useless > USELESS_AT_ONCE

    def pass_time(self, seconds: float, deadline: float, peers: int = 1) -> None:
        """`deadline`: the length of one, in seconds. `peers`: how many peers this node has."""
        self.patience = min(BEST, self.patience + REGAINED / peers * seconds / deadline)
        self.breaches *= 0.5 ** (seconds / HALF_LIFE)
        self.useless = max(0.0, self.useless - USELESS_A_SECOND * seconds)

    def forget_breaches(self) -> None:
        """Where names are not proven: who has this name now may be somebody else."""
        self.breaches = 0.0

    def wait_once(self) -> None:
        """A node that has nothing better to do waits for anybody."""
        self.patience = max(self.patience, 1.0)
