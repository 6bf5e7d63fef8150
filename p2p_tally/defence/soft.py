"""`--robust-soft trim:F`: the mean of distributions without the extremes, coordinate by coordinate. A pure function."""

import re

import numpy as np

_TRIM = re.compile(r"trim:(\d{1,9})")


def trimmed(option: str) -> int:
    """F of trim:F."""
    found = _TRIM.fullmatch(option)
    assert found is not None, "the option has been checked"
    return int(found[1])


def trimmed_distributions(answers: np.ndarray, weights: np.ndarray | None, liars: int) -> np.ndarray:
    """Distributions [N, P, C] as one [P, C]: of each class of each probe the `liars` smallest and the `liars` largest
    probabilities are left out; the mean of the rest is brought to a sum of 1.

    `weights` [N] or [N, P]: a voter of weight 0 is not counted; None: all count the same. Where so many are left out
    that none would stay, the middle one or two stay. A probe without voters is a row of zeros.
    """
    voters, probes, _ = answers.shape
    given = np.ones(voters) if weights is None else weights
    each = np.broadcast_to(given if given.ndim == 2 else given[:, None], (voters, probes))[..., None]  # [N, P, 1]
    counted = each > 0
    count = counted.sum(0)[None]  # [1, P, 1]
    # The place of each value among those of its class and probe that count; the others stand behind them.
    place = np.where(counted, answers, np.inf).argsort(0, kind="stable").argsort(0, kind="stable")  # [N, P, C]
    cut = np.minimum(liars, np.maximum(count - 1, 0) // 2)
    kept = np.where((place >= cut) & (place < count - cut), each, 0.0)
    total = kept.sum(0)
    mean = (kept * answers).sum(0) / np.where(total > 0, total, 1.0)
    whole = mean.sum(-1, keepdims=True)
    result: np.ndarray = (mean / np.where(whole > 0, whole, 1.0)).astype(np.float32)
    return result
