"""DFedCAD: clustered models travel; a peer weighs its neighbours by how far their centroids are, and aligns with them.

Bai, Dong and Qin, "On the Fast Adaptation of Delayed Clients in Decentralized Federated Learning: A Centroid-Aligned
Distillation Approach", arXiv 2508.02993, 2025. Of the paper only the abstract and summaries were at hand: weighted
cluster pruning compresses models into centroids, a structural distance weighs peers, and a differentiable k-means
module aligns a client with them. Which formulas it has we do not know; ours, and what is simpler: docs/methods.md.

Of each tensor let c be the peer's own K centroids, ascending, and c_j those of neighbour j. The distance d_j is the
root of the mean square of c - c_j, a tensor counting by its values. Neighbour j has the weight exp(-d_j / d) with d the
mean of all d_j, and together they count as often as they are. So neighbours that are equally far give the plain mean.
Then each value is drawn by the share --align towards its soft centroid: the neighbours' centroids are averaged with
these weights, and of the K that this gives it is the mean by how near each is to the value. W parameters.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.learning.exchanges.clusters import CLUSTERED, centroids_of
from p2p_tally.learning.exchanges.code import count
from p2p_tally.learning.exchanges.dpfl import every_link
from p2p_tally.learning.exchanges.exchange import Exchange
from p2p_tally.learning.exchanges.pame import all_alike

if TYPE_CHECKING:
    from torch import Tensor

    from p2p_tally.learning.own import Own

# Values that are aligned at once: K numbers for each.
BLOCK = 1 << 15


def aligned(gathered: "Tensor", own: "Own", federation: Federation) -> "Tensor":
    """The parameters [W] after a merge, from one's own and the clustered ones of those who sent [1 + k, W]."""
    rows = gathered.cpu().numpy()
    if len(rows) == 1:
        return gathered[0]
    tensors, start = [], 0
    for shape in own.layout:
        tensors.append(slice(start, start + count(shape)))
        start += count(shape)
    centroids = [  # of each tensor, everybody's [1 + k, K]
        np.stack([centroids_of(row[tensor], federation.clusters) for row in rows]).astype(np.float64)
        for tensor in tensors
    ]
    shares = nearness(centroids, [tensor.stop - tensor.start for tensor in tensors])
    others = len(rows) - 1
    mixed = (rows[0] + np.float32(others) * (shares.astype(np.float32) @ rows[1:])) / np.float32(1 + others)
    for tensor, everyones in zip(tensors, centroids, strict=True):
        for begin in range(tensor.start, tensor.stop, BLOCK):
            block = slice(begin, min(begin + BLOCK, tensor.stop))
            drawn = soft_centroids(mixed[block], shares @ everyones[1:])
            mixed[block] += np.float32(federation.align) * (drawn - mixed[block])
    return gathered.new_tensor(mixed)


def nearness(centroids: Sequence[np.ndarray], values: Sequence[int]) -> np.ndarray:
    """The weight [k] of each neighbour, from everybody's centroids of each tensor [1 + k, K], one's own first, and how
    many values the tensor has. They sum to 1."""
    squares = sum(
        many * np.square(everyones[1:] - everyones[0]).mean(1)
        for everyones, many in zip(centroids, values, strict=True)
    )
    distances = np.sqrt(squares / sum(values))
    mean = distances.mean()
    weights = np.exp(-distances / mean) if mean > 0 else np.ones_like(distances)
    shares: np.ndarray = weights / weights.sum()
    return shares


def soft_centroids(values: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """For each value [n] the mean of the centroids [K], weighed by exp(-(distance / gap)^2), as float32. The gap is the
    mean one between centroids. A value that is far from all has the nearest one."""
    gap = (centroids[-1] - centroids[0]) / max(1, len(centroids) - 1)
    if not gap > 0:
        return np.full(len(values), centroids[0], np.float32)
    far = np.square((values[:, None] - centroids) / gap)  # [n, K]
    weights = np.exp(far.min(1, keepdims=True) - far)
    drawn: np.ndarray = ((weights * centroids).sum(1) / weights.sum(1)).astype(np.float32)
    return drawn


ALIGNING = Exchange(links=every_link, weights=all_alike, takes=aligned, code=CLUSTERED)
