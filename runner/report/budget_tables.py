"""Methods at equal bytes as part of a report: of each graph a figure, the accuracies, and the settings."""

import math
from collections.abc import Mapping, Sequence

from p2p_tally.learning.methods import Sends, method_of
from p2p_tally.runner.report.budgets import Placed, budgets_of, placed
from p2p_tally.runner.report.document import Block, Heading, Picture, Table, Text
from p2p_tally.runner.report.frontier_figure import frontier
from p2p_tally.runner.report.results import Results

# What the settings of a cell may say, and how a table says it.
KNOBS = {
    "probes_per_round": "{} probes",
    "hops": "{} hops",
    "merge_every": "merge every {}",
    "warmup": "from round {}",
}
BEST = "The best with each budget or less, by the mean over seeds; a difference of a point may be chance."
METRICS = ("tail", "own")
CAPTION = (
    "{name}, {graph}: tail accuracy against bytes sent by a peer, mean over peers and seeds, ± one standard deviation "
    "of the seeds. Names stand right of their points, best first; the dashed line joins what nothing cheaper beats."
)
ACCURACIES = (
    "Tail accuracy % on the common test set / on each peer's own distribution, means over peers and seeds. The best "
    "of a column is bold. A dash: the method cannot use the budget, or was not run. What has no budget stands in the "
    "first column of its skew."
)
SETTINGS = "What each method does with a budget, and how much of it that takes. It is the same for both skews."


def budget_blocks(results: Results, stem: str) -> list[Block]:
    """None where the cells are not of this kind. `stem`: what the pictures' names begin with."""
    cells = placed(results)
    blocks: list[Block] = [Text(BEST), best_table(cells)] if cells else []
    for graph in dict.fromkeys(one.graph for one in cells):
        here = [one for one in cells if one.graph == graph]
        blocks.append(Heading(3, f"{results.name}, {graph}"))
        figure = frontier(here)
        if figure is not None:
            blocks.append(Picture(f"{stem}-{graph}", CAPTION.format(name=results.name, graph=graph), figure))
        blocks += [Text(ACCURACIES), accuracy_table(here), Text(SETTINGS), settings_table(here)]
    return blocks


def best_table(cells: Sequence[Placed]) -> Table:
    """With each budget or less: the highest accuracies on the common test set, on own data, and without probes."""
    rows = []
    paid = [one for one in cells if one.budget]
    for graph, skew in dict.fromkeys((one.graph, one.skew) for one in paid):
        for budget in budgets_of(cells):
            limit = next(one.limit for one in paid if one.budget == budget)
            found = [one for one in paid if (one.graph, one.skew) == (graph, skew) and one.limit <= limit]
            without = [one for one in found if not one.needs_probes]
            best = [
                _highest(found, "tail"),
                _highest(without, "tail"),
                _highest(found, "own"),
                _highest(without, "own"),
            ]
            rows.append([graph, skew, budget, *best])
    columns = ("common test set", "without public inputs", "own distribution", "without public inputs ")
    return Table(["graph", "skew", "budget", *columns], rows, words=True)


def _highest(cells: Sequence[Placed], metric: str) -> str:
    known = [one for one in cells if not math.isnan(one.mean(metric))]
    best = max(known, key=lambda one: one.mean(metric), default=None)
    return f"`{best.method}` {best.mean(metric):.1f}" if best else "–"


def accuracy_table(cells: Sequence[Placed]) -> Table:
    """One row a method; a column for each skew and budget."""
    columns = [(skew, budget) for skew in dict.fromkeys(one.skew for one in cells) for budget in budgets_of(cells)]
    rows = []
    of = {(one.method, one.skew, one.budget): one for one in cells}
    best = {
        (metric, *column): max((one.mean(metric) for one in cells if (one.skew, one.budget) == column), default=0.0)
        for metric in METRICS
        for column in columns
    }
    for method in dict.fromkeys(one.method for one in cells):
        row = []
        for skew, budget in columns:
            # What has no budget sends nothing, or is beside the grid.
            beside = of.get((method, skew, "")) if budget == columns[0][1] else None
            found = of.get((method, skew, budget)) or beside
            row.append(_both(found, best, skew, budget) if found else "–")
        rows.append([f"`{method}`", *row])
    return Table(["method", *(f"{skew}, {budget}" for skew, budget in columns)], rows)


def _both(one: Placed, best: Mapping[tuple[str, str, str], float], skew: str, budget: str) -> str:
    known = [metric for metric in METRICS if not math.isnan(one.mean(metric))]
    return " / ".join(_best(one, metric, best[metric, skew, budget]) for metric in known) or "–"


def _best(one: Placed, metric: str, best: float) -> str:
    text = f"{one.mean(metric):.1f}"
    return f"**{text}**" if one.budget and one.mean(metric) == best else text


def settings_table(cells: Sequence[Placed]) -> Table:
    """What each method does with each budget; with both skews it is the same."""
    budgets = budgets_of(cells)
    of = {(one.method, one.budget): one for one in cells}
    rows = []
    for method in dict.fromkeys(one.method for one in cells if one.budget):
        found = [of.get((method, budget)) for budget in budgets]
        rate = next(one.cell.federation.lr for one in found if one)
        rows.append([f"`{method}`", f"{rate:g}", *(_setting(one) if one else "–" for one in found)])
    return Table(["method", "step size", *budgets], rows, words=True)


def _setting(one: Placed) -> str:
    """Its knobs, and the share of the budget that it sends."""
    federation, method = one.cell.federation, method_of(one.cell.federation)
    read = {
        "probes_per_round": method.sends is not Sends.NOTHING,
        "hops": federation.hops != 1,
        "merge_every": bool(method.merges and federation.merge_every),
        "warmup": method.sends.by_class,
    }
    said = [text.format(getattr(federation, knob)) for knob, text in KNOBS.items() if read[knob]]
    return f"{', '.join(said)}; {100 * one.mean('payload') / one.limit:.0f} %"
