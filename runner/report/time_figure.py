"""Accuracy against hours, where runs have a virtual clock (--link)."""

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from p2p_tally.learning.methods import method_of
from p2p_tally.runner.report.accuracy_figure import STYLE
from p2p_tally.runner.report.figures import LINES, SIZE
from p2p_tally.runner.report.results import CellResults, Results


def against_hours(results: Results) -> Figure | None:
    """The mean over peers of each cell; None where no cell has a clock. Hours are those of the first seed: they depend
    on the messages, not on what was learned."""
    cells = [cell for cell in results.cells if not np.isnan(cell.runs[0].hours).any() and len(cell.runs[0].lines) > 2]
    if not cells:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        styles: dict[str, int] = {}
        for cell in cells:
            colour = method_of(cell.federation).colour
            number = styles[colour] = styles.get(colour, -1) + 1
            axes.plot(*_curve(cell), color=colour, ls=LINES[number % len(LINES)], lw=1.6, label=cell.name)
        axes.set_xscale("log")
        axes.set_xlabel("hours over the given links")
        axes.set_ylabel("test accuracy (%)")
        axes.legend(loc="lower right", fontsize=9)
    return figure


def _curve(cell: CellResults) -> tuple[np.ndarray, np.ndarray]:
    length = min(len(run.lines) for run in cell.runs)
    accuracy = np.stack([run.accuracy[:length] for run in cell.runs])  # [S, E, N]
    return cell.runs[0].hours[:length], np.nanmean(accuracy, (0, 2))
