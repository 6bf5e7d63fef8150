"""Cells of an experiment that compares methods at equal bytes, found by their names.

Cells are named GRAPH-SKEW-METHOD-BUDGET, the budget as 100kB or 1MB; GRAPH-SKEW-METHOD is a cell
beside the grid, such as one that sends nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from p2p_tally.config import Federation
from p2p_tally.learning.methods import Sends, method_of
from p2p_tally.runner.report.results import CellResults, Results

NAME = re.compile(r"([^-]+)-([^-]+)-(.+?)(?:-(\d+(?:kB|MB)))?")
UNITS = {"kB": 1_000, "MB": 1_000_000}
FEWEST = 12  # cells with a budget from which on an experiment is one of this kind


@dataclass(frozen=True)
class Placed:
    """A cell, and what its name says of it."""

    cell: CellResults
    graph: str
    skew: str
    method: str
    budget: str  # "": none

    @property
    def family(self) -> str:
        return family(self.cell.federation)

    @property
    def needs_probes(self) -> bool:
        """Whether peers need public inputs."""
        method = method_of(self.cell.federation)
        return method.learns_from_probes and not method.sends.by_class

    @property
    def limit(self) -> int:
        """The budget in bytes."""
        return int(self.budget[:-2]) * UNITS[self.budget[-2:]]

    def mean(self, metric: str) -> float:
        found = self.cell.metric(metric)
        return float("nan") if found is None else found.mean


def family(federation: Federation) -> str:
    """What kind of thing travels."""
    method = method_of(federation)
    merging = bool(method.merges and federation.merge_every)
    if method.sends is Sends.NOTHING:
        return "parameters" if merging else "nothing"
    if merging:
        return "answers and parameters"
    if method.sends is Sends.VOTES:
        return "votes"
    return "means by class" if method.sends.by_class else "soft labels"


def placed(results: Results) -> list[Placed]:
    """The cells whose names fit; none where too few have a budget."""
    found = []
    for cell in results.cells:
        match = NAME.fullmatch(cell.name)
        if match:
            graph, skew, method, budget = match.groups()
            found.append(Placed(cell, graph, skew, method, budget or ""))
    return found if sum(bool(one.budget) for one in found) >= FEWEST else []


def budgets_of(cells: Sequence[Placed]) -> list[str]:
    """The budgets, the smallest first."""
    found = {one.budget: one.limit for one in cells if one.budget}
    return sorted(found, key=lambda budget: found[budget])
