"""Models of a user's own, for runs that name them by import path."""

import torch
from torch import Tensor, nn


def with_extras() -> nn.Module:
    """Layers that no perceptron has: a buffer and a frozen parameter of each peer's own, and dropout."""
    model = nn.Sequential(nn.Linear(64, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 10))
    model.register_buffer("mark", torch.rand(3))
    model.register_parameter("still", nn.Parameter(torch.rand(2), requires_grad=False))
    return model


def with_norms(classes: int) -> nn.Module:
    """BatchNorm over values and over maps, and dropout."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(144, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Linear(16, classes),
    )


def with_norms_alone() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))


class CountsItsCalls(nn.Module):
    """A buffer that changes at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        logits: Tensor = self.layer(x)
        return logits


def counts_its_calls() -> nn.Module:
    return CountsItsCalls()


class FillsACache(CountsItsCalls):
    """A buffer that is right after the first call, NaN in it or not."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls.fill_(torch.nan)
        logits: Tensor = self.layer(x)
        return logits


def fills_a_cache() -> nn.Module:
    return FillsACache()
