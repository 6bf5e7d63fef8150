"""A few dozen peers that do their steps together: what `Learner` does for one, on rows of a matrix.

Every peer draws from its own generator in the order in which its learner would, so it sees the same batches. Modules
that draw random numbers themselves, such as dropout, draw other numbers here than in a learner.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from p2p_tally.learning.answering import answering
from p2p_tally.learning.by_rows import ByRows
from p2p_tally.learning.data import Arrays, Examples
from p2p_tally.learning.exchanges.local_steps import LocalBatch, every_step
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.setup import Task
from p2p_tally.learning.voting.skew import balance_shift, calibration, class_counts
from p2p_tally.runner.stacked.batched_model import (
    BatchedModel,
    Perceptron,
    Vmapped,
    layers_of,
    slope_to_labels,
)
from p2p_tally.runner.stacked.convolutions import Convolving, convolves
from p2p_tally.runner.stacked.draws import Draws
from p2p_tally.runner.stacked.rows_adamw import RowsAdamW
from p2p_tally.runner.stacked.scratch import Scratch

Batches = Callable[[Tensor], tuple[Tensor, Tensor]]

# The gradient of a loss with respect to the outputs [n, O, P] of the peers in these places among all.
Slope = Callable[[Tensor, slice | list[int]], Tensor]


@dataclass(frozen=True)
class Rows:
    """Which peers a block holds, and what is theirs alone."""

    ranks: Sequence[int]  # ascending
    names: Sequence[str]
    shards: Sequence[Examples]
    draws: Draws
    fixed: dict[str, Tensor]  # [n, ...] each: buffers, and parameters that do not train
    second: Tensor | None = None  # [n, M], with which the models begin that the method's row keeps besides

    @property
    def among_all(self) -> slice | list[int]:
        """Their places in what is there for all peers [N, ...]; evenly spaced ones as a slice, which copies nothing."""
        first, last = self.ranks[0], self.ranks[-1]
        even = range(first, last + 1, self.ranks[1] - first if len(self.ranks) > 1 else 1)
        return slice(first, last + 1, even.step) if list(even) == list(self.ranks) else list(self.ranks)


class Block:
    """Some peers of a federation. `parameters` [n, W] are rows of the matrix of their group."""

    def __init__(
        self,
        task: Task,
        rows: Rows,
        model: nn.Module,
        parameters: Tensor,
        scratch: Scratch,
        second: nn.Module | None = None,
    ) -> None:
        settings = self.federation = task.federation
        method = self._method = method_of(settings)
        self.task = task
        self._names = rows.names
        self.ranks = rows.ranks
        self.rows = rows.among_all
        self.parameters = parameters
        self._scratch = scratch
        self.model = batched(model, rows.fixed, parameters)
        self.optimiser = self._adamw()
        self.student = self._adamw() if method.distils_merged else self.optimiser
        self.anchor = parameters.clone() if method.proximal else None  # [n, W]
        self.merge_step = method.step_of_merges(parameters, settings, rows.second)
        # A call swaps the tensors in: blocks on other threads have their own.
        own = (model, *([] if second is None else [second])) if method.local_gradient else ()
        self._models = tuple(ByRows(deepcopy(one)) for one in own)
        self._draws = rows.draws
        self._take = batches_of(rows.shards)
        self._drawn = torch.zeros(len(parameters), settings.local_steps, settings.batch, dtype=torch.int64)
        # Skew: what is added to the logits of local steps [n, C, 1], and what is taken out of answers.
        self._shift: Tensor | None = None
        if settings.balance:
            shifts = [balance_shift(class_counts(shard, task.classes), settings.balance) for shard in rows.shards]
            self._shift = torch.stack(shifts).unsqueeze(2).to(parameters.device)
        self._calibration = calibration(task.classes, settings.calibrate, (len(parameters),), parameters.device)
        self._seen: Tensor | None = None  # logits between look and distill

    def __len__(self) -> int:
        return len(self.parameters)

    @property
    def is_perceptron(self) -> bool:
        return isinstance(self.model, Perceptron)

    def _adamw(self) -> RowsAdamW:
        return RowsAdamW(self.parameters, self.federation.lr, self.federation.weight_decay)

    # --- the steps of a round

    def train(self, round: int, present: Sequence[int] | None = None) -> None:
        """K local steps of every peer on its own data, or of those that are `present`: those that the method's row
        takes in a round."""
        self._draws.seed(present)
        self._draws.batches(present, self._drawn)
        for step in range(self.federation.local_steps):
            taking = self._taking(round, step, present)
            if taking is not None and not len(taking):
                continue
            x, y = self._take(self._drawn[:, step])  # [n, B, ...], [n, B] or [n, B, T]
            x = self._draws.varied(x, taking)
            self._step(self._local_gradient(self._input(x), y, taking), self.optimiser, self.anchor, taking)

    def _taking(self, round: int, step: int, present: Sequence[int] | None) -> Sequence[int] | None:
        """The rows that take a step; None: all."""
        takes = self._method.takes_step
        if takes is every_step:
            return present
        rows = range(len(self)) if present is None else present
        return [row for row in rows if takes(self.federation, self._names[row], round, step)]

    def _local_gradient(self, x: Tensor, y: Tensor, taking: Sequence[int] | None) -> Tensor:
        """[n, W], for inputs [n, B, ...]."""
        labels = y.flatten(1).to(self.parameters.device)

        def here() -> Tensor:
            logits = self.model.logits(x)  # [n, C, B]
            if self._shift is not None:
                logits = logits + self._shift
            return self._gradient(slope_to_labels(logits, labels))

        rule = self._method.local_gradient
        if rule is None:
            return here()
        with self._kept(self.merge_step.state.values(), taking):
            return rule(
                LocalBatch(here, x, labels, self._models), self.parameters, self.merge_step.state, self.federation
            )

    @contextmanager
    def _kept(self, tensors: Iterable[Tensor], taking: Sequence[int] | None) -> Iterator[None]:
        """Tensors [n, ...] whose rows stay as they are, but for those that are `taking` a step."""
        absent = [] if taking is None else np.setdiff1d(np.arange(len(self)), taking).tolist()
        kept = [(tensor, tensor[absent].clone()) for tensor in tensors if absent]
        yield
        for tensor, rows in kept:
            tensor[absent] = rows

    def _gradient(self, slope: Tensor) -> Tensor:
        """[n, W], from that of the logits [n, C, B]; valid until the next."""
        gradient = self._scratch.like(self.parameters)
        self.model.backward(slope, gradient)
        return gradient

    def look(self, x: Tensor, looking: Sequence[int] | None = None) -> Tensor:
        """The logits [n, C, P] on the probes x of a round, kept for `distill`; only those `looking` draw for it. What
        is returned is calibrated, where the federation does so: it is for the peers' answers."""
        seen = self.look_again(x, looking)
        return seen if self._calibration is None else self._calibration.calibrated(seen.mT).mT

    def look_again(self, x: Tensor, looking: Sequence[int] | None = None) -> Tensor:
        """The same for `distill` alone, where a model has changed since it answered."""
        self._draws.seed(looking)
        self._seen = self.model.logits(self._shared(x))
        return self._seen

    def look_at_own(
        self, count: int, looking: Sequence[int] | None = None, *, features: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The outputs [n, O, P] on so many examples of each peer's own, which those `looking` draw, kept for `distill`;
        with their labels [n, P]. Outputs are logits, or with `features` these and then logits."""
        self._draws.seed(looking)
        drawn = torch.zeros(len(self), 1, count, dtype=torch.int64)
        self._draws.batches(looking, drawn)
        x, y = self._take(drawn[:, 0])
        logits = self.model.logits(self._input(x))
        if features:
            assert isinstance(self.model, Perceptron), "stacked_subject has refused others"
            logits = self.model.with_features(logits)
        self._seen = logits
        return self._seen, y.flatten(1).to(self._seen.device)

    def distill(self, slope: Slope, taking: Sequence[int] | None = None) -> None:
        """One step on what was looked at, of those that are `taking` it."""
        assert self._seen is not None, "distill follows look"
        self._step(self._gradient(slope(self._seen, self.rows)), self.student, None, taking)
        self._seen = None

    def _step(
        self, gradient: Tensor, optimiser: RowsAdamW, anchor: Tensor | None, taking: Sequence[int] | None = None
    ) -> None:
        if anchor is not None:  # the gradient of mu / 2 |w - anchor|^2
            gradient.add_(self.parameters - anchor, alpha=self.federation.mu)
        if self.federation.clip:
            norms = gradient.nan_to_num_(nan=0.0).norm(dim=1, keepdim=True)  # [n, 1]
            gradient.mul_((self.federation.clip / (norms + 1e-6)).clamp(max=1.0))
        optimiser.step(gradient, taking)

    def contribution(self) -> Tensor:
        """What the peers give to a merge [n, V W]."""
        return self._method.contributed(self.merge_step, self.parameters)

    def merge(self, average: Tensor, taking: Sequence[int] | None = None, since: Tensor | None = None) -> Tensor:
        """Take means [n, W], or [1, W], by the method's rule; every row, or those that are `taking` them. Returns what
        the rule made of them. `since` [n, W]: what the rows had when the merge began, if they have trained on."""
        with self._kept(self._merged(), taking):
            merged = self.merge_step.step(average)
            if since is None:
                self.parameters.copy_(merged)
            else:
                self.parameters.add_(merged - since)
            if self.anchor is not None:
                self.anchor.copy_(merged)
        return merged

    def _merged(self) -> list[Tensor]:
        """What a merge changes, [n, W] each."""
        return [self.parameters, *([] if self.anchor is None else [self.anchor]), *self.merge_step.state.values()]

    # --- what a newcomer gets from a member

    def hand_over(self, row: int) -> list[Tensor]:
        """What the learner of a row would hand over."""
        shared = [tensor[row] for tensor in self._merged()]
        return shared if self.student is self.optimiser else [*shared, *self.student.row(row)]

    def take_over(self, row: int, state: list[Tensor]) -> None:
        for own, given in zip(self.hand_over(row), state, strict=True):
            own.copy_(given)

    # --- state

    def state(self) -> dict[str, Tensor]:
        """What each row's next round depends on besides its parameters, [n, ...] each, on the CPU."""
        state = {"generator": self._draws.state()}
        optimisers = {"optimiser": self.optimiser}
        if self.student is not self.optimiser:
            optimisers["student"] = self.student
        for label, optimiser in optimisers.items():
            state |= {f"{label}.{key}": value for key, value in optimiser.state().items()}
        if self.anchor is not None:
            state["anchor"] = self.anchor
        state |= {f"outer.{key}": value for key, value in self.merge_step.state.items()}
        if self._calibration is not None:
            state["calibration"] = self._calibration.mean
        return {key: value.cpu() for key, value in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state`, bit for bit."""
        self._draws.restore(state["generator"])
        self.optimiser.restore({key: state[f"optimiser.{key}"] for key in self.optimiser.state()})
        if self.student is not self.optimiser:
            self.student.restore({key: state[f"student.{key}"] for key in self.student.state()})
        if self.anchor is not None:
            self.anchor.copy_(state["anchor"])
        for key, tensor in self.merge_step.state.items():
            tensor.copy_(state[f"outer.{key}"])
        if self._calibration is not None:
            self._calibration.mean.copy_(state["calibration"])

    # --- looking

    def measured(self, x: Tensor) -> Tensor:
        """Logits [n, C, P] on inputs that all share, for measurements: nothing is kept or drawn."""
        with answering(self._method.answering, self.parameters, self.merge_step.state, self.federation):
            return self.model.measured(self._input(x))

    def _shared(self, x: Tensor) -> Tensor:
        return self._input(x).expand(len(self), *x.shape)

    def _input(self, x: Tensor) -> Tensor:
        """Normalised inputs on the device, in the shape they came in. A normalisation may depend on the order of axes,
        so it is given one batch axis, as in a learner."""
        x = x.to(self.parameters.device)
        if self.task.normalise is None:
            return x
        lead = x.dim() - len(self.task.input_shape)
        normal = self.task.normalise(x.flatten(0, lead - 1))
        return normal.view(*x.shape[:lead], *normal.shape[1:])


def some(chosen: np.ndarray) -> Sequence[int] | None:
    """The chosen rows; None for all of them."""
    return None if chosen.all() else np.flatnonzero(chosen).tolist()


def batched(model: nn.Module, fixed: dict[str, Tensor], parameters: Tensor) -> BatchedModel:
    """The peers' models as one, in the way that is fastest for this one."""
    layers = layers_of(model)
    if layers is not None:
        return Perceptron(layers, parameters)
    alone = len(parameters) == 1 and parameters.device.type == "cpu" and convolves(model)
    return Convolving(model, fixed, parameters) if alone else Vmapped(model, fixed, parameters)


def batches_of(shards: Sequence[Examples]) -> Batches:
    """A function from indices [n, B] into each shard to inputs [n, B, ...] and labels."""
    first = shards[0]
    if isinstance(first, Arrays) and all(isinstance(shard, Arrays) and shard.x is first.x for shard in shards):
        return _one_gather(first, shards)

    def one_by_one(indices: Tensor) -> tuple[Tensor, Tensor]:
        taken = [shard.take(own) for shard, own in zip(shards, indices, strict=True)]
        return torch.stack([x for x, _ in taken]), torch.stack([y for _, y in taken if y is not None])

    return one_by_one


def _one_gather(storage: Arrays, shards: Sequence[Examples]) -> Batches:
    """Shards of the same arrays: a table of their indices, and one look-up for all."""
    indices = [
        torch.arange(len(shard)) if shard.index is None else shard.index
        for shard in shards
        if isinstance(shard, Arrays)
    ]
    table = nn.utils.rnn.pad_sequence(indices, batch_first=True)  # [n, longest]
    assert storage.y is not None
    x, y = storage.x, storage.y

    def gather(drawn: Tensor) -> tuple[Tensor, Tensor]:
        places = table.gather(1, drawn)  # [n, B]
        flat = places.flatten()
        return x.index_select(0, flat).view(*places.shape, *x.shape[1:]), y.index_select(0, flat).view(places.shape)

    return gather
