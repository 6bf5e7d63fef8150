"""How good a model is on the test set: on all of it, and on data distributed like a peer's own.

The test set is the same for all peers. So that a model made for one peer's data can be judged on it, `own` weighs the
recall of each class by the share that the class has among the peer's private examples. C classes.
"""

from dataclasses import dataclass

import numpy as np
import torch

from p2p_tally.learning.data import Examples

# Limits of one forward pass over the test set: enough to be fast, and little enough for the caches of a CPU. There a
# convolutional network takes twice as long for each image in a batch of 1,024 (32 x 32 pixels) as in a batch of 256.
EVALUATION_BATCH = 1024  # predictions
EVALUATION_VALUES = 1 << 20  # of the inputs


@dataclass(frozen=True)
class Evaluation:
    """A model on the test set."""

    accuracy: float  # share of the predictions that are right
    loss: float  # mean cross-entropy
    own: float  # accuracy on data distributed like the peer's own


def evaluation_batch(test: Examples) -> int:
    """How many test examples go into one forward pass."""
    values = test.take(torch.zeros(1, dtype=torch.int64))[0].numel()
    return max(1, min(EVALUATION_BATCH // test.probes_each, EVALUATION_VALUES // values))


def own_accuracy(counts: np.ndarray, right: np.ndarray, tested: np.ndarray) -> np.ndarray:
    """Shares [...], of private examples by class [..., C], right answers by class [..., C] and test examples [C].

    Classes without a test example are left out; not a number where none of the peer's classes has one.
    """
    known = np.where(tested > 0, counts, 0)  # [..., C]
    with np.errstate(invalid="ignore"):
        found: np.ndarray = np.asarray((known * right / np.maximum(tested, 1)).sum(-1) / known.sum(-1))
    return found
