"""The report of one round at one node: its results, what was sent, and how long each phase took."""

from dataclasses import dataclass, field

from p2p_tally.ids import NodeName
from p2p_tally.learning.consensus import Answer
from p2p_tally.learning.learner import Evaluation
from p2p_tally.node.links.transport import Clock
from p2p_tally.protocol.ledger import Count
from p2p_tally.protocol.messages import Stage


@dataclass
class RoundReport:
    """One round at one node."""

    round: int
    evaluation: Evaluation | None = None
    voters: list[NodeName] = field(default_factory=list)  # whose answers this node has, in order of name
    answers: list[Answer] = field(default_factory=list)  # what this node learned from, in the same order
    due: bool = False  # whether a merge was due
    merged: bool = False
    sent: dict[Stage, Count] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # by phase


class Stopwatch:
    """Seconds by phase: each lap is added to the phase of its name."""

    def __init__(self, clock: Clock, seconds: dict[str, float]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._last = clock()

    def lap(self, phase: str) -> None:
        now = self._clock()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._last
        self._last = now
