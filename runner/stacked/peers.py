"""All peers of a stacked federation: a group for each architecture, cut into blocks on which threads work.

Knows no round and no graph. A block's parameters fit a core's cache. Which thread works on it changes no float.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from types import TracebackType
from typing import Self, TypeVar

import torch
from torch import Tensor

from p2p_tally.ids import ranked_names
from p2p_tally.learning.architectures import holders
from p2p_tally.learning.exchanges.code import Layout
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.own import Own
from p2p_tally.learning.setup import Task
from p2p_tally.runner.stacked.block import Block
from p2p_tally.runner.stacked.group import Group

Result = TypeVar("Result")


class Peers:
    """The models of all peers. Inside a `with` statement the work is done by threads."""

    def __init__(self, task: Task, device: str, threads: int) -> None:
        self.task = task
        self.device = torch.device(device)
        self.names = ranked_names(task.federation.nodes)
        self.groups = [Group(task, self.names, ranks, device, threads) for ranks in holders(task.federation).values()]
        self.blocks = [block for group in self.groups for block in group.blocks]
        self._threads = 1 if any(group.draws for group in self.groups) else min(threads, len(self.blocks))
        self._pool: ThreadPoolExecutor | None = None
        # The row of each rank among the rows of all blocks; None where the rows are in order of rank.
        ranks = [rank for block in self.blocks for rank in block.ranks]
        self._places = None if len(self.groups) == 1 else torch.tensor(ranks).argsort()  # [N]

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(self._threads) if self._threads > 1 else None
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._pool:
            self._pool.shutdown()
        self._pool = None

    @property
    def parameters(self) -> Tensor:
        """Those of all peers [N, W]. Only where all have one architecture, as peers that merge do."""
        (group,) = self.groups
        return group.parameters

    @property
    def layout(self) -> Layout:
        """That of the models. Only where all have one architecture."""
        return self.groups[0].template.parameters.layout

    def contributions(self) -> Tensor:
        """What all peers give to a merge [N, V W]."""
        if method_of(self.task.federation).exchange is None:
            return self.parameters
        return torch.cat([block.contribution() for block in self.blocks])

    def own(self, rank: int) -> Own:
        """The data of the peer of a rank, for its row's functions. Only where all have one architecture."""
        (group,) = self.groups
        block, row = self._rows[rank]
        state = {key: tensor[row] for key, tensor in block.merge_step.state.items()}
        template, task = group.template, self.task
        return Own(
            self.names[rank],
            task.federation,
            template.model,
            task.shards[rank],
            template.normalise,
            task.classes,
            state,
        )

    def each(self, work: Callable[[Block], Result], blocks: Sequence[Block] | None = None) -> list[Result]:
        """The work of every block, or of some, in their order."""
        blocks = self.blocks if blocks is None else blocks
        if self._pool is None:
            return [work(block) for block in blocks]
        return list(self._pool.map(work, blocks))

    def measured(self, x: Tensor, read: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """What `read` makes of every block's logits [n, C, P] on inputs that all share, as an evaluation has them."""
        for group in self.groups:
            group.refresh_statistics()
        return self.each(lambda block: read(block.measured(x)))

    def by_rank(self, parts: Sequence[Tensor]) -> Tensor:
        """What every block gave [n, ...] as one tensor [N, ...], in order of rank."""
        rows = torch.cat(list(parts))
        return rows if self._places is None else rows[self._places]

    def hand_over(self, donor: int, newcomer: int) -> None:
        """The peer of one rank gives the peer of another what a node would hand over."""
        (giver, given), (taker, taken) = self._rows[donor], self._rows[newcomer]
        taker.take_over(taken, giver.hand_over(given))

    @cached_property
    def _rows(self) -> dict[int, tuple[Block, int]]:
        """The block and the row of each rank."""
        return {rank: (block, row) for block in self.blocks for row, rank in enumerate(block.ranks)}

    def state(self) -> dict[str, Tensor]:
        """Everything that the next round depends on, by groups; the first has the plain keys."""
        return {
            _prefix(number) + key: value
            for number, group in enumerate(self.groups)
            for key, value in group.state().items()
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        for number, group in enumerate(self.groups):
            group.restore({key: state[_prefix(number) + key] for key in group.state()})

    def learners(self) -> Iterator[Learner]:
        """Each peer's model in turn, in its group's learner."""
        turns = {rank: models for group in self.groups for models in [group.learners()] for rank in group.ranks}
        for rank in range(len(self.names)):
            yield next(turns[rank])


def _prefix(group: int) -> str:
    return f"{group}/" if group else ""
