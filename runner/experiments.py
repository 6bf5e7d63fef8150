"""Experiment files: a title, an accounting, what all cells share, and the cells. Presets are such files.

title = "..."             accounting = "star" or "mesh": how the paper counts a merge
full = "bridge"           of a small twin: the experiment whose cells carry the paper's numbers
[facts]                   classes, parameters, votes_per_round: for the byte formulas, without loading anything
[base]                    options of every cell
[[cells]]                 name = "tally+fa200", options of its own, paper = { tail = 71.92, ... }; in a small
                          twin twin = "tally+fa200" where the full cell has another name
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError

PRESETS = Path(__file__).parent / "presets"

Accounting = Literal["star", "mesh"]

# What a table can show of the paper beside a run.
PAPER_KEYS = {"tail", "tail_std", "peak", "spread", "perplexity", "payload_mb"}

# Options that the [facts] of a file speak of: a sweep that sets one of them makes the byte formulas void.
FACT_OPTIONS = {"model", "width", "depth", "vocabulary", "context"}

# A cell's name is the name of its folder too.
CELL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_=-]*")


@dataclass(frozen=True)
class Facts:
    """What the byte formulas need to know of a cell's data and model."""

    classes: int
    parameters: int
    votes_per_round: int | None = None  # where a probe is not an example: positions of all sequences


@dataclass(frozen=True)
class Cell:
    """One federation of an experiment, as its table names it."""

    name: str
    federation: Federation
    facts: Facts
    accounting: Accounting
    paper: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    cells: list[Cell]


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load_experiment(spec: str, changes: Mapping[str, Any] | None = None) -> Experiment:
    """A preset by name, or an experiment file by path; `changes` are options that win over those of every cell."""
    path = PRESETS / f"{spec}.toml"
    if "/" in spec or spec.endswith(".toml"):
        path = Path(spec)
    elif spec not in preset_names():
        raise ConfigError(f"preset {spec}: accepted is one of {', '.join(preset_names())}, or a .toml file")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from None
    return _experiment(path, values, changes or {})


def _experiment(path: Path, values: dict[str, Any], changes: Mapping[str, Any]) -> Experiment:
    _known(values, {"title", "full", "accounting", "facts", "base", "cells"}, str(path))
    accounting = values.get("accounting", "star")
    if accounting not in get_args(Accounting):
        raise ConfigError(f"{path}: accounting {accounting!r}: accepted is star or mesh")
    tables = values.get("cells", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{path}: cells: accepted are tables, each headed [[cells]]")
    shared, base = _table(values, "facts", str(path)), _table(values, "base", str(path))
    papers = _papers(path, values["full"]) if "full" in values else None
    cells: list[Cell] = []
    for number, table in enumerate(tables, 1):
        where = f"{path}: cell {table.get('name', number)}"
        options = {key.replace("-", "_"): value for key, value in {**base, **table}.items()}
        name = str(options.pop("name", number))
        if not CELL_NAME.fullmatch(name) or any(cell.name == name for cell in cells):
            raise ConfigError(
                f"{where}: name {name!r}: accepted is a name of its own, of letters, digits and . + _ = -"
            )
        paper = _table(options, "paper", where)
        twin = options.pop("twin", name)
        if papers is not None:
            if twin not in papers:
                raise ConfigError(
                    f"{where}: twin {twin!r}: accepted is a cell of {values['full']}: {', '.join(papers)}"
                )
            paper = {**papers[twin], **paper}
        _known(paper, PAPER_KEYS, where + ", paper")
        facts = {**shared, **_table(options, "facts", where)}
        options.pop("paper", None)
        options.pop("facts", None)
        _known(facts, set(Facts.__dataclass_fields__), where + ", facts")
        missing = {"classes", "parameters"} - facts.keys()
        if missing:
            raise ConfigError(f"{where}: facts lack {sorted(missing)[0]!r}")
        Federation.parse(options, source=where)  # so that a bad key is blamed on the file, not on the changes
        federation = Federation.parse({**options, **changes}, source=f"{where}, as changed" if changes else where)
        cells.append(Cell(name, federation, Facts(**facts), accounting, paper))
    if not cells:
        raise ConfigError(f"{path}: has no [[cells]]")
    return Experiment(path.stem, str(values.get("title", path.stem)), cells)


def _papers(path: Path, full: str) -> dict[str, dict[str, float]]:
    """The paper's numbers of the full experiment, by cell: a preset, or a file beside this one."""
    beside = path.parent / f"{full}.toml"
    if not isinstance(full, str) or not beside.is_file() or beside == path:
        raise ConfigError(f"{path}: full {full!r}: accepted is the name of an experiment file beside this one")
    return {cell.name: cell.paper for cell in load_experiment(str(beside)).cells}


def _table(values: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    table = values.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: {key}: accepted is a table")
    return table


def _known(values: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; known keys: {', '.join(sorted(known))}")
