"""What an evaluation gives, and how many examples go into one forward pass of it."""

from dataclasses import dataclass

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


def evaluation_batch(test: Examples) -> int:
    """How many test examples go into one forward pass."""
    values = test.take(torch.zeros(1, dtype=torch.int64))[0].numel()
    return max(1, min(EVALUATION_BATCH // test.probes_each, EVALUATION_VALUES // values))
