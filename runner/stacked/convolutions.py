"""A model with convolutions, for a block of one peer: on a CPU peers gain nothing from being batched there.

A convolution of one peer's batch already fills a core, and its tensors fit the core's cache. What counts is the order
of the image's values in memory: with channels last a step takes half to two thirds of the time. Threads take the peers
in turn.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import vector_to_parameters

from p2p_tally.learning.norms import training_mode


def convolves(model: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d) for module in model.modules())


class Convolving:
    """A `BatchedModel` of one peer, whose parameters are one row [1, W]."""

    def __init__(self, model: nn.Module, fixed: dict[str, Tensor], parameters: Tensor) -> None:
        self.model = deepcopy(model)
        self._fixed = fixed  # buffers and parameters that do not train, [1, ...] each; others write into them
        self._own = [p for p in self.model.parameters() if p.requires_grad]
        vector_to_parameters(parameters[0], self._own)  # views of the row: each step of the optimiser is seen
        self._logits: Tensor | None = None  # [B, C]

    def _call(self, x: Tensor) -> Tensor:
        """Logits [B, C] of inputs [B, ...]."""
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        fixed = {key: value[0] for key, value in self._fixed.items()}
        logits: Tensor = functional_call(self.model, fixed, (x,)) if fixed else self.model(x)
        return logits.flatten(0, -2)

    def logits(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            self._logits = self._call(x[0])
        return self._logits.detach().mT[None]

    def measured(self, x: Tensor) -> Tensor:
        self.model.eval()
        with torch.no_grad():
            logits = self._call(x).mT[None]
        training_mode(self.model)
        return logits

    def backward(self, slope: Tensor, gradient: Tensor) -> None:
        assert self._logits is not None
        found = torch.autograd.grad(
            self._logits, self._own, slope[0].mT, allow_unused=True, materialize_grads=True
        )  # a parameter that the logits do not depend on has a gradient of 0
        torch.cat([part.reshape(-1) for part in found], out=gradient[0])
        self._logits = None
