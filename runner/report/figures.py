"""The paper's figures from results: frontier, stabilisation, ratio against C, and tail accuracy along a swept option.

Each takes results and returns a matplotlib Figure, or None where the cells for it are missing. The colour shows the
method; cells of one method differ in marker and line style, for print and for colour-blind readers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter, StrMethodFormatter

from p2p_tally.learning.methods import METHODS, method_of
from p2p_tally.runner.report.accuracy_figure import STYLE
from p2p_tally.runner.report.results import CellResults, Results

MARKERS = "osD^vP*Xhp<>"
LINES: Sequence[Any] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
GREY = "#555555"
SIZE = (9.0, 5.4)  # inches

# Options that follow from others in every experiment: they would only make a legend longer.
NOT_IN_LEGENDS = ("method", "seed", "alpha", "warmup", "probe_count", "tail", "eval_every", "rounds")


@dataclass(frozen=True)
class Swept:
    """An option whose sweep is worth a figure."""

    label: str
    log: bool = True
    per_class: bool = False


SWEPT = {
    "probes_per_round": Swept("probes a round for each class, B_sample / C", per_class=True),
    "kl_decay": Swept("decay window T (rounds)"),
    "probe_count": Swept("probes in the pool"),
    "lr": Swept("step size"),
    "mu": Swept("weight of the proximal term"),
    "top_k": Swept("classes sent a probe, k", log=False),
}


# What can be counted as sent, and how an axis says it.
ACCOUNTINGS = {"payload": "bytes", "framed": "framed bytes", "wire": "bytes on the wire"}


def pareto(results: Results, accounting: str = "payload") -> Figure | None:
    """Tail accuracy against bytes sent. Cells that send nothing stand left of the axis's break."""
    points = [(cell, cell.metric(accounting), cell.metric("tail")) for cell in results.cells]
    known = [(cell, sent.mean, tail) for cell, sent, tail in points if sent is not None and tail is not None]
    paid = [sent for _, sent, _ in known if sent > 0]
    if len(known) < 2 or not paid:
        return None
    with matplotlib.rc_context(STYLE):
        figure, axes = _axes(f"{ACCOUNTINGS[accounting]} sent by a peer", "tail accuracy (%)")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        silent = min(paid) / 6
        for (cell, sent, tail), marker in zip(known, _markers(known), strict=True):
            axes.errorbar(
                sent or silent,
                tail.mean,
                yerr=tail.std,
                marker=marker,
                ms=8,
                mec="k",
                mew=0.6,
                ls="none",
                color=method_of(cell.federation).colour,
                ecolor=GREY,
                capsize=3,
                label=cell.name,
            )
        best, frontier = -math.inf, []
        for _, sent, tail in sorted(known, key=lambda point: (point[1], -point[2].mean)):
            if tail.mean > best:
                best = tail.mean
                frontier.append((sent or silent, tail.mean))
        axes.step(*zip(*frontier, strict=True), where="post", color=GREY, lw=1, ls="--", zorder=0, label="frontier")
        if any(sent == 0 for _, sent, _ in known):
            axes.axvline(min(paid) / 2.5, color=GREY, lw=0.8, ls=":")
            axes.text(silent, 0.01, "nothing\nsent", transform=axes.get_xaxis_transform(), ha="center", fontsize=8)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    return figure


def stabilisation(results: Results) -> Figure | None:
    """Each cell's mean over its peers with a band of one standard deviation, before the means of the others."""
    cells = [cell for cell in results.cells if len(cell.runs[0].lines) > 2]
    if not cells:
        return None
    curves = [_curve(cell) for cell in cells]
    columns = min(4, len(cells))
    rows = math.ceil(len(cells) / columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=_panels(rows, columns), layout="constrained")
        panels = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
        for panel, cell, (rounds, mean, spread) in zip(panels, cells, curves, strict=False):
            colour = method_of(cell.federation).colour
            for other_rounds, other_mean, _ in curves:
                panel.plot(other_rounds, other_mean, color="#BBBBBB", lw=0.6)
            panel.fill_between(rounds, mean - spread, mean + spread, color=colour, alpha=0.35, lw=0)
            panel.plot(rounds, mean, color=colour, lw=1.6)
            panel.set_title(cell.name, fontsize=9, loc="left")
        for number, panel in enumerate(panels):
            if number >= len(cells):
                panel.set_axis_off()
            elif number + columns >= len(cells):  # the last of its column, be it above an empty place
                panel.xaxis.set_tick_params(labelbottom=True)
        figure.supxlabel("round", fontsize=10)
        figure.supylabel("test accuracy (%)", fontsize=10)
    return figure


