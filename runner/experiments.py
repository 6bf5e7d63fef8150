"""Experiment files: a title, an accounting, what all cells share, and the cells. Presets are such files.

title = "..."             accounting = "star" or "mesh": how the paper counts a merge
[facts]                   classes, parameters, votes_per_round: for the byte formulas, without loading anything
[base]                    options of every cell
[[cells]]                 name = "tally+fa200", options of its own, paper = { tail = 71.92, ... }
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError

PRESETS = Path(__file__).parent / "presets"

Accounting = Literal["star", "mesh"]


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


def load_experiment(spec: str) -> Experiment:
    """A preset by name, or an experiment file by path."""
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
    return _experiment(path, values)


def _experiment(path: Path, values: dict[str, Any]) -> Experiment:
    _known(values, {"title", "accounting", "facts", "base", "cells"}, str(path))
    accounting = values.get("accounting", "star")
    if accounting not in get_args(Accounting):
        raise ConfigError(f"{path}: accounting {accounting!r}: accepted is star or mesh")
    shared = values.get("facts", {})
    cells = []
    for number, cell in enumerate(values.get("cells", []), 1):
        where = f"{path}: cell {cell.get('name', number)}"
        options = {key.replace("-", "_"): value for key, value in {**values.get("base", {}), **cell}.items()}
        name = str(options.pop("name", number))
        paper = options.pop("paper", {})
        facts = {**shared, **options.pop("facts", {})}
        _known(facts, set(Facts.__dataclass_fields__), where + ", facts")
        missing = {"classes", "parameters"} - facts.keys()
        if missing:
            raise ConfigError(f"{where}: facts lack {sorted(missing)[0]!r}")
        federation = Federation.parse(options, source=where)
        cells.append(Cell(name, federation, Facts(**facts), accounting, paper))
    if not cells:
        raise ConfigError(f"{path}: has no [[cells]]")
    return Experiment(path.stem, values.get("title", path.stem), cells)


def _known(values: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; known keys: {', '.join(sorted(known))}")
