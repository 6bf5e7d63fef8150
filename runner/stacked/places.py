"""Where the peers of a stacked federation live: all in this process, or shared out among several.

The processes play the same rounds in step. Parameters, moments, data and generators stay with their peers. What decides
about a round (who speaks, whose channel is open) every process knows of all; answers and parameters go where somebody
needs them. N peers in all, n of this process, m that this process needs to hear.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from p2p_tally.runner.stacked.shares import Shares, even

Total = TypeVar("Total")
Part = TypeVar("Part")

# What goes to each process, and what has come from each.
Swap = Callable[[Sequence[Any]], Sequence[Any]]
# The mean [1, w] of some columns, from these columns of all peers [N, w].
OfColumns = Callable[[slice, Tensor], Tensor]


class Near(Protocol):
    """A graph that knows whom the peers of a process hear."""

    def wanted(self, process: int) -> np.ndarray:
        """Their ranks [m], ascending."""
        ...


class Here:
    """All peers are in this process: there is nobody to exchange anything with."""

    keeps_record = True
    here = 0

    def __init__(self, nodes: int) -> None:
        self.all_held: Sequence[np.ndarray] = [np.arange(nodes)]

    @property
    def held(self) -> np.ndarray:
        """The ranks of those in this process [n], ascending."""
        return self.all_held[self.here]

    def others(self, what: str, *arguments: Any) -> None:
        """Have the other processes do what this one does now: a method of their engine."""

    def whole(self, own: np.ndarray) -> np.ndarray:
        """What is known of each peer [N, ...], from what is known of those in this process [n, ...]."""
        return own

    def all_say(self, yes: bool) -> bool:
        """Whether every process says yes."""
        return yes

    def near(self, own: np.ndarray, graph: Near, most: int | None = None) -> np.ndarray:  # noqa: ARG002
        """The rows of those whom peers of this process hear [m, ...]. `most`: of whole numbers up to this."""
        return own

    def by_columns(self, own: Tensor, starts: Sequence[int], work: OfColumns) -> Tensor:  # noqa: ARG002
        """What `work` makes [1, W] of the columns of all peers, from rows [n, W]. `starts`: where columns may be parted
        without changing a float."""
        return work(slice(0, own.shape[1]), own)

    def slowest(self, seconds: dict[str, float]) -> None:
        """Put in the seconds of the slowest process, phase by phase."""

    def folded(self, start: Total, fold: Callable[[Total], Total]) -> Total:
        """What every process in turn makes of the result of the one before; of use where the record is kept."""
        return fold(start)

    def collected(self, part: Part) -> Sequence[Part]:
        """Where the record is kept, what every process gives; elsewhere nothing."""
        return [part]

    def dealt(self, parts: Sequence[Part] | None) -> Part:
        """The part of this process, of what is given for each where the record is kept."""
        assert parts is not None
        return parts[0]


class Apart(Here):
    """One of several processes."""

    def __init__(
        self, shares: Shares, here: int, swap: Swap, others: Callable[[str, Sequence[Any]], None] | None = None
    ) -> None:
        """`others`: where the record is kept, how the other processes are told what to do."""
        self.all_held = shares.held
        self.here = here
        self.keeps_record = here == shares.count
        self._keeper = shares.count
        self._swap = swap
        self._others = others

    def others(self, what: str, *arguments: Any) -> None:
        if self._others is not None:
            self._others(what, arguments)

    def _to_all(self, part: Any) -> Sequence[Any]:
        return self._swap([part] * len(self.all_held))

    def _to_one(self, process: int, part: Any) -> Sequence[Any]:
        """Of what came, only that process has something."""
        return self._swap([part if other == process else None for other in range(len(self.all_held))])

    def whole(self, own: np.ndarray) -> np.ndarray:
        return by_rank(self._to_all(own), self.all_held)

    def all_say(self, yes: bool) -> bool:
        return all(self._to_all(yes))

    def near(self, own: np.ndarray, graph: Near, most: int | None = None) -> np.ndarray:
        sent = own if most is None else own.astype(np.min_scalar_type(most))
        asked = [np.flatnonzero(np.isin(self.held, graph.wanted(process))) for process in range(len(self.all_held))]
        asked[self.here] = np.arange(0)  # its own do not travel
        came = list(self._swap([sent[rows] if len(rows) else None for rows in asked]))
        if not len(self.held):
            return own
        came[self.here] = sent
        wanted = graph.wanted(self.here)
        found = by_rank(came, [np.intersect1d(held, wanted) for held in self.all_held], wanted)
        return found.astype(own.dtype, copy=False)

    def by_columns(self, own: Tensor, starts: Sequence[int], work: OfColumns) -> Tensor:
        cuts = even(starts, own.shape[1], self._keeper)
        vectors = own.numpy()
        parts = [np.ascontiguousarray(vectors[:, cut]) for cut in cuts]
        came = list(self._swap([part if to != self.here else None for to, part in enumerate(parts)] + [None]))
        found = None
        if not self.keeps_record and cuts[self.here].stop > cuts[self.here].start:
            came[self.here] = parts[self.here]
            rows = by_rank(came, self.all_held)
            found = work(cuts[self.here], torch.from_numpy(rows)).numpy()
        pieces = self._swap([*[found] * self._keeper, None])
        if self.keeps_record:
            return own
        return torch.from_numpy(np.concatenate([piece for piece in pieces if piece is not None], 1))

    def slowest(self, seconds: dict[str, float]) -> None:
        for other in self.collected(dict(seconds)):
            seconds |= {phase: max(spent, seconds.get(phase, 0)) for phase, spent in other.items()}

    def folded(self, start: Total, fold: Callable[[Total], Total]) -> Total:
        total = start
        for process in range(self._keeper):
            if process == self.here:
                total = fold(total)
            came = self._to_one(process + 1, total if process == self.here else None)
            if process + 1 == self.here:
                total = came[process]
        return total

    def collected(self, part: Part) -> Sequence[Part]:
        came = self._to_one(self._keeper, part)
        return came[: self._keeper] if self.keeps_record else []

    def dealt(self, parts: Sequence[Part] | None) -> Part:
        own: Part = self._swap([None] * len(self.all_held) if parts is None else parts)[self._keeper]
        return own


def by_rank(
    parts: Sequence[np.ndarray | None], ranks: Sequence[np.ndarray], wanted: np.ndarray | None = None
) -> np.ndarray:
    """The rows of the wanted ranks, or of all, ascending, of parts that have those of some."""
    having = [(part, own) for part, own in zip(parts, ranks, strict=False) if part is not None and len(own)]
    wanted = np.arange(sum(map(len, ranks))) if wanted is None else wanted
    first, _ = having[0]
    if len(having) == 1 and len(first) == len(wanted):
        return first
    rows = np.empty((len(wanted), *first.shape[1:]), first.dtype)
    for part, own in having:
        rows[np.searchsorted(wanted, own)] = part
    return rows
