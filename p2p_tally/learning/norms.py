"""BatchNorm: the statistics of the batch while a model trains, those of the public probes when it is looked at.

Running averages are never kept: they would depend on the order of private batches, and a mean of two peers' averages is
not what the merged model sees. The statistics follow from the parameters and the probes alone, so a run, a checkpoint
and a saved file give the same (docs/decisions/0026-batch-statistics-from-probes.md).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from p2p_tally.learning.data import Examples
from p2p_tally.learning.data.probes import ProbePool

# Predictions that the statistics are taken over: a mean is then known to a twentieth of its spread.
PREDICTIONS = 512


def norms_of(model: nn.Module) -> list[_BatchNorm]:
    """The BatchNorm layers that have statistics for evaluation. One made without them uses the batch's always."""
    return [norm for norm in model.modules() if isinstance(norm, _BatchNorm) and norm.running_mean is not None]


def is_frozen(norm: nn.Module) -> bool:
    """A layer whose parameters do not train keeps its statistics too: they belong to what it was trained on."""
    parameters = list(norm.parameters(recurse=False))
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


def keep_no_averages(model: nn.Module) -> None:
    """From now on a forward pass writes into no BatchNorm layer: in training it uses the batch's statistics alone."""
    for norm in norms_of(model):
        norm.track_running_stats = False


def training_mode(model: nn.Module) -> None:
    """The model as it trains; frozen BatchNorm layers as they are evaluated."""
    model.train()
    for norm in norms_of(model):
        if is_frozen(norm):
            norm.eval()


def live_statistics(model: nn.Module) -> set[str]:
    """The names of the buffers that `ProbeStatistics` writes."""
    return {
        f"{name}.{key}" if name else key
        for name, norm in model.named_modules()
        if isinstance(norm, _BatchNorm) and not is_frozen(norm)
        for key, _ in norm.named_buffers(recurse=False)
    }


class ProbeStatistics:
    """Gives a model's BatchNorm layers the statistics of the probes, as its parameters are now."""

    def __init__(
        self, model: nn.Module, probes: ProbePool, batch: Callable[[Examples], int], prepare: Callable[[Tensor], Tensor]
    ) -> None:
        """`batch`: how many examples go into one forward pass. `prepare`: from stored inputs to those of the model."""
        self._model = model
        self._norms = [norm for norm in norms_of(model) if not is_frozen(norm)]
        # An anchor is of the task's own data, the rest of the pool may be of another.
        self._examples = probes.examples if probes.anchor is None else probes.anchor
        self._batch = batch
        self._prepare = prepare

    @torch.no_grad()
    def refresh(self) -> None:
        """Costs nothing where there is no BatchNorm. Leaves the model in evaluation mode."""
        self._model.eval()  # no dropout
        if not self._norms:
            return
        found: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {norm: [] for norm in self._norms}

        def measure(norm: nn.Module, inputs: tuple[Any, ...]) -> None:
            x: Tensor = inputs[0]
            axes = [axis for axis in range(x.dim()) if axis != 1]
            found[norm].append(torch.var_mean(x, axes))

        hooks = [norm.register_forward_pre_hook(measure) for norm in self._norms]
        try:
            for norm in self._norms:
                norm.train()
            for indices in self._batches():
                self._model(self._prepare(self._examples.take(indices)[0]))
        finally:
            for hook in hooks:
                hook.remove()
            self._model.eval()
        for norm in self._norms:
            if found[norm]:  # else the model does not call it
                variances, means = zip(*found[norm], strict=True)
                assert norm.running_mean is not None and norm.running_var is not None
                norm.running_mean.copy_(torch.stack(means).mean(0))
                norm.running_var.copy_(torch.stack(variances).mean(0))

    def _batches(self) -> tuple[Tensor, ...]:
        """Examples spread over the whole pool, which may be sorted by class, in batches of at least two."""
        pool = len(self._examples)
        count = min(pool, max(2, PREDICTIONS // self._examples.probes_each))
        places = torch.arange(count) * pool // count
        return places.tensor_split(max(1, count // max(2, self._batch(self._examples))))
