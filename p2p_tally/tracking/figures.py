"""The numbers in a line of rounds.jsonl or NAME.jsonl, each under a name: pure."""

import math
from collections.abc import Mapping
from statistics import fmean, pstdev
from typing import Any


def figures_of(line: Mapping[str, Any]) -> dict[str, float]:
    """Flat names with slashes: `agreement`, `seconds/train`, `accuracy/mean`. What is not a number is left out.

    A list has a value for each node by rank: the mean, the spread, and `accuracy/node-0` and so on.
    """
    found: dict[str, float] = {}
    for name, value in line.items():
        if name != "round":
            found |= _flatten(name, value)
    return found


def _flatten(name: str, value: Any) -> dict[str, float]:
    if isinstance(value, Mapping):
        return {
            key: number for part, inner in value.items() for key, number in _flatten(f"{name}/{part}", inner).items()
        }
    if isinstance(value, list):
        nodes = {f"{name}/node-{rank}": float(number) for rank, number in enumerate(value) if _is_number(number)}
        if not nodes:
            return {}
        return {f"{name}/mean": fmean(nodes.values()), f"{name}/spread": pstdev(nodes.values()), **nodes}
    return {name: float(value)} if _is_number(value) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)  # a bool is one: merged or not
