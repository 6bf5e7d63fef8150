"""Many cells in a few lines of an experiment file: every combination of a grid's axes.

[[grids]]
name = "{graph}-n{nodes}-{way}"                # what each cell is called: an axis in braces is its choice's name
leave_out = ["mesh-*-far"]                     # patterns of cells that would repeat another, or are not asked for
rounds = 300                                   # a plain value: an option of every cell
nodes = [8, 16]                                # a list: an axis, whose choices are the option's values
[grids.graph]                                  # a table: an axis of named choices, each a set of options
ring = { topology = "ring" }
mesh = { topology = "mesh" }
"""

import itertools
import string
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from p2p_tally.errors import ConfigError

# Tables of a cell that are no axes.
PLAIN_TABLES = {"facts", "paper"}


def expand(grid: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """The tables of a grid's cells, as if they had been written one by one."""
    grid = dict(grid)
    template, leave_out = grid.pop("name", None), grid.pop("leave_out", [])
    if not isinstance(template, str):
        raise ConfigError(f"{where}: name: accepted is a text with the axes in braces, such as '{{graph}}-n{{nodes}}'")
    if not isinstance(leave_out, list) or not all(isinstance(pattern, str) for pattern in leave_out):
        raise ConfigError(f"{where}: leave_out: accepted is a list of patterns such as 'mesh-*'")
    axes = {key: list(_choices(key, value, where)) for key, value in grid.items() if _is_axis(key, value)}
    plain = {key: value for key, value in grid.items() if key not in axes}
    named = _fields(template, where)
    for axis in named | axes.keys():
        if axis not in axes or axis not in named:
            known = ", ".join(axes) or "none"
            raise ConfigError(f"{where}: name {template!r}: accepted is each axis once in braces; the axes: {known}")
    cells = []
    unused = set(leave_out)
    for choices in itertools.product(*axes.values()):
        name = template.format_map({axis: label for axis, (label, _) in zip(axes, choices, strict=True)})
        out = {pattern for pattern in leave_out if fnmatchcase(name, pattern)}
        unused -= out
        if not out:
            cell: dict[str, Any] = {**plain, "name": name}
            for _, options in choices:
                cell |= options
            cells.append(cell)
    if unused:
        raise ConfigError(f"{where}: leave_out {sorted(unused)[0]!r}: fits no cell of the grid")
    return cells


def _is_axis(key: str, value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and key not in PLAIN_TABLES)


def _choices(key: str, value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each choice of an axis: its name, and the options it sets."""
    if not value:
        raise ConfigError(f"{where}: {key}: accepted is at least one choice")
    if isinstance(value, list):
        for one in value:
            yield str(one), {key: one}
        return
    for label, options in value.items():
        if not isinstance(options, dict):
            raise ConfigError(f"{where}: {key}, {label}: accepted is a table of options")
        yield label, options


def _fields(template: str, where: str) -> set[str]:
    try:
        return {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}
    except ValueError as error:
        raise ConfigError(f"{where}: name {template!r}: {error}") from None
