"""Runs read back from their folders, grouped into the cells and experiments they belong to. No tables, no figures."""

import json
import math
import statistics
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from p2p_tally.config import Federation, NodeSettings, parse_options, read_options
from p2p_tally.errors import DataError
from p2p_tally.runner.experiments.experiment import load_experiment, preset_names
from p2p_tally.runner.experiments.sweep import MANIFEST
from p2p_tally.runner.report.findings import Finding, parse_finding
from p2p_tally.runner.report.node_records import NodeRecord, read_node_records, runs_of
from p2p_tally.runner.runs.folder import read_lines
from p2p_tally.runner.runs.provenance import read_provenance
from p2p_tally.runner.runs.run import Run, cell_name, predicts_tokens


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
    parameters: int | None = None  # of one peer's model, where a sweep's file says it

    @property
    def federation(self) -> Federation:
        return self.runs[0].federation

    @property
    def seeds(self) -> list[int]:
        return [run.federation.seed for run in self.runs]

    def of_seeds(self, seeds: Collection[int]) -> "CellResults":
        """The same cell with these seeds only."""
        return replace(self, runs=[run for run in self.runs if run.federation.seed in seeds])

    @property
    def tested(self) -> int | None:
        """Predictions that one evaluation of a peer rests on: test examples, of text the positions of all windows."""
        examples = self.runs[0].provenance.test or self.federation.test_count
        if examples is None:
            return None
        return examples * (self.federation.context if predicts_tokens(self.federation) else 1)

    @cached_property
    def _by_seed(self) -> dict[int, dict[str, float]]:
        return {run.federation.seed: _metrics(run) for run in self.runs}

    def metric(self, name: str, seed: int | None = None) -> Measured | None:
        """A figure over the seeds, or that of one; None where it is not known."""
        if name == "tail_std":
            tails = [metrics["tail"] for metrics in self._by_seed.values()]
            return Measured(statistics.stdev(tails)) if len(tails) > 1 else None
        values = [
            metrics[name]
            for own, metrics in self._by_seed.items()
            if (seed is None or own == seed) and not math.isnan(metrics.get(name, math.nan))
        ]
        if not values:
            return None
        return Measured(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)

    def standard_error(self, name: str) -> float | None:
        """The standard error of a figure by one seed: what another test set would change, not what another seed would.

        None where it is not known. An accuracy counts as a binomial of the test set's size: the tail is a mean over
        rounds and peers and varies no more than that. The standard deviation of a token's loss is taken to be its mean.
        """
        found = self.metric(name)
        if found is None:
            return None
        if name in ("payload", "framed", "wire", "idle") or name.startswith("hours"):
            return 0.0
        if name == "spread":
            return found.mean / math.sqrt(2 * max(1, self.federation.nodes - 1))
        if name == "tail_std":
            return found.mean / math.sqrt(2 * (len(self.runs) - 1))
        if self.tested is None:
            return None
        if name in ("perplexity", "best_perplexity"):
            return found.mean * math.log(max(found.mean, math.e)) / math.sqrt(self.tested)
        share = min(1.0, max(0.0, found.mean / 100))
        return 100 * math.sqrt(share * (1 - share) / self.tested)


def _metrics(run: Run) -> dict[str, float]:
    """The figures of one run that findings and tables use."""
    summary = run.summary()
    metrics = {
        "tail": summary["tail_accuracy"],
        "peak": summary["peak_accuracy"],
        "spread": summary["cross_peer_std"],
        "payload": float(summary["payload_bytes"]),
        "framed": float(summary["framed_bytes"]),
    }
    if "own_tail_accuracy" in summary:
        metrics["own"] = summary["own_tail_accuracy"]
    if run.wire_bytes is not None:
        metrics["wire"] = run.wire_bytes
    if "hours" in summary:
        metrics |= {"hours": summary["hours"], "idle": 100 * summary["idle_share"]}
        metrics |= {f"hours_to_{goal}": hours for goal, hours in summary["hours_to"].items()}
    if isinstance(run.provenance.parameters, list):
        # [n], [tail, n] of the honest ones
        sizes, tails = np.array(run.provenance.parameters)[: run.honest], run.accuracy[run.tail, : run.honest]
        metrics["tail_smallest"] = float(np.nanmean(tails[:, sizes == sizes.min()]))
        metrics["tail_largest"] = float(np.nanmean(tails[:, sizes == sizes.max()]))
    if "tail_perplexity" in summary:
        metrics["perplexity"] = summary["tail_perplexity"]
        with np.errstate(over="ignore"):
            metrics["best_perplexity"] = float(np.exp(np.nanmean(run.loss[:, : run.honest], 1).min()))
    return metrics


@dataclass(frozen=True)
class Results:
    """The cells of one sweep, or runs that were made one by one."""

    name: str
    title: str
    cells: list[CellResults]
    missing: list[str] = field(default_factory=list)  # cells of the sweep without any finished run
    findings: list[Finding] = field(default_factory=list)
    papers: dict[str, dict[str, float]] = field(default_factory=dict)  # by cell, also of those without a run
    question: str = ""
    prose: str = ""
    notes: list[str] = field(default_factory=list)
    overrides: dict[str, dict[str, str]] = field(default_factory=dict)  # by cell: what --set changed in it


