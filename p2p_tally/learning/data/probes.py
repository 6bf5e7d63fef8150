"""The public probes: the pool, which of them a round uses, and its digest.

Which probes round r uses follows from the federation's seed and r alone, so nothing is sent for it. The draw is
written out on a raw bit stream that numpy keeps stable, so peers with different library versions agree.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from p2p_tally.errors import ConfigError
from p2p_tally.ids import Digest, derive_seed, digest
from p2p_tally.learning.consensus import NO_LABEL
from p2p_tally.learning.data import Examples, every_index

# Examples hashed at a time.
HASHED_AT_ONCE = 4096


@dataclass(frozen=True)
class ProbePool:
    """Public inputs, the same at every peer, with labels or without.

    A pool without labels may have an anchor: a smaller pool of the task's own labelled examples, which gives every
    sample its first `anchor_per_round` probes.
    """

    examples: Examples
    per_round: int
    seed: int
    anchor: Examples | None = None
    anchor_per_round: int = 0
    hidden: bool = False  # the labels are not to be used

    def __post_init__(self) -> None:
        if self._from_pool > len(self.examples):
            raise ConfigError(
                f"--probes-per-round {self.per_round}: accepted is at most the pool's {len(self.examples)} probes"
            )
        if self.anchor is not None and not 0 < self.anchor_per_round <= min(len(self.anchor), self.per_round - 1):
            raise ConfigError(
                f"--anchor-per-round {self.anchor_per_round}: accepted is from 1 to less than the "
                f"{self.per_round} probes a round, and at most the anchor's {len(self.anchor)}"
            )

    @property
    def _from_pool(self) -> int:
        return self.per_round - (self.anchor_per_round if self.anchor is not None else 0)

    @property
    def labelled(self) -> bool:
        """Whether a sample has labels: all of its probes, or those of the anchor."""
        if self.hidden:
            return False
        return self.anchor is not None or self.examples.take(torch.zeros(1, dtype=torch.int64))[1] is not None

    @property
    def votes_per_round(self) -> int:
        return self.per_round * self.examples.probes_each

    def sample(self, round: int) -> tuple[Tensor, Tensor | None]:
        """The probes of one round, S_r: inputs [B, ...] and labels, the same at every peer."""
        x, y = self.examples.take(_draw(len(self.examples), self._from_pool, self.seed, round))
        if self.anchor is None:
            return x, None if self.hidden else y
        first_x, first_y = self.anchor.take(
            _draw(len(self.anchor), self.anchor_per_round, self.seed, round, "anchor probes")
        )
        assert first_y is not None
        if y is None:
            y = torch.full((len(x), *first_y.shape[1:]), NO_LABEL)
        return torch.cat([first_x, x]), torch.cat([first_y, y])

    def labels_of(self, round: int) -> np.ndarray | None:
        """The labels of a round's probes in the order of their votes, -1 where there is none: what a code may use."""
        labels = self.sample(round)[1]
        if labels is None:
            return None
        known = labels.flatten().numpy()
        return np.where(known == NO_LABEL, -1, known)

    def count_right(self, round: int, votes: np.ndarray) -> tuple[np.ndarray, int]:
        """How many of a round's labelled probes the votes [..., P] have right [...], and of how many."""
        labels = self.labels_of(round)
        assert labels is not None
        return (votes == labels).sum(-1), max(1, int((labels >= 0).sum()))

    def digest(self) -> Digest:
        """What two peers compare to know that they vote on the same probes."""
        parts = [
            part
            for examples in (self.anchor, self.examples)
            if examples is not None
            for part in _parts(examples, labels=not self.hidden)
        ]
        return digest(*(part.encode() for part in parts))


def _parts(examples: Examples, *, labels: bool) -> Iterator[Digest]:
    """A digest for every few examples: a pool of a hundred thousand images is never copied whole."""
    for start in range(0, len(examples), HASHED_AT_ONCE):
        x, y = examples.take(torch.arange(start, min(start + HASHED_AT_ONCE, len(examples))))
        yield digest(
            f"{x.dtype}{tuple(x.shape)}".encode(),
            x.numpy().tobytes(),
            b"" if y is None or not labels else y.numpy().tobytes(),
        )


@lru_cache(maxsize=64)  # the nodes of a simulation ask for the same round one after the other
def _draw(pool: int, count: int, seed: int, round: int, purpose: str = "probes") -> Tensor:
    """`count` of `pool` without replacement: a Fisher-Yates shuffle stopped after `count` places."""
    stream = np.random.PCG64(derive_seed(seed, purpose, round)).random_raw(count)
    moved: dict[int, int] = {}
    drawn = []
    for place, raw in enumerate(stream.tolist()):
        other = place + (raw * (pool - place) >> 64)
        drawn.append(moved.get(other, other))
        moved[other] = moved.get(place, place)
    return torch.tensor(drawn, dtype=torch.int64)


def overlap(probes: Examples, test: Examples) -> int:
    """How many probes are byte for byte in the test set too: their accuracy would flatter every method."""
    test_x = test.take(every_index(test))[0].reshape(len(test), -1).numpy()
    probe_x = probes.take(every_index(probes))[0].reshape(len(probes), -1).numpy()
    if test_x.dtype != probe_x.dtype or test_x.shape[1] != probe_x.shape[1]:
        return 0
    known = {row.tobytes() for row in test_x}
    return sum(row.tobytes() in known for row in probe_x)
