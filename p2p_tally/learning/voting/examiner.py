"""One peer as a judge of voters: what it takes the probes' classes to be, and how sure it is. See `defence/exam.py`."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.defence.exam import Judge, trust_in_own, weighed
from p2p_tally.errors import ConfigError
from p2p_tally.ids import derive_seed
from p2p_tally.learning.data import Examples
from p2p_tally.learning.methods import method_of

# Rounds from one look at the exam to the next: a model changes little in so many.
EVERY = 10
# Of its own data a peer sets apart no more than one example of so many.
LEAST_LEFT = 2


# Inputs as they are stored -> log-probabilities [P, C], on the CPU.
Predict = Callable[[Tensor], Tensor]


class Examiner:
    """A judge, and how far it can trust its own votes. C classes."""

    def __init__(self, classes: int) -> None:
        self.judgement = Judge(classes)
        # The chance that its own vote is right, by the class that it names [C]. Before its first exam it knows nothing.
        self._trust = np.full(classes, 1.0 / classes)
        self._has_sat = False

    def is_due(self, round: int) -> bool:
        return not self._has_sat or round % EVERY == 0

    def sit(self, exam: Examples, predict: Predict) -> None:
        """Learn from this peer's own votes on its exam."""
        x, y = exam.take(torch.arange(len(exam)))
        assert y is not None, "private examples have labels"
        self.learn(predict(x).argmax(-1).numpy(), y.flatten().numpy())

    def learn(self, said: np.ndarray, labels: np.ndarray) -> None:
        """This peer's own votes on its exam [K], and the labels there."""
        self._trust = trust_in_own(said, labels, len(self._trust))
        self._has_sat = True

    def judge(
        self, voters: Sequence[int], own: int, votes: np.ndarray, labels: np.ndarray | None, base: np.ndarray | None
    ) -> np.ndarray | None:
        """The weights `base` of a tally of votes [N, P], by how far each voter is trusted; see `weighed`."""
        if labels is not None and (labels >= 0).any():
            truth, sure = labels, np.ones(len(labels))
        elif own in voters:
            cast = votes[list(voters).index(own)]
            named = cast < len(self._trust)
            truth = np.where(named, cast, -1)
            sure = self._trust[np.where(named, cast, 0)]
        else:
            return base  # its model has diverged: it knows nothing of these probes
        return weighed(base, self.judgement.weigh(voters, votes, truth, sure))

    # --- state

    @property
    def state(self) -> dict[str, Tensor]:
        """Everything that the next round depends on, as named tensors."""
        own = {"trust": self._trust, "sat": np.array([self._has_sat])}
        return {key: torch.from_numpy(value) for key, value in (own | self.judgement.state).items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._trust, self._has_sat = state["trust"].numpy().copy(), bool(state["sat"][0])
        self.judgement.restore({key: state[key].numpy() for key in self.judgement.state})


def set_exams(
    federation: Federation, shards: list[Examples], labelled: bool
) -> tuple[list[Examples], list[Examples | None]]:
    """What each peer trains on, and the examples that it judges itself by. Where probes have labels, these are enough,
    and nothing is set apart."""
    if federation.exam and method_of(federation).distils_merged:
        raise ConfigError(
            f"--exam {federation.exam}: with --method {method_of(federation).name} all peers must learn from the same "
            "target, and each judges for itself; accepted is 0"
        )
    if not federation.exam or labelled:
        return shards, [None] * len(shards)
    kept, exams = [], []
    for rank, shard in enumerate(shards):
        count = min(federation.exam, len(shard) // LEAST_LEFT)
        if not count:
            raise ConfigError(f"--exam {federation.exam}: node {rank} has {len(shard)} examples; accepted from 2 on")
        seed = derive_seed(federation.seed, "exam", rank)
        order = torch.randperm(len(shard), generator=torch.Generator().manual_seed(seed))
        exams.append(shard.subset(order[:count].sort().values))
        kept.append(shard.subset(order[count:].sort().values))
    return kept, list(exams)
