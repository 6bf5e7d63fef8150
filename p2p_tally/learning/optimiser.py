"""AdamW over one flat vector. Its state is three tensors: a checkpoint keeps them, a merge leaves them alone."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class FlatAdamW:
    """torch's own AdamW arithmetic without the bookkeeping for parameter groups, which costs more than a small step."""

    def __init__(
        self,
        vector: Tensor,
        gradient: Tensor | None,
        lr: float,
        weight_decay: float,
        state: dict[str, Tensor] | None = None,
    ) -> None:
        """`state`: where its own is kept, as it stands; without it a new one."""
        self.vector = vector  # [W]
        self.gradient = gradient  # [W]; None: every step is given its own, in pieces
        self.lr = lr
        self.weight_decay = weight_decay
        self.state = state or {
            "step": torch.zeros((), device=vector.device),
            "mean": torch.zeros_like(vector),  # [W], of the gradients
            "square": torch.zeros_like(vector),  # [W], of their squares
        }

    @torch.no_grad()
    def step(self, pieces: Sequence[Tensor] | None = None) -> None:
        """One step along the gradient, or along `pieces` that make it up in the vector's order."""
        state = self.state
        if pieces is None:
            assert self.gradient is not None
            pieces = [self.gradient]
        sizes = [piece.numel() for piece in pieces]
        # torch counts the steps of every piece; the first one's count is ours.
        steps = [state["step"], *(state["step"].clone() for _ in pieces[1:])]
        # The call that torch's `adamw(fused=True)` comes to after 40 microseconds of checks.
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            _cut(self.vector, sizes),
            [piece.reshape(-1) for piece in pieces],
            _cut(state["mean"], sizes),
            _cut(state["square"], sizes),
            [],
            steps,
            lr=self.lr,
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=self.weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )


@torch.no_grad()
def adamw_by_rows(rows: Tensor, gradient: Tensor, state: Mapping[str, Tensor], lr: float, weight_decay: float) -> None:
    """The same step of rows [n, W] each of which has its own count: `state` has mean, square [n, W], steps [n, 1]."""
    mean, square, steps = state["mean"], state["square"], state["steps"]
    steps += 1
    mean.lerp_(gradient, 1 - BETA1)
    square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    rows.mul_(1 - lr * weight_decay)
    scale = (square / (1 - BETA2**steps)).sqrt_().add_(EPSILON)
    rows.sub_(lr / (1 - BETA1**steps) * mean / scale)


def _cut(flat: Tensor, sizes: list[int]) -> list[Tensor]:
    return [flat] if len(sizes) == 1 else list(torch.split(flat, sizes))
