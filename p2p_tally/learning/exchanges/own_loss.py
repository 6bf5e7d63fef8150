"""How well parameters do on a peer's own data: what a row may judge its neighbours' models by."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from p2p_tally.learning.data import Examples

# Examples that are looked at, evenly spaced over a peer's own.
MOST = 256


def own_loss(
    model: "nn.Module", examples: "Examples", normalise: "Callable[[Tensor], Tensor]", device: "torch.device"
) -> "Callable[[Tensor], float]":
    """A function from parameters [W] to the model's mean cross-entropy with them. The model itself does not change."""
    import torch  # noqa: PLC0415 - rows are read without it
    from torch.func import functional_call  # noqa: PLC0415
    from torch.nn import functional as F  # noqa: PLC0415

    from p2p_tally.learning.norms import training_mode  # noqa: PLC0415

    parts = [(name, p.shape) for name, p in model.named_parameters() if p.requires_grad]
    x, y = examples.take(torch.linspace(0, len(examples) - 1, min(MOST, len(examples))).long())
    assert y is not None
    x, y = normalise(x.to(device)), y.flatten().to(device)

    def loss(vector: "Tensor") -> float:
        pieces = torch.split(vector, [shape.numel() for _, shape in parts])
        tensors = {name: piece.view(shape) for (name, shape), piece in zip(parts, pieces, strict=True)}
        model.eval()
        try:
            with torch.no_grad():
                logits = functional_call(model, tensors, (x,)).flatten(0, -2)
                return float(F.cross_entropy(logits, y))
        finally:
            training_mode(model)

    return loss
