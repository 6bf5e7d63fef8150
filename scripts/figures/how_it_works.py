"""The figures in docs/explanation.md, from a federation that is really run.

    python scripts/figures/how_it_works.py [--out docs/images]

`ballots.svg`: five peers alone for 30 rounds, their votes on eight probes, and the tally. `merges.svg`: the accuracy of
each peer where parameters merge every 40 rounds, without and with votes. `bytes.svg`: what one peer sends another in
a round.
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from p2p_tally import Federation, simulate
from p2p_tally.learning.consensus import tally
from p2p_tally.learning.setup import prepare
from p2p_tally.protocol.packed import packed_size
from p2p_tally.runner.report.accuracy_figure import STYLE, save

RIGHT, WRONG, INK = "#228833", "#cc3311", "#222222"
NODES = 5
ALONE = Federation(nodes=NODES, rounds=30, method="local", probe_labels="hidden")


def votes_and_labels(probes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The peers' votes [N, P], the labels that nobody sees [P], and the images [P, 8, 8]: probes they disagree on."""
    task = prepare(ALONE.model_copy(update={"probe_labels": "known"}))
    x, labels = task.probes.examples.take(torch.arange(200))
    assert labels is not None
    votes = np.stack([model(x).argmax(-1).numpy() for model in simulate(ALONE).models])
    shares = tally(votes, task.classes).max(1)
    chosen = [int(at) for share in (0.4, 0.6, 0.8, 1.0) for at in np.flatnonzero(np.isclose(shares, share))[:2]]
    return votes[:, chosen][:, :probes], labels.numpy()[chosen][:probes], x.numpy()[chosen].reshape(-1, 8, 8)[:probes]


def draw_ballots(figure: Figure) -> None:
    votes, labels, images = votes_and_labels(8)
    count = len(labels)
    shares = tally(votes, 10)  # [P, C]
    grid = figure.add_gridspec(3, count, height_ratios=[1.1, 0.42 * NODES, 1.8], hspace=0.25, wspace=0.25)
    for at in range(count):
        image = figure.add_subplot(grid[0, at])
        image.imshow(images[at], cmap="gray_r")
        image.set_axis_off()
        image.set_title(f"probe {at + 1}", fontsize=8)
        cast = figure.add_subplot(grid[1, at])
        cast.set(xlim=(0, 1), ylim=(NODES, 0), xticks=[], yticks=[])
        cast.spines[:].set_visible(False)
        for peer in range(NODES):
            colour = RIGHT if votes[peer, at] == labels[at] else WRONG
            cast.text(0.5, peer + 0.5, str(votes[peer, at]), color=colour, ha="center", va="center", fontsize=11)
            if at == 0:
                cast.text(-0.1, peer + 0.5, f"peer {peer}", ha="right", va="center", fontsize=8, color=INK)
        bars = figure.add_subplot(grid[2, at])
        colours = [RIGHT if label == labels[at] else WRONG for label in range(10)]
        bars.barh(range(10), shares[at], color=colours)
        bars.set(ylim=(9.5, -0.5), xlim=(0, 1), xticks=[0, 1])
        bars.set_yticks(range(10) if at == 0 else [])
        bars.tick_params(labelsize=7)
        if at == 0:
            bars.set_ylabel("tally: share of votes\nby class", fontsize=8)


def draw_merges(axes: list[Axes]) -> None:
    base: dict[str, Any] = {"nodes": NODES, "rounds": 160, "merge_every": 40, "probe_labels": "hidden"}
    for axis, method, title in zip(axes, ("fedavg", "tally"), ("merges alone", "merges and votes"), strict=True):
        run = simulate(Federation(method=method, **base))
        for peer in range(NODES):
            axis.plot(run.rounds, run.accuracy[:, peer], linewidth=1)
        for round in run.merge_rounds:
            axis.axvline(round, color="#bbbbbb", linewidth=0.8, zorder=0)
        axis.set(title=title, xlabel="round", ylim=(0, 100))
    axes[0].set_ylabel("test accuracy of each peer, %")


def draw_bytes(axis: Axes) -> None:
    federation = Federation(nodes=2, rounds=1)
    task = prepare(federation)
    probes, classes = task.probes.votes_per_round, task.classes
    parameters = sum(parameter.numel() for parameter in simulate(federation).models[0].parameters())
    sizes = {
        "votes, one byte each": probes,
        "votes, packed": packed_size(probes, classes),
        "soft labels": 4 * classes * probes,
        "all parameters (one merge)": 4 * parameters,
    }
    axis.barh(list(sizes), list(sizes.values()), color=["#4477aa", "#4477aa", "#ccbb44", "#aa3377"])
    axis.set(xscale="log", xlabel="bytes from one peer to another", xlim=(1, 10**5))
    axis.invert_yaxis()
    for at, size in enumerate(sizes.values()):
        axis.text(size * 1.15, at, f"{size:,}", va="center", fontsize=9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.6, 5.2))
        draw_ballots(figure)
        save(figure, out / "ballots.svg")
        figure = Figure(figsize=(8.6, 3.2), layout="constrained")
        draw_merges(list(figure.subplots(1, 2, sharey=True)))
        save(figure, out / "merges.svg")
        figure = Figure(figsize=(6.6, 2.2), layout="constrained")
        draw_bytes(figure.subplots())
        save(figure, out / "bytes.svg")


if __name__ == "__main__":
    main()
