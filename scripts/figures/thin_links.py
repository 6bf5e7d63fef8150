"""Accuracy against hours over thin links: the figure and the tables of docs/performance.md.

    p2p-tally sweep thin-links-features --seeds 0,1,2 --data-root DATA --out SWEEP
    python scripts/figures/thin_links.py SWEEP [--out docs/images]

What is learned does not depend on links, so each run of the sweep is charged by the virtual clock for every link. What
is trained is an MLP on CIFAR-10 features. For the sizes of ResNet-18 and TinyGPT its curves are drawn again, over the
hours that messages of those sizes would take: they say what a round costs there, not what those models would learn.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from p2p_tally.config import Federation
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.schedule import resolve
from p2p_tally.runner.clock.forecast import forecast
from p2p_tally.runner.report.accuracy_figure import STYLE, save
from p2p_tally.runner.report.figures import LINES
from p2p_tally.runner.report.results import CellResults, collect

RATES, LATENCIES = ("64kbit", "1mbit", "100mbit"), ("600ms", "100ms", "20ms")
PAIRS = [f"{rate},{latency}" for rate, latency in zip(RATES, LATENCIES, strict=True)]
GOALS = (50, 55)  # per cent
CYCLE = 50  # rounds between the merges of every cell that merges seldom: after that a round takes what it took before


class Size(NamedTuple):
    """What messages weigh, and how long a node computes in a round."""

    name: str
    parameters: int
    classes: int
    votes: int
    compute: str


SIZES = (
    Size("MLP on features: 34,186 parameters, trained", 34_186, 10, 16, "200ms"),
    Size("messages of ResNet-18: 11.2 M parameters, 2 s a round", 11_181_642, 10, 16, "2s"),
    Size(
        "messages of TinyGPT: 5.8 M parameters, 8,192 votes of 2,048 classes, 2 s a round", 5_839_360, 2048, 8192, "2s"
    ),
)


def hours(federation: Federation, size: Size, link: str) -> np.ndarray:
    """By the clock, after each round [R]."""
    assert isinstance(federation.warmup, int)
    played = min(federation.rounds, federation.warmup + 2 * CYCLE)
    short = resolve(
        federation.model_copy(update={"link": link, "compute": size.compute, "rounds": played, "tail": 1}),
        labelled=True,
    )
    found = np.array([reading.hours for reading in forecast(short, size.votes, size.classes, size.parameters)])
    while len(found) < federation.rounds:  # rounds that do the same take the same
        found = np.concatenate([found, found[-CYCLE:] + found[-1] - found[-1 - CYCLE]])
    return found[: federation.rounds]


def curve(cell: CellResults) -> tuple[np.ndarray, np.ndarray]:
    """The evaluated rounds [E], and the accuracy of each, the mean over peers and seeds [E]."""
    rounds = np.array([line.round for line in cell.runs[0].lines])
    return rounds, np.nanmean(np.stack([run.accuracy for run in cell.runs]), (0, 2))


def draw(cells: list[CellResults]) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 9), layout="constrained")
        grid = figure.subplots(len(SIZES), len(PAIRS), sharey=True)
        for row, size in zip(grid, SIZES, strict=True):
            for axes, link in zip(row, PAIRS, strict=True):
                styles: dict[str, int] = {}
                for cell in cells:
                    rounds, accuracy = curve(cell)
                    colour = method_of(cell.federation).colour
                    number = styles[colour] = styles.get(colour, -1) + 1
                    time = hours(cell.federation, size, link)[rounds - 1]
                    axes.plot(time, accuracy, color=colour, ls=LINES[number % len(LINES)], lw=1.3, label=cell.name)
                axes.set_xscale("log")
                axes.set_title(link.replace(",", ", "), fontsize=9)
                axes.tick_params(labelsize=8)
            row[0].set_ylabel("test accuracy (%)", fontsize=9)
            row[1].set_xlabel(f"hours; {size.name}", fontsize=9)
        grid[0][0].legend(fontsize=7, loc="lower right")
    return figure


def table(cells: list[CellResults], size: Size, links: list[str]) -> None:
    """Hours of the whole run, and to each goal, in Markdown."""
    print(f"\n{size.name}, {size.compute} of compute a round: hours to {GOALS[0]} %, to {GOALS[1]} %, of all rounds\n")
    print("| cell | tail, % | " + " | ".join(links) + " |\n| --- | ---: |" + " ---: |" * len(links))
    for cell in cells:
        rounds, accuracy = curve(cell)
        tail = cell.metric("tail")
        columns = [f"{tail.mean:.1f}" if tail is not None else ""]
        for link in links:
            time = hours(cell.federation, size, link)
            reached = [rounds[accuracy >= goal][:1] for goal in GOALS]
            columns.append(
                ", ".join([*(f"{time[r[0] - 1]:.2g}" if len(r) else "-" for r in reached), f"{time[-1]:.2g}"])
            )
        print(f"| `{cell.name}` | " + " | ".join(columns) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    wanted = parser.parse_args()
    (results,) = collect([wanted.sweep])
    cells = list(results.cells)
    print("seeds of each cell:", ", ".join(f"{cell.name} {len(cell.runs)}" for cell in cells))
    table(cells, SIZES[0], [f"{rate},{latency}" for rate in RATES for latency in LATENCIES])
    for size in SIZES[1:]:
        table(cells, size, PAIRS)
    save(draw(cells), wanted.out / "thin-links.svg")


if __name__ == "__main__":
    main()