def collect(paths: Sequence[Path]) -> list[Results]:
    """Every sweep under the paths, in order; then all other finished runs, and nodes started by hand, as one more."""
    found: list[Results] = []
    loose: list[Run] = []
    records: list[NodeRecord] = []
    for path in paths:
        if not path.is_dir():
            raise DataError(f"{path}: no such folder; accepted are folders of runs or of sweeps")
        sweeps = sorted(manifest.parent for manifest in path.rglob(MANIFEST))
        runs = [
            folder
            for folder in sorted(summary.parent for summary in path.rglob("summary.json"))
            if not any(folder.is_relative_to(sweep) for sweep in sweeps)
        ]
        nodes = read_node_records(path)
        if not sweeps and not runs and not nodes and (path.parent.parent / MANIFEST).is_file():
            raise DataError(f"{path}: not finished")
        if not sweeps and not runs and not nodes:
            raise DataError(f"{path}: holds no finished run (no summary.json) and no finished node (no NAME.jsonl)")
        found += [_read_sweep(sweep) for sweep in sweeps]
        loose += [read_run(folder) for folder in runs]
        records += nodes
    loose += runs_of(records)
    found = [results for results in found if results.cells]
    if loose:
        found.append(Results("runs", "Runs", list(_by_cell(loose))))
    if not found:
        raise DataError(f"{paths[0]}: no cell of the sweep has finished yet")
    return found


def read_run(folder: Path) -> Run:
    """A finished run, as it was when it ended."""
    federation, _ = parse_options(read_options(folder / "config.toml", "run"), NodeSettings, source=str(folder))
    with _reading(folder / "rounds.jsonl"):
        lines = read_lines(folder / "rounds.jsonl")
        if not lines:
            raise DataError(f"{folder / 'rounds.jsonl'}: has no whole line")
        names = [f"node-{number}" for number in range(len(lines[0].accuracy))]
    with _reading(folder / "summary.json"):
        summary = _json(folder / "summary.json")
        return Run(
            federation,
            names,
            lines,
            parameters_sha256=summary["parameters_sha256"],
            seconds=summary["seconds"],
            folder=folder,
            provenance=read_provenance(folder),
            wire_bytes=summary.get("wire_bytes"),
        )


def _read_sweep(folder: Path) -> Results:
    with _reading(folder / MANIFEST):
        return _sweep(folder, _json(folder / MANIFEST))


def _sweep(folder: Path, manifest: dict[str, Any]) -> Results:
    cells, missing = [], []
    for cell in manifest["cells"]:
        summaries = (folder / cell["name"]).glob("seed-*/summary.json")
        runs = sorted((read_run(path.parent) for path in summaries), key=lambda run: run.federation.seed)
        if runs:
            facts, sent = cell["facts"], cell["payload_bytes"]
            size = None if sent is None else facts["parameters"]  # void where the sweep changed the model
            cells.append(CellResults(cell["name"], runs, cell["paper"], sent, facts["classes"], size))
        else:
            missing.append(cell["name"])
    papers = {cell["name"]: cell["paper"] for cell in manifest["cells"]}
    return Results(
        manifest["experiment"],
        manifest["title"],
        cells,
        missing,
        notes=manifest.get("notes", []),
        overrides={cell["name"]: cell["set"] for cell in manifest["cells"] if cell.get("set")},
        **_question_and_findings(manifest, folder, papers),
    )


def _question_and_findings(
    manifest: dict[str, Any], folder: Path, papers: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """As the sweep recorded them; those of the preset for a sweep by an old version, which recorded none."""
    if "findings" in manifest:
        where = f"{folder / MANIFEST}: findings"
        cells = manifest.get("cell_names", list(papers))
        findings = [parse_finding(finding, cells, where) for finding in manifest["findings"]]
        return {
            "findings": findings,
            "papers": papers,
            "question": manifest["question"],
            "prose": manifest["prose"],
        }
    if manifest["experiment"] in preset_names():
        preset = load_experiment(manifest["experiment"])
        return {
            "findings": preset.findings,
            "papers": {cell.name: cell.paper for cell in preset.cells} | papers,
            "question": preset.question,
            "prose": preset.prose,
        }
    return {"papers": papers}


def _by_cell(runs: list[Run]) -> Iterator[CellResults]:
    """Runs that differ in nothing but the seed are one cell; cells of the same name are numbered."""
    cells: dict[tuple[str, bool], list[Run]] = {}
    for run in runs:
        key = json.dumps(run.federation.model_dump(exclude={"seed"}, mode="json"), sort_keys=True)
        cells.setdefault((key, run.provenance.engine == "launch"), []).append(run)
    taken: dict[str, int] = {}
    for same in cells.values():
        name = cell_name(same[0].federation)
        taken[name] = taken.get(name, 0) + 1
        yield CellResults(name if taken[name] == 1 else f"{name} ({taken[name]})", same)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn the errors of a file with other contents than expected into one clear line."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: not as p2p-tally writes it ({type(error).__name__}: {error})") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise DataError(f"{path}: not a JSON object")
    return values
