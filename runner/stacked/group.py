"""Peers of one architecture: their parameters as one matrix, cut into blocks on which threads may work.

Knows no round, no graph and no other group. n peers of the group, W parameters.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName
from p2p_tally.learning.architectures import of_rank
from p2p_tally.learning.by_rows import vector_of
from p2p_tally.learning.data import batch_seed
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.norms import live_statistics
from p2p_tally.learning.setup import Task, make_learner, make_second
from p2p_tally.learning.start import check_frozen, frozen_tensors
from p2p_tally.runner.stacked.batched_model import fixed_tensors, layers_of
from p2p_tally.runner.stacked.block import Block, Rows
from p2p_tally.runner.stacked.convolutions import convolves
from p2p_tally.runner.stacked.draws import draws_of
from p2p_tally.runner.stacked.rows_adamw import FEW
from p2p_tally.runner.stacked.scratch import Scratch
from p2p_tally.runner.stacked.starts import starts_of

# Parameters of a block: with gradient and AdamW's state four times as many floats, 8 MB, which a cache should hold for
# each thread. Half of it costs a tenth more time, for the calls; twice as much a sixth more.
BLOCK_PARAMETERS = 1 << 19


class Group:
    """The peers of these ranks, which all hold the same model."""

    def __init__(self, task: Task, names: Sequence[NodeName], ranks: Sequence[int], device: str, threads: int) -> None:
        self.task = task
        self.names = [names[rank] for rank in ranks]
        self.ranks = ranks
        self.device = torch.device(device)
        self.template = make_learner(task, self.names[0], ranks[0], device)
        starts, fixed = starts_of(task, self.names, ranks)
        self.parameters = starts.to(self.device)  # [n, W]
        self.fixed = {key: value.to(self.device) for key, value in fixed.items()}  # [n, ...]
        if task.federation.merge_every:
            frozen = frozen_tensors(self.template.model)
            check_frozen(task.federation, ({key: self.fixed[key][row] for key in frozen} for row in range(len(ranks))))
        method = method_of(task.federation)
        several = method.second is not None or (method.exchange is not None and method.exchange.takes is not None)
        if several and fixed:
            raise ConfigError(
                f"--engine stacked: the method {method.name} judges or trains several models by a peer's own buffers, "
                "which this model has; accepted for it is --engine exact"
            )
        kept = [make_second(task, name, rank) for name, rank in zip(self.names, ranks, strict=True)]
        self._second = kept[0]
        self._seconds = [vector_of(model).to(self.device) for model in kept if model is not None]  # [M] each
        self._rows = self._cut(threads)
        self.blocks = self._blocks()
        self._try_out()

    @property
    def is_perceptron(self) -> bool:
        return layers_of(self.template.model) is not None

    @property
    def draws(self) -> bool:
        """Whether its modules draw random numbers. They share one generator: threads would draw in any order."""
        return any(isinstance(module, nn.modules.dropout._DropoutNd) for module in self.template.model.modules())

    def _cut(self, threads: int) -> list[slice]:
        """Rows of the matrix, a slice for each block."""
        nodes, width = self.parameters.shape
        rows = max(1, BLOCK_PARAMETERS // width) if self.device.type == "cpu" else nodes
        if self.device.type == "cpu" and convolves(self.template.model):
            rows = 1
        if rows > FEW:  # fewer peers would not repay a thread of their own
            share = -(-nodes // threads)
            rows = FEW * min(rows // FEW, -(-share // FEW))
        return [slice(start, min(start + rows, nodes)) for start in range(0, nodes, rows)]

    def _blocks(self) -> list[Block]:
        task, scratch = self.task, Scratch()
        shards = [task.shards[rank] for rank in self.ranks]
        seeds = [batch_seed(task.federation.seed, name) for name in self.names]
        draws = draws_of(seeds, [len(shard) for shard in shards], self._rows, task.augment)
        return [
            Block(
                task,
                Rows(
                    self.ranks[own],
                    self.names[own],
                    shards[own],
                    drawn,
                    {key: value[own] for key, value in self.fixed.items()},
                    torch.stack(self._seconds[own]) if self._seconds else None,
                ),
                self.template.model,
                self.parameters[own],
                scratch,
                self._second,
            )
            for own, drawn in zip(self._rows, draws, strict=True)
        ]

    def _try_out(self) -> None:
        """Refuse a model that cannot be batched, before the first round."""
        x, _ = self.task.probes.examples.take(torch.zeros(2, dtype=torch.int64))
        try:
            self.blocks[0].measured(x)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            model = of_rank(self.task.federation, self.ranks[0]).model
            raise ConfigError(
                f"--engine stacked: the model {model} cannot be batched over peers ({reason}); "
                "accepted for it is --engine exact"
            ) from None

    def state(self) -> dict[str, Tensor]:
        """Everything that the next round depends on, row by row. It does not depend on how the blocks are cut."""
        parts = [block.state() for block in self.blocks]
        rows = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
        return {"parameters": self.parameters.cpu(), **rows}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.parameters.copy_(state["parameters"])
        for own, block in zip(self._rows, self.blocks, strict=True):
            block.restore({key: rows[own] for key, rows in state.items()})

    def refresh_statistics(self) -> None:
        """Have in the BatchNorm layers of every peer what an evaluation would use now; the blocks see them too."""
        names = live_statistics(self.template.model)
        if not names:
            return
        found = dict(self.template.model.named_buffers())
        for row, learner in enumerate(self.learners()):
            learner.refresh_statistics()
            for name in names:
                self.fixed[name][row].copy_(found[name])

    def learners(self) -> Iterator[Learner]:
        """Each peer's model in turn, in one learner."""
        own = fixed_tensors(self.template.model)
        beside = self.template.merge_step.state if method_of(self.task.federation).answering else {}
        held = [(block, place) for block in self.blocks for place in range(len(block))]
        for row, (block, place) in enumerate(held):
            self.template.parameters.vector.copy_(self.parameters[row])
            for key, value in own.items():
                value.copy_(self.fixed[key][row])
            for key, value in beside.items():
                value.copy_(block.merge_step.state[key][place])
            yield self.template
