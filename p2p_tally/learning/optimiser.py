"""AdamW over one flat vector. Its state is three tensors: a checkpoint keeps them, a merge leaves them alone."""

import torch
from torch import Tensor
from torch.optim.adamw import adamw

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class FlatAdamW:
    """torch's own AdamW arithmetic without the bookkeeping for parameter groups, which costs more than a small step."""

    def __init__(self, vector: Tensor, gradient: Tensor, lr: float, weight_decay: float) -> None:
        self.vector = vector  # [W]
        self.gradient = gradient  # [W]
        self.lr = lr
        self.weight_decay = weight_decay
        self.state = {
            "step": torch.zeros((), device=vector.device),
            "mean": torch.zeros_like(vector),  # [W], of the gradients
            "square": torch.zeros_like(vector),  # [W], of their squares
        }

    @torch.no_grad()
    def step(self) -> None:
        state = self.state
        adamw(
            [self.vector],
            [self.gradient],
            [state["mean"]],
            [state["square"]],
            [],
            [state["step"]],
            fused=True,
            amsgrad=False,
            beta1=BETA1,
            beta2=BETA2,
            lr=self.lr,
            weight_decay=self.weight_decay,
            eps=EPSILON,
            maximize=False,
        )
