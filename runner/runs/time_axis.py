"""What a run says of time, where its lines have hours: of the virtual clock of --link. Arrays in, JSON out."""

from typing import Any

import numpy as np

# Accuracies, in per cent, of which a summary says when they were reached.
STEP = 5


def time_figures(rounds: int, accuracy: np.ndarray, hours: np.ndarray, idle: float) -> dict[str, Any]:
    """`accuracy`: mean over peers, in per cent [E]. `hours`: when each of these rounds was over [E]; NaN: not known."""
    if np.isnan(hours).any():
        return {}
    return {
        "hours": float(hours[-1]),
        "rounds_per_hour": rounds / float(hours[-1]) if hours[-1] else None,
        "idle_share": idle,
        "hours_to": {str(goal): hours_to(goal, accuracy, hours) for goal in goals(accuracy)},
    }


def goals(accuracy: np.ndarray) -> range:
    """Every fifth per cent above the first evaluation, up to the best one."""
    first, best = float(accuracy[0]), float(np.nanmax(accuracy))
    return range(STEP * (int(first // STEP) + 1), int(best) + 1, STEP)


def hours_to(goal: float, accuracy: np.ndarray, hours: np.ndarray) -> float | None:
    """When the mean over peers was first as high as this; None: never."""
    reached = np.flatnonzero(accuracy >= goal)
    return float(hours[reached[0]]) if len(reached) else None
