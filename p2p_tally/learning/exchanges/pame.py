"""PaME: of a merge only some coordinates travel, chosen anew by every pair of neighbours that exchanges at all.

Sha, Zhou, Wang, Kong and Li, "Decentralized Federated Learning by Partial Message Exchange", arXiv 2603.01730, 2026
(abstract and section I; the rest was not at hand): only randomly selected sparse coordinates are exchanged between two
neighbours. A coordinate becomes the mean of one's own value and those that came; one that nobody sent stays as it is,
so what does not travel is kept and not lost. Simplifications: docs/methods.md.

Both of a pair draw the same coordinates from the federation's seed. So no positions are sent: four bytes a value. And
where a coordinate has one partner only, which is the rule for small shares, the mean over both is kept.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.ids import name_key
from p2p_tally.learning.exchanges.exchange import Exchange, Heard, both_ways, drawn_places

if TYPE_CHECKING:
    from p2p_tally.topologies import Topology


def of_the_pair(federation: Federation, sender: str, receiver: str, round: int, part: int, length: int) -> np.ndarray:
    """The share --coordinates-sent of a run, the same in both directions."""
    pair = sorted((sender, receiver), key=name_key)
    return drawn_places(federation.coordinates_sent, length, federation.seed, "places", round, part, *pair)


def all_alike(
    _exchange: Exchange, _federation: Federation, _topology: "Topology", member: str, _round: int, heard: Sequence[str]
) -> list[dict[str, float]]:
    return [dict.fromkeys((member, *heard), 1.0)]


def mean_of_what_came(own: np.ndarray, weight: float, heard: Sequence[Heard]) -> np.ndarray:
    """By coordinate: the mean of one's own value and those that came, by their weights."""
    total, weights = own * np.float32(weight), np.full(len(own), weight, np.float32)
    for values, places, share in heard:
        total[places] += np.float32(share) * values
        weights[places] += np.float32(share)
    return np.divide(total, weights, out=total)


PARTIAL = Exchange(links=both_ways, weights=all_alike, mix=mean_of_what_came, places=of_the_pair)
