"""Findings judged on results: holds, does not hold, or undecided where the difference could be chance.

With several seeds a margin is that of the means over the seeds that all its cells have, and must be more than its
Student interval (one-sided, 95 %). Seeds are paired: the same seed is the same split and the same start in every cell,
so the interval is that of the differences seed by seed. abs, min and max are worked out on the means: on each seed they
would make a difference out of what is chance. What stays undecided says how many seeds would decide it, if margin and
spread stayed as they are. With one seed nothing is known of the spread between
seeds, and the margin must at least be more than two standard errors of the test set: those of a binomial, as if the
cells were tested on different examples. They are tested on the same, so this errs towards undecided. Bytes are counted
and have no error.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from p2p_tally.runner.report.findings import Comparison, Figure, Finding, Lookup
from p2p_tally.runner.report.results import CellResults

Outcome = Literal["holds", "does not hold", "undecided", "not run"]
OUTCOMES: tuple[Outcome, ...] = ("holds", "does not hold", "undecided", "not run")

# Student's t, one-sided 95 %, by degrees of freedom; from 10 on the value of 10, which is a little wide.
STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
STANDARD_ERRORS = 2.0  # what a margin must be of, where it rests on one seed
MOST_SEEDS = 10  # beyond which nobody is asked to go
MORE_SEEDS = MOST_SEEDS + 1  # stands for any number beyond


@dataclass(frozen=True)
class Judged:
    """One comparison: its two sides as means over seeds, and how far the margin is from chance."""

    left: float
    right: float
    sign: str
    margin: float  # positive where the comparison holds
    noise: float | None  # None: not known
    seeds_wanted: int | None = None  # that would decide it, MORE_SEEDS for more than MOST_SEEDS; None: not known

    @property
    def outcome(self) -> Outcome:
        if math.isnan(self.margin) or self.noise is None or 0 < self.noise >= abs(self.margin):
            return "undecided"
        equal_will_do = self.sign in ("≥", "≤")
        return "holds" if self.margin > 0 or (self.margin == 0 and equal_will_do) else "does not hold"


@dataclass(frozen=True)
class Verdict:
    finding: Finding
    outcome: Outcome
    judged: list[Judged]
    paper: list[Judged]  # the same comparisons on the paper's own numbers, where it gives them
    seeds: list[int]
    missing: list[str]  # cells or figures without which nothing can be said

    @property
    def seeds_wanted(self) -> int | None:
        """How many would decide an undecided finding; None where it is decided, or this is not known.

        One comparison that fails is enough, but all must hold.
        """
        if self.outcome != "undecided":
            return None
        undecided = [one for one in self.judged if one.outcome == "undecided"]
        against = [one.seeds_wanted for one in undecided if one.margin < 0 and one.seeds_wanted is not None]
        if against and min(against) <= MOST_SEEDS:
            return min(against)
        wanted = [one.seeds_wanted for one in undecided]
        known = [count for count in wanted if count is not None]
        return max(known) if known and len(known) == len(wanted) else None


def judge(finding: Finding, cells: Mapping[str, CellResults], papers: Mapping[str, Mapping[str, float]]) -> Verdict:
    """`papers`: by cell, what the paper says of it."""
    paper = on_paper(finding, papers)
    missing = sorted(finding.cells - cells.keys())
    if missing:
        return Verdict(finding, "not run", [], paper, [], missing)
    seeds = sorted(set.intersection(*(set(cells[cell].seeds) for cell in finding.cells)))
    if not seeds:
        return Verdict(finding, "not run", [], paper, [], ["a seed that all of its cells have"])
    cells = {cell: cells[cell].of_seeds(seeds) for cell in finding.cells}
    figures = {figure for comparison in finding.comparisons for figure in comparison.figures()}
    missing = sorted(f"{metric} of {cell}" for cell, metric in figures if cells[cell].metric(metric) is None)
    if missing and all(metric == "tail_std" for _, metric in figures):
        missing = ["a second seed"]
    if missing:
        return Verdict(finding, "not run", [], paper, [], missing)
    judged = [_judge(comparison, cells, seeds) for comparison in finding.comparisons]
    outcomes = [one.outcome for one in judged]
    outcome: Outcome = "holds"
    if "does not hold" in outcomes:
        outcome = "does not hold"
    elif "undecided" in outcomes:
        outcome = "undecided"
    return Verdict(finding, outcome, judged, paper, seeds, [])


def _judge(comparison: Comparison, cells: Mapping[str, CellResults], seeds: list[int]) -> Judged:
    by_seed = [partial(_of_seed, cells, seed) for seed in seeds]

    def on_average(cell: str, metric: str) -> float:
        return statistics.fmean(found(cell, metric) for found in by_seed)

    margin, wanted = comparison.margin(on_average), None
    if len(seeds) == 1:
        noise = _propagated(comparison, cells, on_average)
    elif any(metric == "tail_std" for _, metric in comparison.figures()):
        noise = _propagated(comparison, cells, on_average)
        if noise is not None:  # the error of a standard deviation falls with the root of the degrees of freedom
            once = noise * math.sqrt(len(seeds) - 1)
            wanted = _seeds_wanted(margin, len(seeds), lambda count: once / math.sqrt(count - 1))
    else:
        deviation = _deviation(comparison, on_average, by_seed)
        noise = _student(deviation, len(seeds))
        wanted = _seeds_wanted(margin, len(seeds), partial(_student, deviation))
    return Judged(*comparison.values(on_average), comparison.sign, margin, noise, wanted)


def _deviation(comparison: Comparison, on_average: Lookup, by_seed: Sequence[Lookup]) -> float:
    """The standard deviation of a margin over seeds; the largest of the branches that abs, min and max take on one."""
    branches = (comparison.branch(at) for at in (on_average, *by_seed))
    return max(statistics.stdev(branch.margin(found) for found in by_seed) for branch in branches)


def _student(deviation: float, seeds: int) -> float:
    """Student's interval of a mean over that many seeds."""
    return STUDENT[min(seeds - 1, len(STUDENT)) - 1] * deviation / math.sqrt(seeds)


