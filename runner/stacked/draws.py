"""What the peers of a block draw at random, each from its own generator in the order in which its learner would.

Two ways with the same numbers: all peers at once, or one after the other with torch's own generators. The second serves
what torch alone can do: images that are varied at random, by code that takes a generator.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from p2p_tally.learning.data import Augment
from p2p_tally.runner.stacked.twisters import LARGEST_RANGE, Twisters

# A learner draws one number from this range, which seeds modules such as dropout. It takes two words of a generator.
SEEDS = 2**62
SEED_WORDS = 2


class Draws(Protocol):
    """Of n peers; `rows`: those who draw, None for all."""

    def seed(self, rows: Sequence[int] | None) -> None:
        """Pass over the number that a learner seeds dropout by."""
        ...

    def batches(self, rows: Sequence[int] | None, into: Tensor) -> None:
        """A round's places in each peer's shard, into [n, K, B]."""
        ...

    def varied(self, x: Tensor, rows: Sequence[int] | None) -> Tensor:
        """The inputs [n, B, ...], varied at random where the data says so."""
        ...

    def state(self) -> Tensor:
        """[n, ...]"""
        ...

    def restore(self, state: Tensor) -> None: ...


def draws_of(
    seeds: Sequence[int], sizes: Sequence[int], blocks: Sequence[slice], augment: Augment | None
) -> list["Draws"]:
    """For each block of peers that have these seeds, and so many examples each."""
    if augment is not None or max(sizes) >= LARGEST_RANGE:
        return [OneByOne(seeds[own], sizes[own], augment) for own in blocks]
    everyone = Twisters.seeded(seeds)
    return [Together(everyone.part(own), sizes[own]) for own in blocks]


class Together:
    """All peers at once."""

    def __init__(self, twisters: Twisters, sizes: Sequence[int]) -> None:
        self._twisters = twisters
        self._sizes = np.array(sizes)  # [n]

    def seed(self, rows: Sequence[int] | None) -> None:
        self._twisters.words(SEED_WORDS, rows)

    def batches(self, rows: Sequence[int] | None, into: Tensor) -> None:
        chosen = slice(None) if rows is None else list(rows)
        drawn = self._twisters.below(self._sizes[chosen], into[0].numel(), rows)
        into[chosen] = torch.from_numpy(drawn).view(-1, *into.shape[1:])

    def varied(self, x: Tensor, rows: Sequence[int] | None) -> Tensor:  # noqa: ARG002
        return x

    def state(self) -> Tensor:
        return torch.from_numpy(self._twisters.state())

    def restore(self, state: Tensor) -> None:
        self._twisters.restore(state.numpy())


class OneByOne:
    """With torch's own generators."""

    def __init__(self, seeds: Sequence[int], sizes: Sequence[int], augment: Augment | None) -> None:
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._sizes = sizes
        self._augment = augment
        self._number = torch.empty((), dtype=torch.int64)

    def _rows(self, rows: Sequence[int] | None) -> Sequence[int]:
        return range(len(self._generators)) if rows is None else rows

    def seed(self, rows: Sequence[int] | None) -> None:
        for row in self._rows(rows):
            self._number.random_(0, SEEDS, generator=self._generators[row])

    def batches(self, rows: Sequence[int] | None, into: Tensor) -> None:
        for row in self._rows(rows):
            into[row].random_(0, self._sizes[row], generator=self._generators[row])

    def varied(self, x: Tensor, rows: Sequence[int] | None) -> Tensor:
        if self._augment is None:
            return x
        own = self._rows(rows)
        varied = torch.stack([self._augment(x[row], self._generators[row]) for row in own])
        return varied if rows is None else x.index_copy(0, torch.tensor(own), varied)

    def state(self) -> Tensor:
        return torch.stack([generator.get_state() for generator in self._generators])

    def restore(self, state: Tensor) -> None:
        for generator, own in zip(self._generators, state, strict=True):
            generator.set_state(own.clone())  # torch reads a row from the start of its storage
