"""Cronus: soft labels on probes, averaged by a rule that bears liars in as many dimensions as there are classes.

Chang, Shejwalkar, Shokri, Houmansadr, "Cronus: Robust and Heterogeneous Collaborative Learning with Black-Box Knowledge
Transfer", arXiv 1912.11279, section 4. Its robust mean is the filter of Diakonikolas and others, "Being Robust (in High
Dimensions) Can Be Practical", ICML 2017, section 3: who is furthest out in the direction in which the answers vary most
is left out, and again, until as many are out as may lie. What is simpler here: docs/methods.md.
"""

from collections.abc import Sequence

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.defence.rule import MEMBERS_A_LIAR
from p2p_tally.defence.soft import trimmed


def filtered_mean(
    answers: Sequence[np.ndarray], _classes: int, federation: Federation, weights: np.ndarray | None = None
) -> np.ndarray:
    """The mean of the distributions [P, C] that are left of each probe: a target, as `consensus.py` says.

    One answer in five is left out, or F with --robust-soft trim:F; never so many that fewer than two are left.
    """
    rows = np.stack(answers).astype(np.float64)  # [N, P, C]
    voters, probes, _ = rows.shape
    given = np.full(voters, 1.0 / voters) if weights is None else weights
    counted = np.broadcast_to(given if given.ndim == 2 else given[:, None], (voters, probes)).astype(float)  # [N, P]
    left_out = voters // MEMBERS_A_LIAR if federation.robust_soft is None else trimmed(federation.robust_soft)
    for _ in range(min(left_out, max(0, voters - 2))):
        counted = np.where(_furthest(rows, counted), 0.0, counted)
    total = counted.sum(0)  # [P]
    mean: np.ndarray = (counted[..., None] * rows).sum(0) / np.where(total > 0, total, 1.0)[:, None]
    return mean.astype(np.float32)


def _furthest(rows: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Of each probe the answer [N, P] that is furthest from the median in the direction of most variance."""
    present = counted > 0
    total = counted.sum(0)  # [P]
    mean = (counted[..., None] * rows).sum(0) / np.where(total > 0, total, 1.0)[:, None]  # [P, C]
    centred = np.where(present[..., None], rows - mean, 0.0)  # [N, P, C]
    along = np.einsum("npc,pc->np", centred, _most_varying(np.sqrt(counted)[..., None] * centred))  # [N, P]
    # A probe that nobody has answered has no median; nothing is left out of it.
    middle = np.array(
        [np.median(one[heard]) if heard.any() else 0.0 for one, heard in zip(along.T, present.T, strict=True)]
    )
    distance = np.where(present, np.abs(along - middle), -1.0)
    furthest: np.ndarray = (np.arange(len(rows))[:, None] == distance.argmax(0)) & (present.sum(0) > 2)
    return furthest


def _most_varying(rows: np.ndarray) -> np.ndarray:
    """Of each probe the direction [P, C] in which centred rows [N, P, C] vary most, up to its length. It is an
    eigenvector of their covariance [C, C]; where there are fewer rows than classes, it follows from [N, N] products."""
    voters, _, classes = rows.shape
    if voters >= classes:
        direction: np.ndarray = np.linalg.eigh(np.einsum("npc,npd->pcd", rows, rows))[1][..., -1]
        return direction
    shares = np.linalg.eigh(np.einsum("npc,mpc->pnm", rows, rows))[1][..., -1]  # [P, N]
    combined: np.ndarray = np.einsum("npc,pn->pc", rows, shares)
    return combined
