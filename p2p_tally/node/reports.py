"""The report of one round at one node: its results, what was sent, and how long each phase took."""

from dataclasses import dataclass, field

from p2p_tally.ids import NodeName
from p2p_tally.learning.consensus import Answer
from p2p_tally.learning.evaluation import Evaluation
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
    answered: int = 0  # the round of these answers: this one, or with --overlap the one before
    due: bool = False  # whether a merge ended
    merged: bool = False  # whether it was completed
    sent: dict[Stage, Count] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # by phase

    def heard(self, round: int, answers: dict[NodeName, Answer]) -> None:
        self.answered, self.voters, self.answers = round, list(answers), list(answers.values())

    def merge_ended(self, completed: bool | None) -> bool:
        """None: none has ended. Returns whether one has."""
        self.due = self.due or completed is not None
        self.merged = self.merged or bool(completed)
        return completed is not None


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
