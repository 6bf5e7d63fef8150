"""A trained model on examples: predictions, accuracy, and which classes it takes for which.

In the batches and by the operations of a run's own evaluation, so that the same accuracy comes out, to the last digit.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from p2p_tally.errors import DataError
from p2p_tally.learning.evaluation import evaluation_batch
from p2p_tally.learning.saved.inputs import Inputs
from p2p_tally.learning.saved.loaded import TrainedModel

# Up to this many classes there is a table of which are taken for which.
MOST_CONFUSED = 1000


@dataclass(frozen=True)
class Predictions:
    """One for each example, or for each position of a text."""

    classes: np.ndarray  # [n]
    probabilities: np.ndarray  # [n], of those classes
    labels: np.ndarray | None  # [n], where they are known


@dataclass(frozen=True)
class Assessment:
    """A model on labelled examples."""

    count: int  # predictions
    accuracy: float  # per cent, as a run reports it
    loss: float  # mean cross-entropy
    confusion: np.ndarray | None  # [C, C]: how many of each class (rows) were taken for each (columns)

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf


def predict(model: TrainedModel, inputs: Inputs, device: str = "cpu") -> Predictions:
    classes, probabilities, labels = [], [], []
    for logs, y in _batches(model, inputs, device):
        highest, index = logs.max(-1)
        classes.append(index)
        probabilities.append(highest.exp())
        if y is not None:
            labels.append(y)
    return Predictions(
        torch.cat(classes).numpy(), torch.cat(probabilities).numpy(), torch.cat(labels).numpy() if labels else None
    )


def evaluate(model: TrainedModel, inputs: Inputs, device: str = "cpu") -> Assessment:
    size = model.about.classes
    right, loss, count = 0, 0.0, 0
    confusion = torch.zeros(size * size, dtype=torch.int64) if size <= MOST_CONFUSED else None
    for logs, y in _batches(model, inputs, device):
        assert y is not None, "only labelled examples are evaluated"
        predicted = logs.argmax(-1)
        right += int((predicted == y).sum())
        loss += float(F.nll_loss(logs, y, reduction="sum"))
        count += len(y)
        if confusion is not None:
            confusion += torch.bincount(y * size + predicted, minlength=size * size)
    table = None if confusion is None else confusion.view(size, size).numpy()
    return Assessment(count, 100 * (right / count), loss / count, table)


@torch.no_grad()
def _batches(model: TrainedModel, inputs: Inputs, device: str) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Log-probabilities [n, C] and labels [n] of some examples at a time."""
    model.to(device).eval()
    for examples in inputs.parts:
        for indices in torch.split(torch.arange(len(examples)), evaluation_batch(examples)):
            x, y = examples.take(indices)
            try:
                logits = model(x.to(device)).flatten(0, -2)
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                reason = " ".join(str(error).split())[:200]
                raise DataError(f"the model fails on inputs {x.dtype} {tuple(x.shape[1:])}: {reason}") from None
            if logits.shape[-1] != model.about.classes:
                raise DataError(f"the model gives {logits.shape[-1]} classes, and its file says {model.about.classes}")
            yield logits.log_softmax(-1).cpu(), None if y is None else y.flatten()
