"""Experiment files: a title, an accounting, what all cells share, the cells, and what is claimed of them.

title = "..."             accounting = "star" or "mesh": how the paper counts a merge
question = "..."          what is asked, for a reader; prose = "..." what else a report should say of it
engine = "stacked"        which engine plays the cells; exact by default
full = "bridge"           of a small twin: the experiment that has the paper's numbers and the findings
[facts]                   classes, parameters, votes_per_round, features: for the byte formulas, without loading data
[base]                    options of every cell
[[cells]]                 name = "tally+fa200", options of its own, paper = { tail = 71.92, ... }; in a small
                          twin twin = "tally+fa200" where the full cell has another name
[[grids]]                 many cells in a few lines: see grids.py
[[findings]]              claim = "...", paper = "where, and its numbers", holds = "a.tail > b.tail": findings.py
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from p2p_tally.config import EngineName, Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.exchanges.code import Layout, count
from p2p_tally.runner.experiments.grids import expand
from p2p_tally.runner.report.findings import Finding, parse_finding

PRESETS = Path(__file__).parents[1] / "presets"

Accounting = Literal["star", "mesh"]

# What a table can show of the paper beside a run.
PAPER_KEYS = {"tail", "tail_std", "peak", "spread", "perplexity", "best_perplexity", "payload_mb"}

# Options that the [facts] of a file depend on: where a sweep sets one of them, the byte formulas do not apply.
FACT_OPTIONS = {"model", "width", "depth", "vocabulary", "context"}

# A cell's name is the name of its folder too.
CELL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_=-]*")

KEYS = {"title", "question", "prose", "engine", "full", "accounting", "facts", "base", "cells", "grids", "findings"}


@dataclass(frozen=True)
class ByteFacts:
    """What the byte formulas need to know of a cell's data and model."""

    classes: int
    parameters: int
    votes_per_round: int | None = None  # where a probe is not an example: positions of all sequences
    features: int = 0  # of the model, where the method sends them
    layout: Layout = ()  # the shapes of its tensors, where the method sends them in a code


@dataclass(frozen=True)
class Cell:
    """One federation of an experiment, as its table names it."""

    name: str
    federation: Federation
    facts: ByteFacts
    accounting: Accounting
    paper: dict[str, float] = field(default_factory=dict)
    twin: str = ""  # its name in the full experiment


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    cells: list[Cell]
    findings: list[Finding] = field(default_factory=list)
    question: str = ""
    prose: str = ""
    engine: EngineName = "exact"


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load_experiment(spec: str, changes: Mapping[str, Any] | None = None) -> Experiment:
    """A preset by name, or an experiment file by path; `changes` are options that win over those of every cell."""
    path = PRESETS / f"{spec}.toml"
    if "/" in spec or spec.endswith(".toml"):
        path = Path(spec)
    elif spec not in preset_names():
        raise ConfigError(f"preset {spec}: accepted is one of {', '.join(preset_names())}, or a .toml file")
    return _experiment(path, _read(path), changes or {})


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from None


