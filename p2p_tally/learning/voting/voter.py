"""One peer as a voter: what it takes out of its answers, and what it knows of the other voters. Kept in checkpoints.

The learner has one. The stacked engine has a calibration for many peers at once, and a `Reliability` for each listener.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.learning.data import Examples
from p2p_tally.learning.voting.examiner import Examiner, Predict
from p2p_tally.learning.voting.reliability import Reliability, weighs_by_reliability
from p2p_tally.learning.voting.skew import Calibration, calibration

CALIBRATION = "calibration"
RELIABILITY = "reliability."
EXAM = "exam."


class Voter:
    """What the options --calibrate and --tally-weights reliability keep from round to round; nothing without them."""

    def __init__(
        self, federation: Federation, classes: int, device: torch.device, exam: Examples | None = None
    ) -> None:
        """`exam`: labelled examples of its own that it does not train on."""
        self._exam = exam
        self._calibration: Calibration | None = calibration(classes, federation.calibrate, device=device)
        self._reliability = Reliability(classes) if weighs_by_reliability(federation) else None
        self._examiner = Examiner(classes) if federation.exam else None

    def calibrated(self, logits: Tensor) -> Tensor:
        """The logits [P, C] that an answer is made of."""
        return logits if self._calibration is None else self._calibration.calibrated(logits)

    def weigh(self, voters: Sequence[int], votes: np.ndarray, labels: np.ndarray | None) -> np.ndarray | None:
        """The weight of each of the votes [N, P] of voters of these ranks; None: this is not what weighs them."""
        return None if self._reliability is None else self._reliability.weigh(voters, votes, labels)

    def examine(self, round: int, predict: Predict) -> None:
        """Before a vote: look at the exam, where there is one and it is time."""
        if self._examiner is not None and self._exam is not None and self._examiner.is_due(round):
            self._examiner.sit(self._exam, predict)

    def judge(
        self, voters: Sequence[int], own: int, votes: np.ndarray, labels: np.ndarray | None, base: np.ndarray | None
    ) -> np.ndarray | None:
        """The weights `base` of the votes [N, P] of these voters, by how far this node trusts each. `own`: its rank."""
        return base if self._examiner is None else self._examiner.judge(voters, own, votes, labels, base)

    @property
    def distrusted(self) -> dict[int, float]:
        """Voters that this node does not trust, by rank, and the share of their rounds that were worse than chance."""
        return {} if self._examiner is None else self._examiner.judgement.distrusted()

    @property
    def state(self) -> dict[str, Tensor]:
        """Everything that the next round depends on, as named tensors."""
        state = {} if self._calibration is None else {CALIBRATION: self._calibration.mean}
        if self._reliability is not None:
            state |= {RELIABILITY + key: value for key, value in self._reliability.state.items()}
        if self._examiner is not None:
            state |= {EXAM + key: value for key, value in self._examiner.state.items()}
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """What `state` lacks begins anew."""
        if self._calibration is not None and CALIBRATION in state:
            self._calibration.mean.copy_(state[CALIBRATION])
        if self._reliability is not None and all(RELIABILITY + key in state for key in self._reliability.state):
            self._reliability.restore({key: state[RELIABILITY + key] for key in self._reliability.state})
        if self._examiner is not None and all(EXAM + key in state for key in self._examiner.state):
            self._examiner.restore({key: state[EXAM + key] for key in self._examiner.state})
