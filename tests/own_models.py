"""Models of a user's own, for runs that name them by import path."""

import torch
from torch import nn


def with_extras() -> nn.Module:
    """Layers that no perceptron has: a buffer and a frozen parameter of each peer's own, and dropout."""
    model = nn.Sequential(nn.Linear(64, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 10))
    model.register_buffer("mark", torch.rand(3))
    model.register_parameter("still", nn.Parameter(torch.rand(2), requires_grad=False))
    return model
