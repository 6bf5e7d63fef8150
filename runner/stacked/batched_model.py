"""A block of peers as one batched model: their parameters as rows of one matrix, forward, backward, AdamW.

Knows no graph, no round and no message. n peers of the block, W parameters, B examples, C classes. Logits are
[n, C, B], classes before examples: reductions over a few classes are vectorised only across the examples.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from p2p_tally.learning.optimiser import FlatAdamW


class BatchedModel(Protocol):
    def logits(self, x: Tensor) -> Tensor:
        """[n, C, B] for inputs [n, B, ...], kept for `backward`."""
        ...

    def backward(self, slope: Tensor) -> None:
        """The gradient of all parameters, from that of the logits [n, C, B], into the block's gradient [n, W]."""
        ...


def layers_of(model: nn.Module) -> list[nn.Linear] | None:
    """The linear layers of a plain perceptron (Flatten, then Linear with ReLU between); None for any other model."""
    if type(model) is not nn.Sequential or len(model) < 2 or type(model[0]) is not nn.Flatten:
        return None
    layers, between = list(model)[1::2], list(model)[2::2]
    plain = all(type(layer) is nn.Linear for layer in layers) and all(type(layer) is nn.ReLU for layer in between)
    trainable = len({id(p) for p in model.parameters() if p.requires_grad}) == sum(
        1 + (layer.bias is not None) for layer in layers if isinstance(layer, nn.Linear)
    )
    if (
        not plain
        or not trainable
        or len(layers) != len(between) + 1
        or (model[0].start_dim, model[0].end_dim) != (1, -1)
    ):
        return None
    return [layer for layer in layers if isinstance(layer, nn.Linear)]


