"""Memory that a thread uses again for every block that it works on. What is in it is valid until the next call."""

import threading

import torch
from torch import Tensor


class Scratch(threading.local):
    """One tensor for each thread. It grows to the largest that was asked for, and stays in the core's cache."""

    def __init__(self) -> None:
        self._memory = torch.empty(0)

    def like(self, other: Tensor) -> Tensor:
        """A tensor of the same shape, whose values are whatever was there before."""
        if self._memory.numel() < other.numel() or self._memory.device != other.device:
            self._memory = torch.empty(other.numel(), device=other.device)
        return self._memory[: other.numel()].view_as(other)
