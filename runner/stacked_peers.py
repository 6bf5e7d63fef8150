"""All peers of a stacked federation: their parameters as one matrix, cut into blocks that threads share out.

Knows no round and no graph. A block's parameters fit a core's cache; who works on which block changes no float.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.learning.learner import EVALUATION_BATCH, Evaluation, Learner
from p2p_tally.learning.setup import Task, make_learner, make_model
from runner.stacked_block import Block, Rows, right_and_loss
from runner.stacked_model import fixed_tensors, layers_of

# Parameters of a block: with gradient and AdamW's state four times as many floats, which a core's cache should hold.
BLOCK_PARAMETERS = 1 << 18
# Fewer peers than this are not worth a block, and a thread, of their own.
LEAST_PEERS = 16

Result = TypeVar("Result")


class Peers:
    """The peers' models. Used in a `with`, its work goes to threads."""

    def __init__(self, task: Task, device: str, threads: int) -> None:
        self.task = task
        self.device = torch.device(device)
        self.names = ranked_names(task.federation.nodes)
        self.template = make_learner(task, self.names[0], 0, device)
        self.parameters, self.fixed = self._starts()
        self.blocks = self._cut(self.template.model, threads)
        self._try_out()
        self._threads = 1 if _draws(self.template.model) else min(threads, len(self.blocks))
        self._pool: ThreadPoolExecutor | None = None
        self._test = [self._test_batch(start) for start in range(0, len(task.test), self._batch)]

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(self._threads) if self._threads > 1 else None
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._pool:
            self._pool.shutdown()
        self._pool = None

    def _starts(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The parameters that the peers begin with [N, W], and what else their models hold [N, ...]."""
        parameters = torch.empty(len(self.names), len(self.template.parameters), device=self.device)
        fixed = []
        for row, name in zip(parameters, self.names, strict=True):  # one model at a time: there may be thousands
            model = make_model(self.task, name)
            row.copy_(_vector(model))
            fixed.append(fixed_tensors(model))
        return parameters, {key: torch.stack([own[key] for own in fixed]).to(self.device) for key in fixed[0]}

    def _try_out(self) -> None:
        """A model that cannot be batched says so now, in one line."""
        x, _ = self.task.probes.examples.take(torch.zeros(2, dtype=torch.int64))
        try:
            self.blocks[0].measured(x)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(
                f"--engine stacked: the model {self.task.federation.model} cannot be batched over peers ({reason}); "
                "accepted for it is --engine exact"
            ) from None

    def _cut(self, model: nn.Module, threads: int) -> list[Block]:
        nodes, width = self.parameters.shape
        rows = max(1, BLOCK_PARAMETERS // width) if self.device.type == "cpu" else nodes
        rows = max(min(LEAST_PEERS, rows), min(rows, -(-nodes // threads)))
        blocks = []
        for start in range(0, nodes, rows):
            own = slice(start, min(start + rows, nodes))
            fixed = {key: value[own] for key, value in self.fixed.items()}
            held = Rows(start, self.names[own], self.task.shards[own], fixed)
            blocks.append(Block(self.task, held, model, self.parameters[own]))
        return blocks

    def each(self, work: Callable[[Block], Result]) -> list[Result]:
        """The work of every block, in their order."""
        if self._pool is None:
            return [work(block) for block in self.blocks]
        return list(self._pool.map(work, self.blocks))

    def state(self) -> dict[str, Tensor]:
        """Everything that the next round depends on, row by row: how the blocks are cut does not matter to it."""
        parts = [block.state() for block in self.blocks]
        rows = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
        return {"parameters": self.parameters.cpu(), **rows}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.parameters.copy_(state["parameters"])
        for block in self.blocks:
            block.restore({key: rows[block.rows] for key, rows in state.items()})

    @property
    def _batch(self) -> int:
        return max(1, EVALUATION_BATCH // self.task.test.probes_each)

    def _test_batch(self, start: int) -> tuple[Tensor, Tensor]:
        x, y = self.task.test.take(torch.arange(start, min(start + self._batch, len(self.task.test))))
        assert y is not None
        return x, y.flatten().to(self.device)

    def evaluate(self) -> list[Evaluation]:
        if layers_of(self.template.model) is None:
            # A batch of the test set fills the machine by itself: one peer after the other.
            return [learner.evaluate() for learner in self.learners()]
        parts = self.each(self._evaluate_block)
        count = sum(len(y) for _, y in self._test)
        return [Evaluation(right / count, loss / count) for part in parts for right, loss in part]

    def _evaluate_block(self, block: Block) -> list[tuple[int, float]]:
        right, loss = np.zeros(len(block), np.int64), np.zeros(len(block))
        for x, y in self._test:
            more_right, more_loss = right_and_loss(block.measured(x), y)
            right += more_right
            loss += more_loss
        return list(zip(right.tolist(), loss.tolist(), strict=True))

    def learners(self) -> Iterator[Learner]:
        """Each peer's model in turn, in one learner."""
        own = fixed_tensors(self.template.model)
        for rank, vector in enumerate(self.parameters):
            self.template.parameters.vector.copy_(vector)
            for key, value in own.items():
                value.copy_(self.fixed[key][rank])
            yield self.template


def _vector(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters() if p.requires_grad])


def _draws(model: nn.Module) -> bool:
    """Whether its modules draw random numbers: from one generator, whose order threads would leave to chance."""
    return any(isinstance(module, nn.modules.dropout._DropoutNd) for module in model.modules())
