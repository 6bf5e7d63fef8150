"""Results as tables: the cells in the paper's form, how the runs were made, and the findings. Reads no files."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from p2p_tally.runner.report.document import Table
from p2p_tally.runner.report.results import CellResults, Measured, Results
from p2p_tally.runner.report.verdicts import MORE_SEEDS, MOST_SEEDS, OUTCOMES, Judged, Outcome, Verdict

LISTED = 7  # names of cells, or numbers of probes in a round, that a report lists one by one
MARKS: dict[Outcome, str] = {
    "holds": "**holds**",
    "does not hold": "**does not hold**",
    "undecided": "undecided",
    "not run": "not run",
}


def cell_table(results: Results) -> Table:
    """One row a cell. A column that no cell has anything for is left out."""
    cells = results.cells
    columns = {
        "cell": [f"`{cell.name}`" for cell in cells],
        "tail accuracy %": [_measured(cell.metric("tail"), 2) for cell in cells],
        "on own distribution %": [_measured(cell.metric("own"), 2) for cell in cells],
        "of the smallest models": [_measured(cell.metric("tail_smallest"), 2) for cell in cells],
        "of the largest": [_measured(cell.metric("tail_largest"), 2) for cell in cells],
        "tail perplexity": [_measured(cell.metric("perplexity"), 1) for cell in cells],
        "peak accuracy %": [_measured(cell.metric("peak"), 2) for cell in cells],
        "spread between peers": [_mean(cell.metric("spread"), 2) for cell in cells],
        "bytes a peer, paper's accounting": [
            "" if cell.payload_bytes is None else f"{cell.payload_bytes:,}" for cell in cells
        ],
        "sent here: payload": [_mean(cell.metric("payload"), 0) for cell in cells],
        "framed": [_mean(cell.metric("framed"), 0) for cell in cells],
        "wire": [_mean(cell.metric("wire"), 0) or "–" for cell in cells],
        "hours over the links": [_mean(cell.metric("hours"), 3) for cell in cells],
        "idle %": [_mean(cell.metric("idle"), 0) for cell in cells],
        "time a run": [_time(statistics.fmean(run.seconds for run in cell.runs)) for cell in cells],
        "paper: tail %": [_paper(cell, "tail", "tail_std") for cell in cells],
        "paper: perplexity": [_paper(cell, "perplexity") for cell in cells],
        "paper: peak %": [_paper(cell, "peak") for cell in cells],
        "paper: spread": [_paper(cell, "spread") for cell in cells],
        "paper: MB": [_paper(cell, "payload_mb") for cell in cells],
    }
    kept = {name: column for name, column in columns.items() if any(column)}
    return Table(list(kept), [[text or "–" for text in row] for row in zip(*kept.values(), strict=True)])


def provenance_table(results: Results) -> Table:
    """How the runs were made. A row that the runs of an earlier version did not record is left out."""
    rows = [[f"**{name}**", text] for name, text in _provenance(results).items() if text]
    return Table(["", ""], rows, words=True)


def _provenance(results: Results) -> dict[str, str]:
    cells = results.cells
    federations = [cell.federation for cell in cells]
    runs = [run for cell in cells for run in cell.runs]
    seconds = [run.seconds for run in runs]
    origins = [run.provenance for run in runs]
    dates = sorted(origin.date for origin in origins if origin.date)
    sizes = _several(f"{size:,}" for size in sorted({size for cell in cells for size in _sizes(cell)}))
    return {
        "data": _several(_source(str(one.data)) for one in federations),
        "private examples": _several(f"{origin.private:,}" for origin in origins if origin.private),
        "split": _several(one.partition for one in federations),
        "probes": _probes(cells),
        "tested on": _several(_tested(cell) for cell in cells),
        "model": _several(one.model for one in federations) + (f", {sizes} parameters" if sizes else ""),
        "peers": f"{_several(one.nodes for one in federations)}, {_several(_graph(cell) for cell in cells)}",
        "rounds": f"{_several(one.rounds for one in federations)} of "
        f"{_several(one.local_steps for one in federations)} local steps, "
        f"tail of the last {_several(one.tail for one in federations)}",
        "seeds": ", ".join(map(str, sorted({run.federation.seed for run in runs}))),
        "runs": f"{len(runs)}: {_time(statistics.median(seconds))} in the median, {_time(sum(seconds))} in all; "
        + _several([dates[0][:10], dates[-1][:10]]).replace(" / ", " to "),
        "engine": _several(f"{origin.engine} on {origin.device}" for origin in origins if origin.engine),
        "machine": _several(f"{origin.cpu}, {origin.cores} cores" for origin in origins if origin.cpu),
        "versions": _several(_versions(origin.versions) for origin in origins if origin.versions),
    }


def remarks(results: Results) -> list[str]:
    """What a reader must know before comparing."""
    found = list(results.notes)
    found += _overridden(results)
    unknown = [name for name, text in _provenance(results).items() if not text]
    if unknown:
        found.append(f"Made by a version that did not record: {', '.join(unknown)}.")
    if any(cell.paper for cell in results.cells) and results.name.endswith("-small"):
        found.append("The paper's numbers are of the full size: for the order of the rows, not for their height.")
    seeds = {run.federation.seed for cell in results.cells for run in cell.runs}
    fewer: dict[int, list[str]] = {}
    for cell in results.cells:
        if len(cell.runs) < len(seeds):
            fewer.setdefault(len(cell.runs), []).append(cell.name)
    if fewer:
        uneven = [f"{_names(names)}: {count} of {len(seeds)}" for count, names in sorted(fewer.items())]
        found.append(f"Not every seed has finished. {'; '.join(uneven)}.")
    if results.missing:
        found.append(f"No finished run: {_names(results.missing)}.")
    return found


def _names(names: Sequence[str]) -> str:
    """Of many names how many begin alike, up to the second hyphen."""
    if len(names) <= LISTED:
        return ", ".join(f"`{name}`" for name in names)
    alike = Counter("-".join(name.split("-")[:2]) for name in names)
    return ", ".join(f"`{start}-*` ({count})" for start, count in alike.items())


def _overridden(results: Results) -> list[str]:
    """What --set changed: one sentence for each set of changes, with the cells where these are not all."""
    cells: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, changes in results.overrides.items():
        cells.setdefault(tuple((key, str(value)) for key, value in changes.items()), []).append(name)
    total = len(results.cells) + len(results.missing)
    return [
        f"Changed by `--set`{'' if len(names) == total else ' in ' + ', '.join(f'`{name}`' for name in names)}: "
        + ", ".join(f"`{key}={value}`" for key, value in changes)
        + "."
        for changes, names in cells.items()
    ]


def findings_table(verdicts: Sequence[Verdict]) -> Table:
    rows = []
    for verdict in verdicts:
        here = "\n".join(_side_by_side(one, margin=True) for one in verdict.judged)
        if verdict.missing:
            here = f"missing: {', '.join(verdict.missing)}"
        paper = "; ".join(_side_by_side(one, margin=False) for one in verdict.paper)
        rows.append(
            [
                f"{verdict.finding.claim} `{verdict.finding.holds}`",
                MARKS[verdict.outcome] + _caution(verdict) + _wanted(verdict),
                here,
                f"{verdict.finding.paper}{': ' + paper if paper else ''}",
            ]
        )
    return Table(["finding, and its check", "verdict", "here", "in the paper"], rows, words=True)


def summary_table(judged: Sequence[tuple[Results, Sequence[Verdict]]]) -> Table:
    """`undecided` counts all that are; how many of them not even ten seeds would decide stands beside it."""
    rows = []
    for results, verdicts in judged:
        seeds = len({run.federation.seed for cell in results.cells for run in cell.runs})
        rows.append([f"`{results.name}`", str(seeds), *_counts(verdicts)])
    if len(rows) > 1:
        rows.append(["all", "", *_counts([verdict for _, verdicts in judged for verdict in verdicts])])
    beyond = f"of these, beyond {MOST_SEEDS} seeds"
    return Table(["experiment", "seeds", "findings that hold", "do not hold", "undecided", beyond, "not run"], rows)


def _counts(verdicts: Sequence[Verdict]) -> list[str]:
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    beyond = sum(verdict.seeds_wanted == MORE_SEEDS for verdict in verdicts)
    held, failed, undecided, not_run = (str(outcomes[outcome]) for outcome in OUTCOMES)
    return [held, failed, undecided, str(beyond), not_run]


def _wanted(verdict: Verdict) -> str:
    """What it would take to decide an undecided finding, where that can be said."""
    wanted = verdict.seeds_wanted
    if wanted is None:
        return ""
    if wanted == MORE_SEEDS:
        return f": would need more than {MOST_SEEDS} seeds"
    return f": would need about {wanted} seeds"


def _caution(verdict: Verdict) -> str:
    """A decided verdict that rests on one seed says so, unless it is of bytes alone."""
    uncertain = any(one.noise for one in verdict.judged)
    return ", on one seed" if uncertain and len(verdict.seeds) == 1 and verdict.outcome != "undecided" else ""


def _side_by_side(one: Judged, margin: bool) -> str:
    text = f"{_number(one.left)} against {_number(one.right)}"
    if not margin:
        return text
    noise = "noise unknown" if one.noise is None else f"± {_number(one.noise)}" if one.noise else "counted"
    return f"{text}: {'+' if one.margin >= 0 else '−'}{_number(abs(one.margin))} ({noise})"


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"


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


def _sizes(cell: CellResults) -> set[int]:
    """Parameters of the peers' models: as the runs recorded it, else as the experiment's file says."""
    recorded: set[int] = set()
    for size in (run.provenance.parameters for run in cell.runs):
        recorded.update(size if isinstance(size, list) else [] if size is None else [size])
    return recorded or ({cell.parameters} if cell.parameters is not None else set())


def _probes(cells: Sequence[CellResults]) -> str:
    """Each pool with the probes in a round; of many numbers the smallest and the largest."""
    rounds = {cell.federation.probes_per_round for cell in cells}
    if len(rounds) > LISTED:
        return f"{_several(_pool(cell) for cell in cells)}, {min(rounds)} to {max(rounds)} a round"
    return _several(f"{_pool(cell)}, {cell.federation.probes_per_round} a round" for cell in cells)


def _pool(cell: CellResults) -> str:
    federation = cell.federation
    count = cell.runs[0].provenance.probes or federation.probe_count
    source = "held out of the data" if federation.probes == "holdout" else f"from {_source(str(federation.probes))}"
    return f"{f'{count:,} ' if count else ''}{source}"


def _tested(cell: CellResults) -> str:
    count = cell.federation.test_count
    if count is not None:
        return f"the first {count:,} test examples"
    tested = cell.runs[0].provenance.test
    return f"all {tested:,} test examples" if tested else "all test examples"


def _graph(cell: CellResults) -> str:
    federation = cell.federation
    return federation.topology + (f" of degree {federation.degree}" if federation.degree else "")


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


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
