"""What a person at a terminal is shown of a run and of bytes."""

import numpy as np
from rich.console import Console
from rich.table import Table

from p2p_tally.learning.architectures import holders, of_rank, shown
from p2p_tally.runner.console.terminal import Column, print_columns, print_table
from p2p_tally.runner.experiments.payload import CellBytes
from p2p_tally.runner.report.sent_bytes import MeasuredBytes
from p2p_tally.runner.runs.run import Run, cell_name

PAYLOAD = (
    Column("cell", words=True),
    Column("bytes/probe", least_useful=2),
    Column("paper, bytes"),
    Column("sent here, bytes"),
    Column("ratio", least_useful=1),
)
MEASURED = (
    Column("cell", words=True),
    Column("ballot", words=True),
    Column("as byte", least_useful=2),
    Column("as packed", least_useful=3),
    Column("payload"),
    Column("framed"),
    Column("wire", least_useful=1),
)


def print_run(run: Run) -> None:
    summary = run.summary()
    table = Table(
        title=f"{cell_name(run.federation)} on {run.federation.data}, {summary['topology']}",
        title_justify="left",
    )
    table.add_column("node")
    mixed = len(holders(run.federation)) > 1
    if mixed:
        table.add_column("model")
    for column in ("accuracy %", "tail mean %"):
        table.add_column(column, justify="right")
    # Of the rounds that a node took part in: another may have joined, left or died.
    tails = [np.mean(own[np.isfinite(own)]) if np.isfinite(own).any() else np.nan for own in run.accuracy[run.tail].T]
    for rank, name in enumerate(run.names[:16]):
        model = [shown(of_rank(run.federation, rank).model)] if mixed else []
        shown_name = f"{name} (lies)" if rank >= run.honest else name
        table.add_row(shown_name, *model, *(_share(value) for value in (summary["accuracy"][rank], tails[rank])))
    if len(run.names) > 16:
        table.add_row(f"... {len(run.names) - 16} more")
    print_table(table)
    of = "" if run.honest == len(run.names) else f" of the {run.honest} honest nodes ({run.federation.attack})"
    Console().print(
        f"tail accuracy{of} {summary['tail_accuracy']:.2f} %, peak {summary['peak_accuracy']:.2f} %, "
        f"spread between peers {summary['cross_peer_std']:.2f}\n"
        f"sent per peer: payload {in_units(summary['payload_bytes'])}, framed {in_units(summary['framed_bytes'])}; "
        f"{summary['seconds']:.1f} s\n"
        f"run folder: {summary['run']}",
        highlight=False,
        soft_wrap=True,
    )


def _share(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.1f}"


def print_payload(title: str, cells: list[CellBytes]) -> None:
    rows = []
    for cell in cells:
        ratio = f"{cell.sent_bytes / cell.payload_bytes:.3f}" if cell.payload_bytes else "-"
        row = f"{cell.bytes_per_probe:g}", f"{cell.payload_bytes:,}", f"{cell.sent_bytes:,}", ratio
        rows.append([cell.name, *row])
    print_columns(PAYLOAD, rows, f"{title}; merges counted as a {cells[0].accounting}")


def print_measured(cells: list[MeasuredBytes]) -> None:
    rows = []
    for cell in cells:
        row = (cell.as_byte, cell.as_packed, cell.payload, cell.framed, cell.wire)
        rows.append([cell.name, cell.ballot, *("–" if value is None else f"{value:,.0f}" for value in row)])
        for kind, counts in cell.kinds.items():
            rows.append(["", kind, "", "", f"{counts['payload']:,.0f}", f"{counts['framed']:,.0f}", ""])
    print_columns(MEASURED, rows, "Sent by a peer: votes as byte and packed by formula, the rest measured")


def in_units(count: float) -> str:
    """Bytes for a reader."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
