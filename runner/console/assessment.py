"""What a person at a terminal is shown of a trained model: its accuracy, and which classes it takes for which."""

import numpy as np
from rich.console import Console
from rich.table import Table

from p2p_tally.learning.saved.predict import Assessment
from p2p_tally.runner.console.terminal import print_table

# Up to this many classes the whole table fits a terminal; beyond, the commonest mistakes are shown.
WHOLE = 12
MISTAKES = 10


def print_assessment(found: Assessment, confusion: np.ndarray | None, title: str, is_text: bool) -> None:
    if confusion is not None:
        print_table(_whole(confusion, title) if len(confusion) <= WHOLE else _commonest(confusion, title))
    more = f", perplexity {found.perplexity:.2f}" if is_text else ""
    Console().print(
        f"accuracy {found.accuracy} % of {found.count} {'positions' if is_text else 'examples'}, "
        f"loss {found.loss:.4f}{more}",
        highlight=False,
        soft_wrap=True,
    )


def _whole(confusion: np.ndarray, title: str) -> Table:
    table = Table(title=f"{title}: rows true, columns predicted", title_justify="left")
    table.add_column("", justify="right")
    for column in range(len(confusion)):
        table.add_column(str(column), justify="right")
    table.add_column("right %", justify="right")
    for cls, counts in enumerate(confusion.tolist()):
        total = sum(counts)
        right = f"{100 * counts[cls] / total:.1f}" if total else "–"
        table.add_row(str(cls), *(str(count) if count else "·" for count in counts), right)
    return table


def _commonest(confusion: np.ndarray, title: str) -> Table:
    table = Table(title=f"{title}: the commonest mistakes", title_justify="left")
    for column in ("true class", "taken for", "times", "of"):
        table.add_column(column, justify="right")
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0)
    for place in np.argsort(-wrong, axis=None, kind="stable")[:MISTAKES]:
        cls, taken = divmod(int(place), len(wrong))
        if wrong[cls, taken]:
            table.add_row(str(cls), str(taken), str(wrong[cls, taken]), str(confusion[cls].sum()))
    return table
