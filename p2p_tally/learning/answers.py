"""What a node answers for probes, from its model's logits. A row of methods.py names one of these functions.

Logits are [..., P, C]: one node's, or those of many nodes at once. No torch is imported here: a tensor brings its own
methods, and the byte formulas read the rows without torch.
"""

from typing import TYPE_CHECKING

import numpy as np

from p2p_tally.config import Federation

if TYPE_CHECKING:
    from torch import Tensor


def votes(logits: "Tensor", federation: Federation) -> np.ndarray:
    """The likeliest class of each probe [..., P]; C, which is no class, where --abstain leaves a vote out."""
    cast: np.ndarray = logits.argmax(-1).cpu().numpy()
    if not federation.abstain:
        return cast
    confidence: np.ndarray = logits.softmax(-1).amax(-1).nan_to_num(0.0).cpu().numpy()
    return np.where(unsure(confidence, federation.abstain), logits.shape[-1], cast)


def unsure(confidence: np.ndarray, abstain: float | str) -> np.ndarray:
    """The probes [..., P] on which a peer abstains: a share of its ballot, the least confident ones, or all whose
    likeliest class is less likely than a bound."""
    if isinstance(abstain, str):
        below: np.ndarray = confidence < float(abstain.removeprefix("below:"))
        return below
    probes = confidence.shape[-1]
    place = confidence.argsort(-1, kind="stable").argsort(-1, kind="stable")  # of each probe, the least confident first
    least: np.ndarray = place < int(abstain * probes)
    return least


def soft_labels(logits: "Tensor", _federation: Federation) -> np.ndarray:
    """The probabilities of all classes [..., P, C]."""
    return logits.softmax(-1).cpu().numpy()


def top_k(logits: "Tensor", federation: Federation) -> tuple[np.ndarray, np.ndarray]:
    """The --top-k likeliest classes, the likeliest first, and their shares of their joint probability [..., P, k]."""
    top = logits.softmax(-1).topk(federation.top_k, dim=-1)
    shares = top.values / top.values.sum(-1, keepdim=True)
    return top.indices.cpu().numpy(), shares.cpu().numpy()
