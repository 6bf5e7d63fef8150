"""A block of peers as one batched model: their parameters as rows of one matrix, forward and backward.

Knows no graph, no round and no message. n peers of the block, W parameters, B examples, C classes. Logits are
[n, C, B], classes before examples: reductions over a few classes are vectorised only across the examples.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from p2p_tally.learning.norms import training_mode
from p2p_tally.runner.stacked.shared_layer import shared_layer


class BatchedModel(Protocol):
    def logits(self, x: Tensor) -> Tensor:
        """[n, C, B] for inputs [n, B, ...], kept for `backward`."""
        ...

    def measured(self, x: Tensor) -> Tensor:
        """[n, C, B] for inputs [B, ...] that all peers share, as an evaluation has them. Nothing is kept."""
        ...

    def backward(self, slope: Tensor, gradient: Tensor) -> None:
        """The gradient of all parameters, from that of the logits [n, C, B], into `gradient` [n, W]. Where features
        were asked for of a perceptron, from that of both [n, D + C, B]."""
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

    def __init__(self, layers: Sequence[nn.Linear], parameters: Tensor) -> None:
        self._shapes = layers
        self.layers = self._cut(parameters)
        self._inputs: list[Tensor] = []

    def _cut(self, flat: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Weights [n, out, in] and biases [n, out, 1] as views of rows [n, W]."""
        views: list[tuple[Tensor, Tensor | None]] = []
        start = 0
        for layer in self._shapes:
            out, size = layer.out_features, layer.in_features
            weight = flat[:, start : start + out * size].view(len(flat), out, size)
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
        for place, (weight, bias) in enumerate(self.layers):
            if place:
                h = h.relu_()
            self._inputs.append(h)
            h = torch.bmm(weight, h) if bias is None else torch.baddbmm(bias, weight, h)  # [n, out, B]
        return h

    def with_features(self, logits: Tensor) -> Tensor:
        """Features and logits [n, D + C, B] of the last call; the features are what goes into the last layer."""
        return torch.cat([self._inputs[-1], logits], 1)

    def measured(self, x: Tensor) -> Tensor:
        (weight, bias), *above = self.layers
        peers, out, _ = weight.shape
        flat = None if bias is None else bias.reshape(-1)
        h = shared_layer(x.flatten(1), weight.reshape(peers * out, -1), flat)  # [B, n * out]
        h = h.view(-1, peers, out).permute(1, 2, 0)  # [n, out, B]
        for weight, bias in above:
            h = h.relu_()
            h = torch.bmm(weight, h) if bias is None else torch.baddbmm(bias, weight, h)
        return h

    def backward(self, slope: Tensor, gradient: Tensor) -> None:
        into = self._cut(gradient)
        before = slope.shape[1] - self._shapes[-1].out_features
        features, slope = slope[:, :before], slope[:, before:]  # without features the first is empty
        for place in range(len(self.layers) - 1, -1, -1):
            weight, _ = self.layers[place]
            weight_gradient, bias_gradient = into[place]
            h = self._inputs[place]  # [n, in, B]
            # A product that is then copied: written straight into views of rows it takes half as long again.
            weight_gradient.copy_(torch.bmm(slope, h.mT))
            if bias_gradient is not None:
                torch.sum(slope, 2, keepdim=True, out=bias_gradient)
            if place:
                slope = torch.bmm(weight.mT, slope)  # [n, in, B]
                if before:
                    slope, before = slope + features, 0  # they are the input of the last layer alone
                slope = torch.ops.aten.threshold_backward(slope, h, 0)  # where the ReLU let nothing through: 0


class Vmapped:
    """Any module, by torch.func: one call with a leading axis of peers."""

    def __init__(self, model: nn.Module, fixed: dict[str, Tensor], parameters: Tensor) -> None:
        self.model = deepcopy(model)  # a call swaps the tensors in: blocks on other threads have their own
        self.fixed = fixed  # buffers and parameters that do not train, [n, ...] each
        self.parts = [(key, p.shape) for key, p in model.named_parameters() if p.requires_grad]
        self.parameters = parameters
        self._call = torch.vmap(self._one, randomness="different")
        self._leaf: Tensor | None = None
        self._logits: Tensor | None = None

    def _one(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.model, tensors, (x,))
        return logits.flatten(0, -2)  # [B, C]

    def _tensors(self, flat: Tensor) -> dict[str, Tensor]:
        """By name, [n, ...] each, from rows [n, W] of parameters."""
        pieces = torch.split(flat, [shape.numel() for _, shape in self.parts], 1)
        own = {key: piece.view(len(flat), *shape) for (key, shape), piece in zip(self.parts, pieces, strict=True)}
        return own | self.fixed

    def logits(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            self._leaf = self.parameters.detach().requires_grad_()
            self._logits = self._call(self._tensors(self._leaf), x).mT
        return self._logits.detach()

    def measured(self, x: Tensor) -> Tensor:
        self.model.eval()
        with torch.no_grad():
            logits = self._call(self._tensors(self.parameters), x.expand(len(self.parameters), *x.shape)).mT
        training_mode(self.model)
        return logits

    def backward(self, slope: Tensor, gradient: Tensor) -> None:
        assert self._logits is not None and self._leaf is not None
        gradient.copy_(torch.autograd.grad(self._logits, self._leaf, slope)[0])


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
