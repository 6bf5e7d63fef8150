"""What a sweep found, as a table on a terminal."""

from pathlib import Path

from p2p_tally.runner.console.tables import in_units
from p2p_tally.runner.console.terminal import Column, print_columns
from p2p_tally.runner.report.results import CellResults, Measured, collect

COLUMNS = (
    Column("cell", words=True),
    Column("seeds", least_useful=1),
    Column("accuracy %"),
    Column("spread"),
    Column("sent by a peer"),
)


def print_results(folder: Path) -> None:
    """One table for each experiment in the folder: accuracy, spread between peers, bytes."""
    for results in collect([folder]):
        rows = [[cell.name, str(len(cell.runs)), *_figures(cell)] for cell in results.cells]
        print_columns(COLUMNS, rows, results.title)


def _figures(cell: CellResults) -> tuple[str, str, str]:
    sent = cell.metric("payload")
    return _shown(cell.metric("tail")), _shown(cell.metric("spread")), "–" if sent is None else in_units(sent.mean)


def _shown(value: Measured | None) -> str:
    if value is None:
        return "–"
    return f"{value.mean:.1f}" if value.std is None else f"{value.mean:.1f} ± {value.std:.1f}"
