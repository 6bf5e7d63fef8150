"""Which classes a model takes for which, as a figure."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from p2p_tally.errors import ConfigError
from p2p_tally.runner.report.accuracy_figure import STYLE, save

# Up to this many classes every cell has its number.
NUMBERED = 20
SUFFIXES = (".svg", ".png", ".pdf")


def confusion_figure(confusion: np.ndarray, title: str, path: Path) -> None:
    """`confusion` [C, C]: how many of each class (rows) were taken for each (columns)."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"--plot {path}: accepted is a file that ends with {', '.join(SUFFIXES)}")
    size = len(confusion)
    totals = confusion.sum(1, keepdims=True)
    shares = np.divide(confusion, totals, out=np.zeros(confusion.shape), where=totals > 0)  # of the examples of a class
    side = 5.0 + min(size, NUMBERED) * 0.12
    with matplotlib.rc_context(STYLE | {"axes.grid": False}):
        figure = Figure(figsize=(side + 1, side), layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        figure.colorbar(image, ax=axes, label="share of the class", shrink=0.8)
        if size <= NUMBERED:
            axes.set_xticks(range(size))
            axes.set_yticks(range(size))
            for row, column in zip(*np.nonzero(confusion), strict=True):
                colour = "white" if shares[row, column] > 0.5 else "black"
                number = str(confusion[row, column])
                axes.text(column, row, number, ha="center", va="center", fontsize=8, color=colour)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        axes.set_title(title, fontsize=10, loc="left")
        try:
            save(figure, path)
        except OSError as error:
            raise ConfigError(f"--plot {path}: {error.strerror}; accepted is a file that can be written") from None
