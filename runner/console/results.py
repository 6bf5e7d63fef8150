"""What a sweep found, as a table on a terminal."""

from pathlib import Path

from rich.table import Table

from p2p_tally.runner.console.tables import in_units
from p2p_tally.runner.console.terminal import print_table
from p2p_tally.runner.report.results import CellResults, Measured, collect


def print_results(folder: Path) -> None:
    """One table for each experiment in the folder: accuracy, spread between peers, bytes."""
    for results in collect([folder]):
        table = Table(title=results.title, title_justify="left")
        table.add_column("cell", overflow="fold")
        for column in ("seeds", "accuracy %", "spread", "sent by a peer"):
            table.add_column(column, justify="right", no_wrap=True)
        for cell in results.cells:
            table.add_row(cell.name, str(len(cell.runs)), *_figures(cell))
        print_table(table)


def _figures(cell: CellResults) -> tuple[str, str, str]:
    sent = cell.metric("payload")
    return _shown(cell.metric("tail")), _shown(cell.metric("spread")), "–" if sent is None else in_units(sent.mean)


def _shown(value: Measured | None) -> str:
    if value is None:
        return "–"
    return f"{value.mean:.1f}" if value.std is None else f"{value.mean:.1f} ± {value.std:.1f}"
