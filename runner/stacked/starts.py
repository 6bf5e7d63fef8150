"""The parameters that the peers of one architecture begin with, and what else their models hold.

The model's own code says what these are. Where it is known what that code draws, all peers' numbers are drawn at once:
building a module for each of thousands of peers takes longer than their first rounds. n peers, W parameters.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from p2p_tally.ids import NodeName
from p2p_tally.learning.architectures import items_of
from p2p_tally.learning.by_rows import vector_of
from p2p_tally.learning.schedule import begin_alike
from p2p_tally.learning.setup import Task, initial_seed, make_model
from p2p_tally.runner.stacked.batched_model import fixed_tensors, layers_of
from p2p_tally.runner.stacked.twisters import Twisters

# Below this many peers nothing is gained.
MANY = 16
# Peers whose numbers are drawn at once: the memory is bounded, however many there are.
AT_ONCE = 1024

Starts = tuple[Tensor, dict[str, Tensor]]


def starts_of(task: Task, names: Sequence[NodeName], ranks: Sequence[int]) -> Starts:
    """Parameters [n, W], and buffers and parameters that do not train [n, ...], on the CPU."""
    if len(names) >= MANY:
        together = _alike(task, names, ranks) if begin_alike(task.federation) else _perceptrons(task, names, ranks)
        if together is not None:
            return together
    return _one_by_one(task, names, ranks)


def _one_by_one(task: Task, names: Sequence[NodeName], ranks: Sequence[int]) -> Starts:
    parameters, fixed = None, []
    # One model at a time: there may be thousands.
    for row, (name, rank) in enumerate(zip(names, ranks, strict=True)):
        model = make_model(task, name, rank)
        vector = vector_of(model)
        if parameters is None:
            parameters = torch.empty(len(names), len(vector))
        parameters[row] = vector
        fixed.append(fixed_tensors(model))
    assert parameters is not None
    return parameters, {key: torch.stack([own[key] for own in fixed]) for key in fixed[0]}


def _alike(task: Task, names: Sequence[NodeName], ranks: Sequence[int]) -> Starts | None:
    """Of peers that begin alike: one model for all. A user's function may give another at each call, and is called."""
    if not _is_ours(task):
        return None
    model = make_model(task, names[0], ranks[0])
    fixed = {key: _repeated(value, len(names)) for key, value in fixed_tensors(model).items()}
    return _repeated(vector_of(model), len(names)), fixed


def _repeated(value: Tensor, times: int) -> Tensor:
    return value.unsqueeze(0).repeat(times, *[1] * value.dim())


def _perceptrons(task: Task, names: Sequence[NodeName], ranks: Sequence[int]) -> Starts | None:
    """Of perceptrons of this project: what `nn.Linear` draws for its weights and then its biases, layer by layer.

    The models of the first and the last peer are made as well. Where a torch draws otherwise, None: then all are made.
    """
    model = make_model(task, names[0], ranks[0])
    layers = layers_of(model)
    if not _is_ours(task) or layers is None or task.federation.init is not None:
        return None
    bounds = np.concatenate([_bounds(layer) for layer in layers])  # [W]
    parameters = torch.empty(len(names), len(bounds))
    for start in range(0, len(names), AT_ONCE):
        own = names[start : start + AT_ONCE]
        drawn = Twisters.seeded([initial_seed(task.federation, name) for name in own]).uniform(bounds)
        parameters[start : start + len(own)] = torch.from_numpy(drawn)
    last = make_model(task, names[-1], ranks[-1])
    as_built = torch.equal(parameters[0], vector_of(model)) and torch.equal(parameters[-1], vector_of(last))
    return (parameters, {}) if as_built else None


def _is_ours(task: Task) -> bool:
    """Whether every model is one of this project, which draws from torch's generator alone."""
    return all(isinstance(item, str) and not _names_a_function(item) for item in items_of(task.federation))


def _names_a_function(item: str) -> bool:
    _, colon, after = item.partition(":")
    return bool(colon) and not after[:1].isdigit()


def _bounds(layer: nn.Linear) -> np.ndarray:
    """Between minus and plus what a layer's parameters are drawn, as torch computes it: Kaiming's for a slope of the
    square root of 5."""
    spread = math.sqrt(3.0) * (math.sqrt(2.0 / (1 + math.sqrt(5) ** 2)) / math.sqrt(layer.in_features))
    weights = np.full(layer.weight.numel(), spread)
    return weights if layer.bias is None else np.append(weights, [1 / math.sqrt(layer.in_features)] * len(layer.bias))
