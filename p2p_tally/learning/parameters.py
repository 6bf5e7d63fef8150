"""A model's parameters as one flat vector that the model's own tensors are views of.

So export is a look, a merge is one copy, the optimiser runs over one tensor instead of dozens (AdamW works element
by element, so the arithmetic is the same), and the digest of a model is the digest of its vector.
"""

import hashlib

import numpy as np
import torch
from torch import nn

from p2p_tally.errors import ConfigError, ParameterError
from p2p_tally.ids import Digest, digest


class FlatParameters:
    """Owns the storage of a module's parameters and of their gradients."""

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
        self.gradient = torch.zeros_like(self.vector)  # [W]
        offset = 0
        for parameter in parameters:
            end = offset + parameter.numel()
            parameter.data = self.vector[offset:end].view_as(parameter)
            # Autograd adds into a gradient that is already there, so it writes straight into the flat one.
            parameter.grad = self.gradient[offset:end].view_as(parameter)
            offset = end

    def __len__(self) -> int:
        return self.vector.numel()

    def export(self) -> np.ndarray:
        """The vector [W] as it is now. On the CPU this is a view, not a copy: use it before the next step."""
        return self.vector.cpu().numpy()

    def replace(self, values: np.ndarray) -> None:
        """All parameters at once from a vector [W] that has been checked."""
        self.vector.copy_(torch.from_numpy(values))

    def sha256(self) -> str:
        return hashlib.sha256(self.export().astype("<f4", copy=False).tobytes()).hexdigest()


def checked_vector(values: np.ndarray, length: int) -> np.ndarray:
    """Parameters from a peer, fit for averaging; or a ParameterError."""
    if values.dtype != np.float32 or values.shape != (length,):
        raise ParameterError(f"{values.dtype} {values.shape} instead of float32 ({length},)", reason="shape")
    # One pass without a temporary mask: NaN or infinity anywhere makes the sum of squares so.
    with np.errstate(over="ignore"):  # finite, but too large to square: the second look tells
        squares = np.dot(values, values)
    if not np.isfinite(squares) and not np.isfinite(values).all():
        raise ParameterError("NaN or infinity", reason="not-finite")
    return values
