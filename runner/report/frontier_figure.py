"""Accuracy against bytes for many methods at a few budgets, one panel for each skew: every point with its name.

The points of a budget stand left of it on the axis of bytes, and their names in a column right of it. Colour and marker
tell what kind of thing travels.
"""

import math
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, NullFormatter

from p2p_tally.runner.report.accuracy_figure import STYLE
from p2p_tally.runner.report.budgets import Placed, budgets_of

# Okabe and Ito's colours, and a marker each.
FAMILIES = {
    "votes": ("#0072B2", "o"),
    "answers and parameters": ("#009E73", "D"),
    "soft labels": ("#E69F00", "s"),
    "means by class": ("#CC79A7", "^"),
    "parameters": ("#D55E00", "v"),
}
OTHER = ("#56B4E9", "P")
WIDTH, HEIGHT = 9.0, 5.2  # inches of a panel
FONT = 8.0  # points of a name
BEYOND = 1.12  # from a budget to its names, as a ratio of bytes


def frontier(cells: Sequence[Placed]) -> Figure | None:
    """`cells`: of one graph."""
    skews = list(dict.fromkeys(one.skew for one in cells if one.budget))
    if not skews:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT * len(skews)), layout="constrained")
        panels = figure.subplots(len(skews), 1, sharex=True, squeeze=False)[:, 0]
        for panel, skew in zip(panels, skews, strict=True):
            _draw(panel, [one for one in cells if one.skew == skew])
        partition = {one.skew: one.cell.federation.partition for one in cells}
        for panel, skew in zip(panels, skews, strict=True):
            panel.set_title(partition[skew], fontsize=10, loc="left")
        panels[-1].set_xlabel("bytes sent by a peer", fontsize=10)
        figure.legend(handles=_legend(cells), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def _draw(axes: Axes, cells: Sequence[Placed]) -> None:
    paid = [one for one in cells if one.budget and not math.isnan(one.mean("tail"))]
    budgets = budgets_of(paid)
    limits = {one.budget: one.limit for one in paid}
    axes.set_xscale("log")
    axes.set_xlim(limits[budgets[0]] / 3.6, limits[budgets[-1]] * 3.6)
    axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("tail accuracy (%)", fontsize=10)
    tails = [one.mean("tail") for one in cells if not math.isnan(one.mean("tail"))]
    low, high = min(tails), max(tails)
    room = 0.06 * (high - low or 1.0)
    axes.set_ylim(low - room, high + room)
    for one in paid:
        colour, marker = FAMILIES.get(one.family, OTHER)
        found = one.cell.metric("tail")
        assert found is not None
        axes.errorbar(
            one.mean("payload"), found.mean, yerr=found.std, marker=marker, ms=6, mec="k", mew=0.5, ls="none",
            color=colour, ecolor="#999999", elinewidth=0.8, zorder=3,
        )  # fmt: skip
    for budget in budgets:
        _name(axes, [one for one in paid if one.budget == budget], limits[budget])
    _frontier(axes, paid)
    for one in cells:
        if one.family == "nothing" and one.mean("payload") == 0 and one.method == "local":
            axes.axhline(one.mean("tail"), color="k", lw=0.9, ls=":")
            axes.text(axes.get_xlim()[0] * 1.02, one.mean("tail"), "local", fontsize=FONT, va="bottom")


def _name(axes: Axes, cells: Sequence[Placed], limit: int) -> None:
    """The names of a budget's points in a column, the best at the top, none over another."""
    low, high = axes.get_ylim()
    step = FONT * 1.22 / 72 / (HEIGHT * 0.8) * (high - low)
    order = sorted(cells, key=lambda one: one.mean("tail"))
    places = spread_out([one.mean("tail") for one in order], step, low + step / 2, high - step / 2)
    for one, place in zip(order, places, strict=True):
        colour, _ = FAMILIES.get(one.family, OTHER)
        axes.annotate(
            one.method, (one.mean("payload"), one.mean("tail")), xytext=(limit * BEYOND, place), fontsize=FONT,
            va="center", color="k", zorder=4,
            bbox={"boxstyle": "square,pad=0.1", "fc": "w", "ec": "none", "alpha": 0.85},
            arrowprops={
                "arrowstyle": "-", "color": colour, "lw": 0.7, "alpha": 0.8, "shrinkA": 0, "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )  # fmt: skip


def spread_out(wanted: Sequence[float], step: float, low: float, high: float) -> list[float]:
    """Places in the same order, at least `step` apart, near those that are wanted, in rising order. Within `low` and
    `high` where there is room."""
    groups: list[tuple[float, int]] = []  # middle and number of those that stand side by side
    for place in wanted:
        groups.append((place, 1))
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < step * (groups[-1][1] + groups[-2][1]) / 2 - 1e-12:
            (one, few), (other, more) = groups.pop(), groups.pop()
            groups.append(((one * few + other * more) / (few + more), few + more))
    placed = [middle + step * (number - (count - 1) / 2) for middle, count in groups for number in range(count)]
    for number in range(len(placed)):
        placed[number] = max(placed[number], low + number * step)
    for number in range(len(placed)):
        placed[-1 - number] = min(placed[-1 - number], high - number * step)
    return placed


def _frontier(axes: Axes, cells: Sequence[Placed]) -> None:
    """Join what nothing cheaper beats."""
    best, corners = -math.inf, []
    for one in sorted(cells, key=lambda one: (one.mean("payload"), -one.mean("tail"))):
        if one.mean("tail") > best:
            best = one.mean("tail")
            corners.append((one.mean("payload"), best))
    corners.append((axes.get_xlim()[1], best))
    axes.step(*zip(*corners, strict=True), where="post", color="#333333", lw=1.4, ls="--", zorder=2)


def _legend(cells: Sequence[Placed]) -> list[Line2D]:
    used = {one.family for one in cells if one.budget}
    names = [*(name for name in FAMILIES if name in used), *sorted(used - FAMILIES.keys())]
    handles = []
    for name in names:
        colour, marker = FAMILIES.get(name, OTHER)
        handles.append(Line2D([], [], color=colour, marker=marker, mec="k", mew=0.5, ls="none", label=name))
    return [*handles, Line2D([], [], color="#333333", ls="--", label="nothing cheaper is better")]
