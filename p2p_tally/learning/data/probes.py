"""The public probes: the pool, which of them a round uses, and its digest.

Which probes round r uses follows from the federation's seed and r alone, so nothing is sent for it. The draw is
written out on a raw bit stream that numpy keeps stable, so peers with different library versions agree.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from p2p_tally.errors import ConfigError
from p2p_tally.ids import Digest, derive_seed, digest
from p2p_tally.learning.data import Examples, every_index


@dataclass(frozen=True)
class ProbePool:
    """Public inputs that all peers hold alike, with their labels or without."""

    examples: Examples
    per_round: int
    seed: int

    def __post_init__(self) -> None:
        if self.per_round > len(self.examples):
            raise ConfigError(
                f"--probes-per-round {self.per_round}: accepted is at most the pool's {len(self.examples)} probes"
            )

    @property
    def labelled(self) -> bool:
        return self.examples.take(torch.zeros(1, dtype=torch.int64))[1] is not None

    @property
    def votes_per_round(self) -> int:
        return self.per_round * self.examples.probes_each

    def sample(self, round: int) -> tuple[Tensor, Tensor | None]:
        """The probes of one round, S_r: inputs [B, ...] and labels, the same at every peer."""
        return self.examples.take(_draw(len(self.examples), self.per_round, self.seed, round))

    def digest(self) -> Digest:
        """What two peers compare to know that they vote on the same probes."""
        x, y = self.examples.take(every_index(self.examples))
        return digest(
            f"{x.dtype}{tuple(x.shape)}".encode(),
            x.numpy().tobytes(),
            b"" if y is None else y.numpy().tobytes(),
        )


@lru_cache(maxsize=64)  # the nodes of a simulation ask for the same round one after the other
def _draw(pool: int, count: int, seed: int, round: int) -> Tensor:
    """`count` of `pool` without replacement: a Fisher-Yates shuffle stopped after `count` places."""
    stream = np.random.PCG64(derive_seed(seed, "probes", round)).random_raw(count)
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