def _seeds_wanted(margin: float, have: int, noise: Callable[[int], float]) -> int | None:
    """The first number of seeds with which the margin would be more than its noise."""
    if math.isnan(margin):
        return None
    enough = (count for count in range(have, MORE_SEEDS) if noise(count) < abs(margin))
    return next(enough, MORE_SEEDS)


def _propagated(comparison: Comparison, cells: Mapping[str, CellResults], found: Lookup) -> float | None:
    """Two standard errors of a margin whose figures err independently: each is moved by its own error, up and down."""
    middle, total = comparison.margin(found), 0.0
    for figure in comparison.figures():
        error = cells[figure[0]].standard_error(figure[1])
        if error is None:
            return None

        def moved(by: float, cell: str, metric: str, figure: Figure = figure) -> float:
            return found(cell, metric) + (by if (cell, metric) == figure else 0.0)

        total += max((comparison.margin(partial(moved, by)) - middle) ** 2 for by in (error, -error))
    return STANDARD_ERRORS * math.sqrt(total)


def _of_seed(cells: Mapping[str, CellResults], seed: int, cell: str, metric: str) -> float:
    found = cells[cell].metric(metric, seed)
    return math.nan if found is None else found.mean


def on_paper(finding: Finding, papers: Mapping[str, Mapping[str, float]]) -> list[Judged]:
    """The same comparisons on the paper's own numbers; none where it does not give them all."""

    def lookup(cell: str, metric: str) -> float:
        if metric == "payload":
            return 1e6 * papers[cell]["payload_mb"]
        return papers[cell][metric]

    try:
        return [
            Judged(*comparison.values(lookup), comparison.sign, comparison.margin(lookup), 0.0)
            for comparison in finding.comparisons
        ]
    except KeyError:
        return []
