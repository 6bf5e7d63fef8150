"""The skew of a peer's own data: a local loss that undoes it, and votes that do not repeat it.

Both are logit adjustment (Menon and others, "Long-tail learning via logit adjustment", ICLR 2021): the logarithm of how
common a class is, added to the logits where they are trained, or taken away from them where they are used.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from p2p_tally.learning.data import Examples

LocalLoss = Callable[[Tensor, Tensor], Tensor]  # (logits [B, C], labels [B]) -> mean loss

# How much of the running mean of a peer's predictions comes from the probes of one round.
RATE = 0.02


def class_counts(examples: Examples, classes: int) -> Tensor:
    """How often each class is a label [C]. Of a text every token is counted once."""
    labels = examples.labels
    if labels is None:
        step = examples.probes_each  # windows may overlap: those that stand side by side have every token once
        labels = examples.take(torch.arange(0, len(examples), step))[1]
        assert labels is not None, "private examples have labels"
    return torch.bincount(labels.flatten(), minlength=classes)


def balance_shift(counts: Tensor, strength: float) -> Tensor:
    """What is added to the logits of a local step [C]: strength x log of the share of each class, with one more example
    counted in every class.

    A class that is common at this peer then needs less of the model to be predicted, and a rare one more. So the model
    without the shift does not learn how common the classes are here.
    """
    counted = counts.double() + 1.0
    return (strength * (counted / counted.sum()).log()).float()


def local_loss(private: Examples, classes: int, balance: float, device: torch.device) -> LocalLoss:
    """The loss of local steps: cross-entropy, or that of the shifted logits."""
    if not balance:
        return F.cross_entropy
    shift = balance_shift(class_counts(private, classes), balance).to(device)
    return lambda logits, labels: F.cross_entropy(logits + shift, labels)


class Calibration:
    """The running mean of a peer's own predictions on the probes, [..., C], taken out of what it answers.

    A model that was trained on skewed data names its common classes too often. Over many probes its mean prediction
    shows by how much. Works for one peer, or for many at once.
    """

    def __init__(self, mean: Tensor, strength: float) -> None:
        self.mean = mean
        self._strength = strength

    def calibrated(self, logits: Tensor) -> Tensor:
        """Logits [..., P, C] less strength x log of the mean prediction, which takes these probes in first."""
        now = logits.softmax(-1).mean(-2)
        if bool(now.isfinite().all()):  # the predictions of a model that has diverged tell nothing
            self.mean.mul_(1.0 - RATE).add_(now, alpha=RATE)
        return logits - self._strength * self.mean.clamp(min=1e-6).log().unsqueeze(-2)


def calibration(
    classes: int, strength: float, peers: tuple[int, ...] = (), device: torch.device | None = None
) -> Calibration | None:
    """None where votes are not calibrated. `peers`: (n,) for n peers at once."""
    if not strength:
        return None
    return Calibration(torch.full((*peers, classes), 1.0 / classes, device=device), strength)