def _experiment(path: Path, values: dict[str, Any], changes: Mapping[str, Any]) -> Experiment:
    _known(values, KEYS, str(path))
    engine = values.get("engine", "exact")
    if engine not in get_args(EngineName):
        raise ConfigError(f"{path}: engine {engine!r}: accepted is exact, stacked or auto")
    texts = {key: values.get(key, "") for key in ("title", "question", "prose")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise ConfigError(f"{path}: {key}: accepted is a text")
    full = _full(path, values["full"]) if "full" in values else None
    cells = _cells(path, values, full, changes)
    return Experiment(
        name=path.stem,
        title=texts["title"] or path.stem,
        cells=cells,
        findings=_findings(path, values, cells, full),
        question=texts["question"] or (full.question if full else ""),
        prose=texts["prose"],
        engine=engine,
    )


def _cells(path: Path, values: dict[str, Any], full: Experiment | None, changes: Mapping[str, Any]) -> list[Cell]:
    accounting = values.get("accounting", "star")
    if accounting not in get_args(Accounting):
        raise ConfigError(f"{path}: accounting {accounting!r}: accepted is star or mesh")
    tables = _tables(values, "cells", path)
    for number, grid in enumerate(_tables(values, "grids", path), 1):
        tables += expand(grid, f"{path}: grid {number}")
    shared, base = _table(values, "facts", str(path)), _table(values, "base", str(path))
    papers = {cell.name: cell.paper for cell in full.cells} if full else None
    cells: dict[str, Cell] = {}
    for number, table in enumerate(tables, 1):
        where = f"{path}: cell {table.get('name', number)}"
        options = {key.replace("-", "_"): value for key, value in {**base, **table}.items()}
        name = str(options.pop("name", number))
        if not CELL_NAME.fullmatch(name) or name in cells:
            raise ConfigError(
                f"{where}: name {name!r}: accepted is a name of its own, of letters, digits and . + _ = -"
            )
        paper = _table(options, "paper", where)
        twin = options.pop("twin", name)
        if papers is not None:
            if not isinstance(twin, str) or twin not in papers:
                raise ConfigError(
                    f"{where}: twin {twin!r}: accepted is a cell of {values['full']}: {', '.join(papers)}"
                )
            paper = {**papers[twin], **paper}
        _known(paper, PAPER_KEYS, where + ", paper")
        _numbers(paper, where + ", paper", "a number", lambda value: isinstance(value, int | float))
        facts = {**shared, **_table(options, "facts", where)}
        options.pop("paper", None)
        options.pop("facts", None)
        _known(facts, set(ByteFacts.__dataclass_fields__), where + ", facts")
        layout = _layout(facts.pop("layout", []), where)
        _numbers(facts, where + ", facts", "a whole number from 1", lambda value: type(value) is int and value > 0)
        if layout and sum(map(count, layout)) != facts.get("parameters"):
            raise ConfigError(f"{where}, facts: layout: accepted are shapes of as many values as 'parameters' says")
        missing = {"classes", "parameters"} - facts.keys()
        if missing:
            raise ConfigError(f"{where}: facts lack {sorted(missing)[0]!r}")
        Federation.parse(options, source=where)  # a bad key is then reported as the file's, not as the changes'
        federation = Federation.parse({**options, **changes}, source=f"{where}, as changed" if changes else where)
        cells[name] = Cell(name, federation, ByteFacts(**facts, layout=layout), accounting, paper, twin)
    if not cells:
        raise ConfigError(f"{path}: has no [[cells]]")
    return list(cells.values())


def _layout(value: Any, where: str) -> Layout:
    """Shapes of tensors, as lists of lists."""
    shapes = value if isinstance(value, list) and all(isinstance(shape, list) and shape for shape in value) else [[""]]
    if any(type(width) is not int or width < 1 for shape in shapes for width in shape):
        raise ConfigError(f"{where}, facts: layout {value!r}: accepted are the shapes of tensors: [[64, 64], [64]]")
    return tuple(tuple(shape) for shape in shapes)


def _findings(path: Path, values: dict[str, Any], cells: list[Cell], full: Experiment | None) -> list[Finding]:
    """Those of the full experiment, in the names of this one, and its own; a claim made anew replaces the full's."""
    found = []
    own = [
        parse_finding(table, [cell.name for cell in cells], f"{path}: finding {number}")
        for number, table in enumerate(_tables(values, "findings", path), 1)
    ]
    anew = {finding.claim for finding in own}
    if full is not None:
        names = {cell.twin: cell.name for cell in cells}
        full_names = [cell.name for cell in full.cells]
        asked = [finding for finding in full.findings if finding.cells <= names.keys() and finding.claim not in anew]
        where = f"{path}: findings of {full.name}"
        found += [parse_finding(finding.as_json(), full_names, where, names) for finding in asked]
    return found + own


def _full(path: Path, full: str) -> Experiment:
    """The full experiment of a small twin: a file beside it."""
    beside = path.parent / f"{full}.toml"
    if not isinstance(full, str) or not beside.is_file() or "full" in _read(beside):
        raise ConfigError(
            f"{path}: full {full!r}: accepted is the name of an experiment file beside this one that is no twin itself"
        )
    return load_experiment(str(beside))


def _tables(values: dict[str, Any], key: str, path: Path) -> list[dict[str, Any]]:
    tables = values.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{path}: {key}: accepted are tables, each headed [[{key}]]")
    return list(tables)


def _table(values: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    table = values.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: {key}: accepted is a table")
    return table


def _numbers(values: dict[str, Any], where: str, accepted: str, fits: Callable[[Any], bool]) -> None:
    for key, value in values.items():
        if isinstance(value, bool) or not fits(value):
            raise ConfigError(f"{where}: {key} {value!r}: accepted is {accepted}")


def _known(values: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; known keys: {', '.join(sorted(known))}")
