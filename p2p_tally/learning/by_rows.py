"""A module as a function of rows of parameters: so a row's own functions try, train and compare several models.

Learner and stacked engine call the same function: a learner has one row. n rows of W parameters, B examples.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call


class ByRows:
    """The module itself does not change; what it holds besides the parameters that train is the same for all rows."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        parts = [(key, p.shape) for key, p in model.named_parameters() if p.requires_grad]
        self._keys = [key for key, _ in parts]
        self._shapes = [shape for _, shape in parts]
        self._sizes = [shape.numel() for shape in self._shapes]
        self._call = torch.vmap(self._one, randomness="different")

    def __call__(self, rows: Tensor, x: Tensor) -> Tensor:
        """Logits [n, B, C] of rows of parameters [n, W] on inputs [n, B, ...], normalised."""
        parts = zip(torch.split(rows, self._sizes, 1), self._shapes, strict=True)
        tensors = [piece.view(len(rows), *shape) for piece, shape in parts]
        if len(rows) == 1:  # as in a learner: half the time of a small model's call
            return self._one([piece[0] for piece in tensors], x[0])[None]
        logits: Tensor = self._call(tensors, x)
        return logits

    def _one(self, tensors: list[Tensor], x: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.model, dict(zip(self._keys, tensors, strict=True)), (x,))
        return logits.flatten(0, -2)


def vector_of(model: nn.Module) -> Tensor:
    """The parameters of a module that train [W], as they are now."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters() if p.requires_grad])
