"""How far stacked peers trust each other: a judge for each listener, or one for all who hear and know the same.

The arithmetic is the nodes' own (`learning/voting/examiner.py`), listener by listener.
"""

from copy import deepcopy

import numpy as np
from torch import Tensor

from p2p_tally.defence.exam import by_majority
from p2p_tally.learning.voting.examiner import Examiner
from p2p_tally.runner.stacked.listeners import Heard
from p2p_tally.runner.stacked.peers import Peers


class Judges:
    """Those of all peers."""

    def __init__(self, stack: Peers, classes: int, alike: bool) -> None:
        """`alike`: all know the same of the probes. Then one judge serves for as long as all hear the same."""
        self._nodes = len(stack.names)
        self._classes = classes
        self._stack = stack
        self._judges = [Examiner(classes) for _ in range(1 if alike else self._nodes)]

    def examine(self, round: int, voting: np.ndarray) -> None:
        """Before a vote: those who vote [N] look at their exams, where they have any and it is time."""
        exams = dict(enumerate(self._stack.task.exams))
        due = [rank for rank in exams if exams[rank] and voting[rank] and self._judges[rank].is_due(round)]
        for rank, learner in enumerate(self._stack.learners() if due else ()):
            exam = exams[rank]
            if rank in due and exam is not None:
                self._judges[rank].sit(exam, learner.log_probabilities)

    def weigh(
        self, heard: list[Heard], listening: np.ndarray, votes: np.ndarray, labels: np.ndarray | None
    ) -> list[Heard]:
        """What each listener makes of the weights of those it hears: an entry for each peer, or one for all."""
        if len(heard) < len(self._judges):
            heard = heard * self._nodes
        elif len(heard) > len(self._judges):
            self._judges = [deepcopy(self._judges[0]) for _ in heard]
        weighed: list[Heard] = []
        for listener, (judge, (members, base)) in enumerate(zip(self._judges, heard, strict=True)):
            judges = listening[listener] and len(members)
            voters = members.tolist()
            weighed.append((members, judge.judge(voters, listener, votes[members], labels, base) if judges else base))
        return weighed

    def distrusted(self, honest: int) -> list[int]:
        """The ranks that most of the first `honest` peers do not trust."""
        return by_majority([judge.judgement.distrusted() for judge in self._judges[:honest]])

    def state(self) -> dict[str, Tensor]:
        each = (judge.state for judge in self._judges)
        return {f"judge {number}.{key}": value for number, one in enumerate(each) for key, value in one.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        keys = self._judges[0].state
        count = sum(key.startswith("judge ") for key in state) // len(keys)
        self._judges = [Examiner(self._classes) for _ in range(count)]
        for number, judge in enumerate(self._judges):
            judge.restore({key: state[f"judge {number}.{key}"] for key in keys})
