"""A model's parameters as one flat vector; the model's own tensors are views of it.

So an export copies nothing, a merge is one copy, and a model's digest is that of its vector. The optimiser runs over
one tensor instead of dozens: AdamW works element by element, so the arithmetic is the same.
"""

import hashlib

import numpy as np
import torch
from torch import Tensor, nn

from p2p_tally.errors import ConfigError, ParameterError
from p2p_tally.ids import Digest, digest
from p2p_tally.learning.exchanges.code import Layout

# From this many parameters on, gradients stay where autograd makes them. Adding them into a flat vector is one more
# pass over all of them, about a twentieth of a large model's step; for a small model it saves calls.
LARGE = 1 << 20


class FlatParameters:
    """Owns the storage of a module's parameters and, unless it is large, of their gradients."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        module.to(device)
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not parameters:
            raise ConfigError("--model: the model has no parameters to train")
        if any(parameter.dtype != torch.float32 for parameter in parameters):
            raise ConfigError("--model: accepted are models whose parameters are all float32")
        self.schema: Digest = digest(
            *(f"{name} {tuple(p.shape)}".encode() for name, p in module.named_parameters() if p.requires_grad)
        )
        self.vector = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])  # [W]
        self.gradient = torch.zeros_like(self.vector) if len(self) < LARGE else None  # [W]
        self._parameters = parameters
        self._parts = [(parameter.numel(), parameter.shape) for parameter in parameters]
        for parameter, part in zip(parameters, self._cut(self.vector), strict=True):
            parameter.data = part
        if self.gradient is not None:
            for parameter, part in zip(parameters, self._cut(self.gradient), strict=True):
                # Autograd adds into a gradient that is already there, so it writes straight into the flat one.
                parameter.grad = part

    def __len__(self) -> int:
        return self.vector.numel()

    @property
    def layout(self) -> Layout:
        """The shapes of the model's tensors, in the order of the vector."""
        return tuple(tuple(shape) for _, shape in self._parts)

    def _cut(self, flat: Tensor) -> list[Tensor]:
        """A vector [W] as views in the shapes of the model's tensors."""
        sizes = [size for size, _ in self._parts]
        return [part.view(shape) for part, (_, shape) in zip(torch.split(flat, sizes), self._parts, strict=True)]

    def pieces(self, flat: Tensor) -> list[Tensor]:
        """A vector [W] in the pieces that the gradient comes in."""
        return [flat] if self.gradient is not None else self._cut(flat)

    def backward(self, loss: Tensor) -> list[Tensor]:
        """The gradient of the loss, in pieces: one flat vector [W], or a tensor for each of a large model's."""
        if self.gradient is not None:
            self.gradient.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
            return [self.gradient]
        for parameter in self._parameters:
            # Freed as late as possible: the new gradients then reuse this memory.
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        return [p.grad if p.grad is not None else torch.zeros_like(p) for p in self._parameters]

    def export(self) -> np.ndarray:
        """The vector [W] as it is now. On the CPU this is a view, not a copy: use it before the next step."""
        return self.vector.cpu().numpy()

    def replace(self, values: Tensor) -> None:
        """All parameters at once from a vector [W] that has been checked."""
        self.vector.copy_(values)

    def sha256(self) -> str:
        return hashlib.sha256(self.export().astype("<f4", copy=False).tobytes()).hexdigest()


def joined(pieces: list[Tensor]) -> Tensor:
    """A gradient that comes in pieces as one row [1, W]; a single piece is not copied."""
    flat = [piece.reshape(-1) for piece in pieces]
    return (flat[0] if len(flat) == 1 else torch.cat(flat))[None]


def checked_vector(values: np.ndarray, length: int) -> np.ndarray:
    """Parameters from a peer, fit for averaging; or a ParameterError."""
    if values.dtype != np.float32 or values.shape != (length,):
        raise ParameterError(f"{values.dtype} {values.shape} instead of float32 ({length},)", reason="shape")
    # One pass without a temporary mask: NaN or infinity anywhere makes the sum of squares so.
    with np.errstate(over="ignore"):  # a finite value may be too large to square: isfinite decides
        squares = np.dot(values, values)
    if not np.isfinite(squares) and not np.isfinite(values).all():
        raise ParameterError("NaN or infinity", reason="not-finite")
    return values
