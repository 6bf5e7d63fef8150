"""Consensus targets for any method: the row's own functions, the target peer by peer.

The stacked engine has batched code for the answers and targets of the built-in rows. Every other row comes here. It
costs one call of the row's `target` for each peer, or one for all where all peers hear the same.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.learning import answers, consensus
from p2p_tally.learning.consensus import Answer
from p2p_tally.learning.methods import Method
from p2p_tally.learning.voting.reliability import weighs_by_reliability
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.runner.stacked.listeners import Heard

# Answers and targets that the engine computes for all peers at once.
BATCHED = {
    (answers.votes, consensus.histogram),
    (answers.soft_labels, consensus.mean_soft_label),
    (answers.top_k, consensus.mean_top_k),
}


def is_batched(method: Method, federation: Federation) -> bool:
    """Whether the engine's own tensor code covers this row. A row that sends nothing needs no code at all."""
    if weighs_by_reliability(federation) or federation.exam or federation.robust_soft is not None:
        return False
    return method.answer is None or (method.answer, method.target) in BATCHED


def answers_of(
    method: Method,
    federation: Federation,
    ballots: BallotFormat,
    logits: Tensor,
    sent: Callable[[Answer], Answer] = lambda given: given,
) -> list[Answer]:
    """Each peer's answer as those who hear it have it, from the logits of all peers [N, P, C]. `sent`: what the subject
    makes of an answer for each example."""
    assert method.answer is not None
    heard = ballots.as_decoded(sent(method.answer(logits, federation)))
    if isinstance(heard, tuple):
        return list(zip(*heard, strict=True))
    return list(heard)


def any_target(
    method: Method,
    federation: Federation,
    classes: int,
    given: Sequence[Answer],
    heard: Iterable[Heard],
) -> Tensor:
    """What each peer makes of the answers that it has heard: [N, P, C], or [1, P, C] for all.

    A peer that hears nobody gets zeros. It learns nothing from them: it has no quorum.
    """
    assert method.target is not None
    found = [
        method.target([given[peer] for peer in members], classes, federation, weights) if len(members) else None
        for members, weights in heard
    ]
    nothing = np.zeros_like(next(target for target in found if target is not None))  # who speaks hears itself
    rows = np.stack([nothing if target is None else target for target in found])
    return torch.from_numpy(rows.astype(np.float32, copy=False))
