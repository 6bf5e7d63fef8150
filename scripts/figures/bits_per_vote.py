"""The figure in docs/coding.md: bits per vote by how often peers are right, measured with the coder itself.

Random votes of ten classes on labelled probes: right with the given probability, otherwise any other class with equal
probability. The entropy of such a vote is the least that any code needs on average; log2 C is what a vote needs if
nothing is known about it.

    python scripts/figures/bits_per_vote.py [--out docs/images/bits-per-vote.svg]
"""

import argparse
import math
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from p2p_tally.protocol.coding import encode_coded
from p2p_tally.protocol.packed import packed_size
from p2p_tally.runner.report.accuracy_figure import STYLE, save

CLASSES = 10
# Votes in a ballot, and the number of ballots in a mean.
BALLOTS = {16: 400, 256: 40, 2000: 8}
ACCURACIES = np.array([0.1, *np.arange(0.15, 0.96, 0.05), 0.97, 0.99, 1.0])


def bits_per_vote(rng: np.random.Generator, votes: int, ballots: int, accuracy: float) -> float:
    """Mean over ballots, with whole bytes and the first byte."""
    total = 0
    for _ in range(ballots):
        labels = rng.integers(0, CLASSES, votes)
        wrong = (labels + rng.integers(1, CLASSES, votes)) % CLASSES
        cast = np.where(rng.random(votes) < accuracy, labels, wrong)
        total += len(encode_coded(cast, CLASSES, labels))
    return 8 * total / (votes * ballots)


def entropy(accuracy: float) -> float:
    """The entropy of a vote, given its label."""
    parts = [accuracy] + [(1 - accuracy) / (CLASSES - 1)] * (CLASSES - 1)
    return -sum(part * math.log2(part) for part in parts if part > 0)


def draw() -> Figure:
    rng = np.random.default_rng(0)
    percent = 100 * ACCURACIES
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.4), layout="constrained")
        axes = figure.add_subplot()
        axes.axhline(8, color="#7F7F7F", lw=1.2, label="byte: 8")
        axes.axhline(8 * packed_size(16, CLASSES) / 16, color="#000000", lw=1.2, label="packed: ⌈log₂ C⌉ = 4")
        axes.axhline(math.log2(CLASSES), color="#000000", lw=1, ls=":", label="log₂ C = 3.32")
        for (votes, ballots), colour, marker in zip(
            BALLOTS.items(), ("#0072B2", "#009E73", "#D55E00"), "osD", strict=True
        ):
            measured = [bits_per_vote(rng, votes, ballots, accuracy) for accuracy in ACCURACIES]
            label = f"coded, {votes:,} votes a ballot"
            axes.plot(percent, measured, marker=marker, ms=4, lw=1.4, color=colour, label=label)
        fine = np.linspace(0.1, 1, 200)
        axes.plot(
            100 * fine,
            [entropy(p) for p in fine],
            color="#CC79A7",
            lw=1.4,
            ls="--",
            label="entropy: the least possible",
        )
        axes.set_xlabel("votes that agree with the probe's label (%)")
        axes.set_ylabel("bits a vote")
        axes.set_xlim(8, 102)
        axes.set_ylim(0, 8.6)
        axes.legend(loc="center left", bbox_to_anchor=(0.02, 0.66), frameon=True, framealpha=0.9, edgecolor="none")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images/bits-per-vote.svg"), help=".svg, .png or .pdf")
    out: Path = parser.parse_args().out
    with matplotlib.rc_context(STYLE):
        save(draw(), out)
    print(f"written: {out}")


if __name__ == "__main__":
    main()
