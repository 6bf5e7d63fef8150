"""DPFL: each peer chooses by its own data whose models it takes into its mean.

Kharrat, Canini and Horvath, "DPFL: Decentralized Personalized Federated Learning", AISTATS 2025 (PMLR 258): a directed
graph of collaboration, learned by a greedy choice of neighbours under a budget, which lowers the loss of the mean on
the peer's own data. Simplifications: docs/methods.md. W parameters.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from p2p_tally.config import Federation
from p2p_tally.learning.exchanges.exchange import Exchange
from p2p_tally.learning.exchanges.pame import all_alike

if TYPE_CHECKING:
    from torch import Tensor

    from p2p_tally.learning.own import Own


def every_link(_federation: Federation, _sender: str, _receiver: str, _round: int) -> bool:
    return True


def greedy(gathered: "Tensor", loss: "Own | Callable[[Tensor], float]", federation: Federation) -> "Tensor":
    """The mean of one's own vector and of those chosen from [1 + k, W], one's own first.

    One after the other the neighbour is added that lowers the loss of the mean most, until none lowers it or there are
    --partners of them. Of equally good ones the first by name."""
    chosen, best = [0], loss(gathered[0])
    while len(chosen) <= federation.partners:
        tried = {row: loss(gathered[[*chosen, row]].mean(0)) for row in range(1, len(gathered)) if row not in chosen}
        row = min(tried, key=lambda row: math.inf if math.isnan(tried[row]) else tried[row], default=None)
        if row is None or not tried[row] < best:
            break
        chosen.append(row)
        best = tried[row]
    return gathered[chosen].mean(0)


CHOOSING = Exchange(links=every_link, weights=all_alike, takes=greedy)