class Perceptron:
    """Batched matrix products, with the backward pass written out: autograd would take a large part of a small step."""

    def __init__(self, layers: Sequence[nn.Linear], parameters: Tensor, gradient: Tensor) -> None:
        self.n = len(parameters)
        self.layers = list(zip(self._cut(layers, parameters), self._cut(layers, gradient), strict=True))
        self._inputs: list[Tensor] = []

    def _cut(self, layers: Sequence[nn.Linear], flat: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Weights [n, out, in] and biases [n, out, 1] as views of rows [n, W]."""
        views: list[tuple[Tensor, Tensor | None]] = []
        start = 0
        for layer in layers:
            out, size = layer.out_features, layer.in_features
            weight = flat[:, start : start + out * size].view(self.n, out, size)
            start += out * size
            bias = None
            if layer.bias is not None:
                bias = flat[:, start : start + out].unsqueeze(2)
                start += out
            views.append((weight, bias))
        return views

    def logits(self, x: Tensor) -> Tensor:
        h = x.flatten(2).mT  # [n, in, B]
        self._inputs = []
        for place, ((weight, bias), _) in enumerate(self.layers):
            if place:
                h = h.relu_()
            self._inputs.append(h)
            h = torch.bmm(weight, h) if bias is None else torch.baddbmm(bias, weight, h)  # [n, out, B]
        return h

    def backward(self, slope: Tensor) -> None:
        for place in range(len(self.layers) - 1, -1, -1):
            (weight, _), (weight_gradient, bias_gradient) = self.layers[place]
            h = self._inputs[place]  # [n, in, B]
            torch.bmm(slope, h.mT, out=weight_gradient)
            if bias_gradient is not None:
                torch.sum(slope, 2, keepdim=True, out=bias_gradient)
            if place:
                slope = torch.bmm(weight.mT, slope)  # [n, in, B]
                slope = torch.ops.aten.threshold_backward(slope, h, 0)  # where the ReLU let nothing through: 0


class Vmapped:
    """Any module, by torch.func: one call with a leading axis of peers."""

    def __init__(self, model: nn.Module, fixed: dict[str, Tensor], parameters: Tensor, gradient: Tensor) -> None:
        self.model = deepcopy(model)  # a call swaps the tensors in: blocks on other threads have their own
        self.fixed = fixed  # buffers and parameters that do not train, [n, ...] each
        self.parts = [(key, p.shape) for key, p in model.named_parameters() if p.requires_grad]
        self.parameters = parameters
        self.gradient = gradient
        self._call = torch.vmap(self._one, randomness="different")
        self._leaf: Tensor | None = None
        self._logits: Tensor | None = None

    def _one(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.model, tensors, (x,))
        return logits.flatten(0, -2)  # [B, C]

    def logits(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            self._leaf = self.parameters.detach().requires_grad_()
            pieces = torch.split(self._leaf, [shape.numel() for _, shape in self.parts], 1)
            tensors = {key: piece.view(len(x), *shape) for (key, shape), piece in zip(self.parts, pieces, strict=True)}
            self._logits = self._call({**tensors, **self.fixed}, x).mT
        return self._logits.detach()

    def backward(self, slope: Tensor) -> None:
        assert self._logits is not None and self._leaf is not None
        self.gradient.copy_(torch.autograd.grad(self._logits, self._leaf, slope)[0])


class RowsAdamW:
    """One AdamW for all rows of a block. From the first step that only some rows take, one for each row."""

    def __init__(self, parameters: Tensor, gradient: Tensor, lr: float, weight_decay: float) -> None:
        self._all = FlatAdamW(parameters.view(-1), gradient.view(-1), lr, weight_decay)
        self._parameters, self._gradient = parameters, gradient
        self._rows: list[FlatAdamW] = []

    def step(self, taking: Sequence[int] | None = None) -> None:
        """A step of every row, or of those that are `taking` one."""
        if taking is None and not self._rows:
            self._all.step()
            return
        self._part()
        for row in range(len(self._rows)) if taking is None else taking:
            self._rows[row].step()

    def row(self, row: int) -> list[Tensor]:
        """The state of one row. It then counts its steps alone."""
        self._part()
        return list(self._rows[row].state.values())

    def _part(self) -> None:
        if not self._rows:
            self._rows = [self._alone(row) for row in range(len(self._parameters))]

    def state(self) -> dict[str, Tensor]:
        """The three tensors of AdamW by rows, and whether each row steps alone: [n, ...] each."""
        whole, n = self._all.state, len(self._parameters)
        steps = [row.state["step"] for row in self._rows] or [whole["step"]] * n
        return {
            "step": torch.stack(steps),  # [n]
            "alone": torch.full((n,), bool(self._rows)),
            "mean": whole["mean"].view_as(self._parameters),  # [n, W]; rows that step alone have views of it
            "square": whole["square"].view_as(self._parameters),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        whole = self._all.state
        for key in ("mean", "square"):
            whole[key].view_as(self._parameters).copy_(state[key])
        whole["step"].copy_(state["step"][0])
        self._rows = []
        if state["alone"].any():
            self._rows = [self._alone(row) for row in range(len(self._parameters))]
            for row, step in zip(self._rows, state["step"], strict=True):
                row.state["step"].copy_(step)

    def _alone(self, row: int) -> FlatAdamW:
        whole = self._all
        state = {"step": whole.state["step"].clone()} | {
            key: whole.state[key].view_as(self._parameters)[row] for key in ("mean", "square")
        }
        return FlatAdamW(self._parameters[row], self._gradient[row], whole.lr, whole.weight_decay, state)


def slope_to_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """The gradient of each peer's mean cross-entropy to labels [n, B] with respect to its logits [n, C, B]."""
    slope = logits.softmax(1)
    minus = torch.full((), -1.0, device=logits.device).expand(labels.shape).unsqueeze(1)
    return slope.scatter_add_(1, labels.unsqueeze(1), minus).div_(labels.shape[1])


def slope_to_target(logits: Tensor, target: Tensor) -> Tensor:
    """The same for targets [n, P, C], or [1, P, C] for all peers, whose rows need not add up to 1."""
    target = target.mT  # [n, C, P]
    return logits.softmax(1).mul_(target.sum(1, keepdim=True)).sub_(target).div_(logits.shape[2])


def fixed_tensors(model: nn.Module) -> dict[str, Any]:
    """What a peer's model holds besides the parameters that train."""
    frozen = {key: p.detach() for key, p in model.named_parameters() if not p.requires_grad}
    return frozen | dict(model.named_buffers())
