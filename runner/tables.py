"""Results as a table of text cells in the paper's form, and that table as Markdown or HTML. Reads no files."""

import html
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from runner.results import CellResults, Measured, Results


@dataclass(frozen=True)
class Table:
    header: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.header, ["---"] + ["---:"] * (len(self.header) - 1)]
        lines += [[f"`{row[0]}`", *row[1:]] for row in self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def html(self) -> str:
        head = "".join(f"<th>{html.escape(text)}</th>" for text in self.header)
        body = "\n".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in self.rows
        )
        return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def table(results: Results) -> Table:
    """One row a cell. A column that no cell has anything for is left out."""
    columns = {
        "cell": [cell.name for cell in results.cells],
        "tail accuracy %": [_measured(cell.over_seeds("tail_accuracy"), 2) for cell in results.cells],
        "tail perplexity": [_measured(cell.over_seeds("tail_perplexity"), 1) for cell in results.cells],
        "peak accuracy %": [_measured(cell.over_seeds("peak_accuracy"), 2) for cell in results.cells],
        "spread between peers": [_mean(cell.over_seeds("cross_peer_std"), 2) for cell in results.cells],
        "bytes a peer, paper's accounting": [
            "" if cell.payload_bytes is None else f"{cell.payload_bytes:,}" for cell in results.cells
        ],
        "bytes a peer sends here": [_mean(cell.over_seeds("payload_bytes"), 0) for cell in results.cells],
        "paper: tail %": [_paper(cell, "tail", "tail_std") for cell in results.cells],
        "paper: perplexity": [_paper(cell, "perplexity") for cell in results.cells],
        "paper: peak %": [_paper(cell, "peak") for cell in results.cells],
        "paper: spread": [_paper(cell, "spread") for cell in results.cells],
        "paper: MB": [_paper(cell, "payload_mb") for cell in results.cells],
    }
    kept = {name: column for name, column in columns.items() if any(column)}
    rows = [[text or "–" for text in row] for row in zip(*kept.values(), strict=True)]
    return Table(list(kept), rows)


def conditions(results: Results) -> str:
    """How the runs were made, in a sentence or two: sizes, seeds, time."""
    federations = [cell.federation for cell in results.cells]
    seeds = sorted({run.federation.seed for cell in results.cells for run in cell.runs})
    seconds = [run.seconds for cell in results.cells for run in cell.runs]
    parts = [
        f"Data {_several(_source(federation.data) for federation in federations)}",
        f"probes {_several(_source(federation.probes) for federation in federations)}",
        f"model {_several(federation.model for federation in federations)}",
        f"{_several(federation.nodes for federation in federations)} peers",
        f"{_several(federation.rounds for federation in federations)} rounds",
        f"{_several(federation.local_steps for federation in federations)} local steps a round",
        f"tail of the last {_several(federation.tail for federation in federations)} rounds",
        f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}",
    ]
    took = f"{_time(statistics.median(seconds))} (median of {len(seconds)}), {_time(sum(seconds))} in all"
    text = f"{', '.join(parts)}. A run took {took}."
    tested = {federation.test_count for federation in federations}
    if tested != {None}:
        text += f" Evaluated on the first {_several(tested)} test examples."
    if any(cell.paper for cell in results.cells) and results.name.endswith("-small"):
        text += " The paper's numbers are of the full size, for the order of the rows and not for their height."
    uneven = [f"{cell.name} {len(cell.runs)} of {len(seeds)}" for cell in results.cells if len(cell.runs) < len(seeds)]
    if uneven:
        text += f" Not every seed has finished: {', '.join(uneven)}."
    if results.missing:
        text += f" No finished run: {', '.join(results.missing)}."
    return text


def _measured(value: Measured | None, digits: int) -> str:
    if value is None:
        return ""
    mean = f"{value.mean:,.{digits}f}"
    return mean if value.std is None else f"{mean} ± {value.std:,.{digits}f}"


def _mean(value: Measured | None, digits: int) -> str:
    return "" if value is None else f"{value.mean:,.{digits}f}"


def _paper(cell: CellResults, key: str, std: str = "") -> str:
    if key not in cell.paper:
        return ""
    text = f"{cell.paper[key]:,}"
    return f"{text} ± {cell.paper[std]:.2f}" if std in cell.paper else text


def _source(spec: str) -> str:
    """A source of data without the folders that its file happens to be in."""
    kind, colon, rest = spec.partition(":")
    return kind + colon + rest.rpartition("/")[2]


def _several(values: Iterable[object]) -> str:
    return " / ".join(dict.fromkeys(str(value) for value in values))


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
