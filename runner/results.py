"""Runs read back from their folders, grouped into the cells and experiments they belong to. No tables, no figures."""

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from p2p_tally.config import Federation, NodeSettings, parse_options, read_options
from p2p_tally.errors import DataError
from runner.folder import read_lines
from runner.record import Run, cell_name
from runner.sweep import MANIFEST


@dataclass(frozen=True)
class Measured:
    """A figure over seeds: its mean, and its standard deviation where there are several."""

    mean: float
    std: float | None = None


@dataclass
class CellResults:
    """One cell: its runs by seed, and what an experiment's file says of it."""

    name: str
    runs: list[Run]
    paper: dict[str, float] = field(default_factory=dict)
    payload_bytes: int | None = None  # by the paper's accounting
    classes: int | None = None

    @property
    def federation(self) -> Federation:
        return self.runs[0].federation

    def over_seeds(self, figure: str | Callable[[Run], float]) -> Measured | None:
        """A figure of the summary, or one worked out from a run."""
        values = [run.summary().get(figure) if isinstance(figure, str) else figure(run) for run in self.runs]
        known = [float(value) for value in values if value is not None and not math.isnan(value)]
        if not known:
            return None
        return Measured(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)


@dataclass
class Results:
    """The cells of one sweep, or runs that were made one by one."""

    name: str
    title: str
    cells: list[CellResults]
    missing: list[str] = field(default_factory=list)  # cells of the sweep without any finished run


def collect(paths: Sequence[Path]) -> list[Results]:
    """Every sweep under the paths, in order; then all other finished runs as one more."""
    found: list[Results] = []
    loose: list[Run] = []
    for path in paths:
        if not path.is_dir():
            raise DataError(f"{path}: no such folder; accepted are folders of runs or of sweeps")
        sweeps = sorted(manifest.parent for manifest in path.rglob(MANIFEST))
        runs = [
            folder
            for folder in sorted(summary.parent for summary in path.rglob("summary.json"))
            if not any(folder.is_relative_to(sweep) for sweep in sweeps)
        ]
        if not sweeps and not runs and (path.parent.parent / MANIFEST).is_file():
            raise DataError(f"{path}: not finished")
        if not sweeps and not runs:
            raise DataError(f"{path}: holds no finished run (no summary.json)")
        found += [_read_sweep(sweep) for sweep in sweeps]
        loose += [read_run(folder) for folder in runs]
    found = [results for results in found if results.cells]
    if loose:
        found.append(Results("runs", "Runs", list(_by_cell(loose))))
    if not found:
        raise DataError(f"{paths[0]}: no cell of the sweep has finished yet")
    return found


def read_run(folder: Path) -> Run:
    """A finished run, as it was when it ended."""
    federation, _ = parse_options(read_options(folder / "config.toml"), NodeSettings, source=str(folder))
    summary = _json(folder / "summary.json")
    lines = read_lines(folder / "rounds.jsonl")
    if not lines:
        raise DataError(f"{folder / 'rounds.jsonl'}: has no whole line")
    names = [f"node-{number}" for number in range(len(lines[0].accuracy))]
    return Run(federation, names, lines, summary["parameters_sha256"], summary["seconds"], folder)


def _read_sweep(folder: Path) -> Results:
    manifest = _json(folder / MANIFEST)
    results = Results(manifest["experiment"], manifest["title"], [])
    for cell in manifest["cells"]:
        summaries = (folder / cell["name"]).glob("seed-*/summary.json")
        runs = sorted((read_run(path.parent) for path in summaries), key=lambda run: run.federation.seed)
        if runs:
            results.cells.append(
                CellResults(cell["name"], runs, cell["paper"], cell["payload_bytes"], cell["facts"]["classes"])
            )
        else:
            results.missing.append(cell["name"])
    return results


def _by_cell(runs: list[Run]) -> Iterator[CellResults]:
    """Runs that differ in nothing but the seed are one cell; cells that a name does not tell apart are numbered."""
    cells: dict[str, list[Run]] = {}
    for run in runs:
        key = json.dumps(run.federation.model_dump(exclude={"seed"}, mode="json"), sort_keys=True)
        cells.setdefault(key, []).append(run)
    taken: dict[str, int] = {}
    for same in cells.values():
        name = cell_name(same[0].federation)
        taken[name] = taken.get(name, 0) + 1
        yield CellResults(name if taken[name] == 1 else f"{name} ({taken[name]})", same)


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise DataError(f"{path}: not a JSON object")
    return values
