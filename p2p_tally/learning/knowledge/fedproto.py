"""FedProto: for each class the mean feature vector of a peer's own examples, and how many they are; no public data.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI
2022, section 4: a prototype is the mean of what the layers before the last make of the examples of a class; prototypes
are averaged by the numbers of examples; the features of an example are pulled to the prototype of its class. What is
simpler here: docs/methods.md.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.option_types import LARGEST_FEATURE

if TYPE_CHECKING:
    from torch import Tensor


def features(read: "Tensor", _federation: Federation) -> np.ndarray:
    """The features [..., P, D] as they may be sent."""
    return read.clamp(-LARGEST_FEATURE, LARGEST_FEATURE).cpu().numpy()


def centroids(
    answers: Sequence[np.ndarray], _classes: int, _federation: Federation, weights: np.ndarray | None = None
) -> np.ndarray:
    """The centroid of each class over all peers, from tables [C, 1 + D]: the same table, with the numbers summed up.

    Each peer counts by its examples, and by its weight. A class that nobody has is a row of zeros."""
    total = np.zeros_like(answers[0])
    for peer, table in enumerate(answers):
        examples = table[:, :1] * np.float32(1.0 if weights is None else weights[peer])
        total[:, :1] += examples
        total[:, 1:] += examples * table[:, 1:]
    total[:, 1:] /= np.where(total[:, :1] > 0, total[:, :1], np.float32(1))
    return total


def pulled_to_centroids(
    outputs: "Tensor",
    labels: "Tensor",
    rows: "Tensor | None",
    label_weight: "float | Tensor",
    consensus_weight: "float | Tensor",
    classes: int,
) -> "Tensor":
    """Cross-entropy to the labels, and the mean square of what lies between features and centroid: a row's `loss`.

    Outputs [..., P, D + C] are features and logits; rows [..., P, 1 + D] are those of the centroids."""
    logits, own = outputs[..., -classes:], outputs[..., :-classes]
    loss = -label_weight * logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)  # [..., P]
    if rows is not None:
        known = (rows[..., 0] > 0).float()
        loss = loss + consensus_weight * known * (own - rows[..., 1:]).square().mean(-1)
    return loss.mean(-1).sum()
