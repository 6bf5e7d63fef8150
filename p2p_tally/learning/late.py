"""With --overlap: what one node has of a round and uses in the next, the votes that it heard and the result of a merge.

Both have come, and wait for their turn. They are part of a checkpoint, so a run that goes on from one has the same
bits. What is still on its way is not here: a node waits for it before it writes a checkpoint.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from p2p_tally.learning.consensus import Answer

# Keys of a checkpoint. An answer has one array, or two: classes and probabilities.
ROUND = "round"
ANSWER = "answer."
MERGE = "merge."


class LateVotes(NamedTuple):
    """The answers of a round that a node has heard, by name, its own included."""

    round: int
    answers: dict[str, Answer]


class LateMerge(NamedTuple):
    """The result of a merge, and what this node had when it began: all [W]."""

    snapshot: np.ndarray
    average: np.ndarray
    kept: np.ndarray | None  # the part of its change that was not sent


class Late:
    """One node's."""

    def __init__(self) -> None:
        self._votes: LateVotes | None = None
        self._merge: LateMerge | None = None

    def keep_votes(self, votes: LateVotes) -> None:
        self._votes = votes

    def take_votes(self) -> LateVotes | None:
        votes, self._votes = self._votes, None
        return votes

    def keep_merge(self, merge: LateMerge) -> None:
        self._merge = merge

    def take_merge(self) -> LateMerge | None:
        merge, self._merge = self._merge, None
        return merge

    @property
    def state(self) -> dict[str, Tensor]:
        """Everything that is kept, as named tensors."""
        state: dict[str, Tensor] = {}
        if self._votes is not None:
            state[ROUND] = torch.tensor(self._votes.round)
            for name, answer in self._votes.answers.items():
                arrays = answer if isinstance(answer, tuple) else (answer,)
                state |= {f"{ANSWER}{part}.{name}": _tensor(array) for part, array in enumerate(arrays)}
        if self._merge is not None:
            arrays_of = self._merge._asdict().items()
            state |= {MERGE + key: _tensor(array) for key, array in arrays_of if array is not None}
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        self._votes = self._merge = None
        if ROUND in state:
            parts = sorted(key.removeprefix(ANSWER).split(".", 1)[::-1] for key in state if key.startswith(ANSWER))
            found: dict[str, list[np.ndarray]] = {}
            for name, part in parts:
                found.setdefault(name, []).append(state[f"{ANSWER}{part}.{name}"].numpy())
            answers = {
                name: arrays[0] if len(arrays) == 1 else (arrays[0], arrays[1]) for name, arrays in found.items()
            }
            self._votes = LateVotes(int(state[ROUND]), answers)
        merge = {key.removeprefix(MERGE): value.numpy() for key, value in state.items() if key.startswith(MERGE)}
        if merge:
            self._merge = LateMerge(merge["snapshot"], merge["average"], merge.get("kept"))


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array, order="C"))  # a copy: what came in a frame cannot be written to