def _curve(cell: CellResults) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rounds, mean over peers and spread between them; means over seeds, of the rounds that all of them evaluated."""
    length = min(len(run.lines) for run in cell.runs)
    accuracy = np.stack([run.accuracy[:length, : run.honest] for run in cell.runs])  # [S, E, n]
    return cell.runs[0].rounds[:length], np.nanmean(accuracy, (0, 2)), np.nanmean(np.nanstd(accuracy, 2), 0)


def ratio(all_results: Sequence[Results]) -> Figure | None:
    """Soft against hard labels, bytes a probe, over the number of classes; and the ratios that runs measured."""
    measured: dict[tuple[int, str], float] = {}
    for results in all_results:
        pure = [cell for cell in results.cells if cell.classes and not cell.federation.merge_every]
        for hard in (cell for cell in pure if cell.federation.method == "tally"):
            for soft in (cell for cell in pure if cell.federation.method == "fedmd"):
                sent = [cell.metric("payload") for cell in (hard, soft)]
                if _same_but(hard, soft, "method") and sent[0] and sent[1] and sent[0].mean:
                    data = str(hard.federation.data).rpartition("/")[2]
                    measured[hard.classes or 0, data] = sent[1].mean / sent[0].mean

    if not measured:
        return None
    with matplotlib.rc_context(STYLE):
        figure, axes = _axes("classes C", "bytes of a soft label / bytes of a vote")
        classes = np.unique(np.geomspace(2, 65_536, 800).astype(int))
        aligned = np.where(classes <= 256, 4 * classes, 2 * classes)
        packed = 32 * classes / np.ceil(np.log2(classes))
        axes.loglog(classes, aligned, color=METHODS["tally"].colour, lw=1.8, label="byte-aligned: 4C / b")
        axes.loglog(classes, packed, color=METHODS["tally"].colour, lw=1.4, ls="--", label="bit-packed: 32C / ⌈log₂ C⌉")
        for ((count, data), value), marker in zip(sorted(measured.items()), MARKERS, strict=False):
            label = f"measured, {data}: {value:,.0f}"
            axes.plot(count, value, marker, color=METHODS["fedmd"].colour, mec="k", mew=0.6, ms=9, label=label)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.legend(frameon=False, fontsize=9)
    return figure


def along(results: Results, option: str) -> Figure | None:
    """Tail accuracy along one option: a line for each set of cells that differ in nothing else."""
    swept = SWEPT[option]
    series: list[list[CellResults]] = []
    for cell in results.cells:
        if not swept.log or _position(cell, option) > 0:
            fitting = next((line for line in series if _same_but(line[0], cell, option)), None)
            if fitting is None:
                series.append([cell])
            else:
                fitting.append(cell)
    lines = [line for line in series if len(line) > 1]
    # A cell of its own beside a line, of another method, is worth its point.
    lone = [line for line in series if len(line) == 1]
    lines += [one for one in lone if any(_same_but(one[0], line[0], option, "method") for line in lines)]
    if not lines:
        return None
    with matplotlib.rc_context(STYLE):
        figure, axes = _axes(swept.label, "tail accuracy (%)")
        if swept.log:
            axes.set_xscale("log")
        for number, line in enumerate(lines):
            line.sort(key=lambda cell: _position(cell, option))
            tails = [cell.metric("tail") for cell in line]
            axes.errorbar(
                [_position(cell, option) for cell in line],
                [math.nan if tail is None else tail.mean for tail in tails],
                yerr=[0.0 if tail is None else tail.std or 0.0 for tail in tails],
                marker=MARKERS[number % len(MARKERS)],
                ls=LINES[number % len(LINES)],
                color=method_of(line[0].federation).colour,
                mec="k",
                mew=0.6,
                capsize=3,
                label=_legend_label(line[0], [other[0] for other in lines], option),
            )
        ticks = _apart(sorted({_position(cell, option) for line in lines for cell in line}), swept.log)
        axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks], fontsize=8)
        axes.minorticks_off()
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def _apart(positions: list[float], log: bool) -> list[float]:
    """Those positions whose labels do not run into the one before."""
    kept: list[float] = []
    for position in positions:
        if not kept or not log or position > 1.5 * kept[-1]:
            kept.append(position)
    return kept


def _position(cell: CellResults, option: str) -> float:
    value = float(getattr(cell.federation, option) or 0)
    return value / (cell.classes or 1) if SWEPT[option].per_class else value


def _same_but(one: CellResults, other: CellResults, *options: str) -> bool:
    excluded = {"seed", *options}
    return one.federation.model_dump(exclude=excluded) == other.federation.model_dump(exclude=excluded)


def _legend_label(cell: CellResults, cells: Sequence[CellResults], option: str) -> str:
    """The method, and those options in which this line differs from the others."""
    differing = []
    for name in type(cell.federation).model_fields:
        values = {str(getattr(other.federation, name)) for other in cells}
        if len(values) > 1 and getattr(cell.federation, name) and name not in (*NOT_IN_LEGENDS, option):
            differing.append(f"{name.replace('_', ' ')} {str(getattr(cell.federation, name)).rpartition('/')[2]}")
    return ", ".join([method_of(cell.federation).shown_as, *differing])


def _panels(rows: int, columns: int) -> tuple[float, float]:
    """The size of small panels side by side; a panel alone is as large as any figure."""
    return SIZE if rows == columns == 1 else (3.3 * columns + 0.6, 2.6 * rows + 0.4)


def _axes(across: str, up: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    return figure, axes


def _markers(points: Sequence[object]) -> list[str]:
    return [MARKERS[number % len(MARKERS)] for number in range(len(points))]
