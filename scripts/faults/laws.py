"""What must hold after a schedule, by what was written down while it ran. Pure: gives sentences, none if all holds.

A merge at one node is a record: the round, what the node gave and what it took. Which nodes took part is not written
down: it follows from what they took.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

# What a connection carries besides frames: the HTTP upgrade of either side, the hello, and with TLS its handshake.
UPGRADE = 600
TLS_HANDSHAKE = 6_000
TLS_RECORD = 22 + 7  # bytes more for each record
# Of the size of a vector: what float32 sums of a few vectors may be off by.
ROUNDING = 2e-5

FAULTS = ("Traceback", "never retrieved", "was destroyed but it is pending", "Exception ignored", "Unclosed")


@dataclass(frozen=True)
class MergeRecord:
    node: str
    round: int
    gave: np.ndarray  # [W]
    took: np.ndarray  # [W]
    came_back: int = 0  # how often nodes had come back from a stop by then


def one_result_a_round(records: Iterable[MergeRecord]) -> list[str]:
    """Where merges are means over all: those who completed the merge of a round have the same vector.

    Nodes that come back go on from a checkpoint, and may play a round again with others that do. So a round may have
    another result if a node has come back between the last that took the one and the first that took the other.
    """
    found: dict[int, dict[bytes, list[MergeRecord]]] = {}
    for record in records:
        found.setdefault(record.round, {}).setdefault(record.took.tobytes(), []).append(record)
    wrong = []
    for round, results in sorted(found.items()):
        spans = sorted((min(when), max(when)) for when in ([one.came_back for one in who] for who in results.values()))
        if any(last >= first for (_, last), (first, _) in pairwise(spans)):
            nodes = "; ".join(", ".join(one.node for one in who) for who in results.values())
            wrong.append(f"merge of round {round}: {len(results)} results: {nodes}")
    return wrong


def whole_merges(records: Sequence[MergeRecord], given: Mapping[int, Mapping[str, np.ndarray]]) -> list[str]:
    """A merged vector is the same mixture of what nodes gave everywhere, from its first value to its last.

    `given`: what each node gave, by round. A vector whose parts come from different merges is no such mixture.
    """
    wrong = []
    for record in records:
        names = sorted(given[record.round])
        columns = np.stack([given[record.round][name] for name in names], axis=1).astype(np.float64)
        weights, *_ = np.linalg.lstsq(columns, record.took.astype(np.float64), rcond=None)
        off = float(np.abs(columns @ weights - record.took).max() / max(1e-9, np.abs(record.took).max()))
        if off > ROUNDING:
            wrong.append(f"{record.node} has no whole merge in round {record.round}: off by {off:.2g}")
    return wrong


def finite(parameters: Mapping[str, np.ndarray]) -> list[str]:
    return [
        f"{name}: parameters that are not finite"
        for name, vector in parameters.items()
        if not np.isfinite(vector).all()
    ]


def same_end(digests: Mapping[str, str], merged_last: Iterable[str]) -> list[str]:
    """Those who took part in the merge of the last round hold the same model."""
    last = {name: digests[name] for name in merged_last}
    if len(set(last.values())) <= 1:
        return []
    return [f"{len(set(last.values()))} models at those who merged last: {', '.join(sorted(last))}"]


def all_booked(link: str, carried: int, booked: int, besides: int, more: int) -> list[str]:
    """The bytes that a socket has received are those in the ledger, what came before the first frame (`besides`: at
    least so many), and at most so many more."""
    extra = carried - booked - besides
    return [] if 0 <= extra <= more else [f"{link}: {carried} bytes received, {booked} booked, {extra} too many"]


def clean(name: str, text: str) -> list[str]:
    """No fault of the program in a log."""
    return [f"{name}: {line.strip()}" for line in text.splitlines() if any(fault in line for fault in FAULTS)][:3]
