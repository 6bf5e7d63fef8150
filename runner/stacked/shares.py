"""How the peers of a stacked federation are shared out among processes.

Peers that are computed together are never parted, so no float depends on the number of processes. One more process
holds nobody and keeps the record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.learning.architectures import holders
from p2p_tally.learning.setup import Task, make_model
from p2p_tally.runner.stacked.group import inseparable


@dataclass(frozen=True)
class Shares:
    """Whose peers are where. N peers, K processes that hold some."""

    held: Sequence[np.ndarray]  # the ranks of each process, ascending; the last one has none

    @property
    def count(self) -> int:
        return len(self.held) - 1

    @classmethod
    def of(cls, task: Task, count: int) -> "Shares":
        """For so many processes, as even as whole blocks allow. A ConfigError where there are fewer of these."""
        order: list[int] = []  # ranks by group
        starts: list[int] = []  # where a share may begin
        names = ranked_names(task.federation.nodes)
        for ranks in holders(task.federation).values():
            together = inseparable(make_model(task, names[ranks[0]], ranks[0]))
            starts += range(len(order), len(order) + len(ranks), together)
            order += ranks
        if count > len(starts):
            raise ConfigError(
                f"--workers ray:{count}: accepted for these {len(order)} nodes is at most ray:{len(starts)}; peers are "
                f"computed {-(-len(order) // len(starts))} at a time, and those are never parted"
            )
        return cls([np.sort(np.array(order[own], np.int64)) for own in even(starts, len(order), count)] + [_NOBODY])


_NOBODY = np.empty(0, np.int64)


def even(starts: Sequence[int], length: int, count: int) -> list[slice]:
    """So many parts of a row of this length, each beginning at one of these places, of nearly the same length. Where
    there are fewer places than parts, the last parts are empty."""
    places = np.array(starts)
    chosen = [0]
    for part in range(1, count):
        wanted = int(np.abs(places - part * length / count).argmin())
        # At least one place for each part before it and after it.
        least, most = chosen[-1] + 1, len(places) - count + part
        chosen.append(min(max(wanted, least), max(most, least)))
    ends = [*(int(places[at]) if at < len(places) else length for at in chosen), length]
    return [slice(first, last) for first, last in pairwise(ends)]
