"""Figures from runs, as SVG: each method has one colour everywhere, that of its row."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from p2p_tally.learning.methods import method_of
from p2p_tally.runner.runs.run import Run, cell_name

# A fixed salt keeps the ids in an SVG, and so the file, the same from run to run.
STYLE: Any = {
    "svg.hashsalt": "p2p-tally",
    "svg.fonttype": "path",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}


def save(figure: Figure, path: Path) -> None:
    """Write a figure without a date in it, so that the same run gives the same bytes."""
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, metadata=metadata, dpi=144)


def accuracy_figure(run: Run, path: Path) -> None:
    """Test accuracy over the rounds: the mean of the peers, its band, every merge, the warm-up."""
    federation, rounds, accuracy = run.federation, run.rounds, run.accuracy[:, : run.honest]
    mean, spread = np.nanmean(accuracy, 1), np.nanstd(accuracy, 1)
    method = method_of(federation)
    colour = method.colour
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        axes.fill_between(
            rounds,
            np.nanmin(accuracy, 1),
            np.nanmax(accuracy, 1),
            color=colour,
            alpha=0.12,
            lw=0,
            label="worst to best peer",
        )
        axes.fill_between(
            rounds, mean - spread, mean + spread, color=colour, alpha=0.3, lw=0, label="± 1 std over peers"
        )
        axes.plot(rounds, mean, color=colour, lw=1.8, label="mean over peers")
        bottom = max(0.0, float(np.nanmin(accuracy)) - 4)
        merged = run.merge_rounds
        if 0 < len(merged) <= 60:
            axes.plot(merged, [bottom] * len(merged), "k^", ms=6, clip_on=False, label="merge", ls="none")
            axes.vlines(merged, bottom, mean[[line.merged for line in run.lines]], color="k", lw=0.6, ls=":")
        if isinstance(federation.warmup, int) and federation.warmup and method.waits:
            axes.axvspan(0, federation.warmup, color="k", alpha=0.06, lw=0)
            axes.annotate(
                "warm-up",
                (federation.warmup / 2, bottom),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color="#555555",
            )
        axes.set_xlim(0, federation.rounds)
        axes.set_ylim(bottom, min(100.0, float(np.nanmax(accuracy)) + 3))
        axes.set_xlabel("round")
        axes.set_ylabel("test accuracy (%)")
        summary = run.summary()
        axes.set_title(
            f"{cell_name(federation)} on {federation.data}, {federation.nodes} peers, {federation.topology}: "
            f"tail {summary['tail_accuracy']:.1f} %, spread {summary['cross_peer_std']:.1f}",
            fontsize=10,
            loc="left",
        )
        axes.legend(loc="lower right", frameon=True, framealpha=0.9, edgecolor="none", fontsize=9)
        save(figure, path)
