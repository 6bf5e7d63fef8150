"""What --help prints: the options that most runs need first, the others in named groups, and the accepted names.

The names come from the tables that the program itself uses. Nothing here loads torch, so --help stays quick.
"""

import ast
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

from typer.core import TyperCommand

from p2p_tally.option_types import METHOD_NAMES
from p2p_tally.options import Group


def table_keys(folder: str, table: str) -> list[str]:
    """The keys of a table in the modules of a folder of learning/, read as text: importing them loads torch."""
    keys: list[str] = []
    for path in sorted((Path(__file__).parent / "learning" / folder).glob("*.py")):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as found) if name == table:
                    keys += [str(ast.literal_eval(key)) for key in found.keys if key is not None]
    return sorted(keys)


def _graphs() -> Iterable[str]:
    from p2p_tally.topologies.graphs import NAMES

    return NAMES


ACCEPTED: dict[str, Callable[[], Iterable[str]]] = {
    "method": lambda: (*METHOD_NAMES, "package.module:ROW"),
    "topology": _graphs,
    "data": lambda: (*table_keys("data", "SOURCES"), "package.module:function"),
    "model": lambda: ("auto", *table_keys("models", "MODELS"), "package.module:function"),
}


def completer(name: str) -> Callable[[str], list[str]] | None:
    """What a shell offers after the option of this name."""
    names = ACCEPTED.get(name)
    if names is None:
        return None
    return lambda incomplete: [one for one in names() if one.startswith(incomplete)]


class GroupedCommand(TyperCommand):
    """A command whose help shows options by `rich_help_panel`: those of none first, then as Group orders them."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {group: [] for group in get_args(Group)}
        shown = set()
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or "", []).append(record)
                shown.add(parameter.name)
        _section(formatter, "Options", groups.pop(""))
        with formatter.section("Accepted names"):
            for name, names in ACCEPTED.items():
                if name in shown:
                    formatter.write(_named_list(f"--{name}", names(), formatter.width))
        for group, records in groups.items():
            _section(formatter, group, records)


def _named_list(name: str, items: Iterable[str], width: int) -> str:
    """As a formatter's own lists, but no item is broken at a hyphen."""
    indent = " " * 14
    return (
        textwrap.fill(
            ", ".join(items),
            width,
            initial_indent=f"  {name}".ljust(14),
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
        + "\n"
    )


class GraphCommand(TyperCommand):
    """A command on graphs, whose help lists them all."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        from p2p_tally.topologies.graphs import NAMES

        super().format_options(ctx, formatter)
        _section(formatter, "Graphs", list(NAMES.items()))


def _section(formatter: Any, title: str, records: list[tuple[str, str]]) -> None:
    if records:
        with formatter.section(title):
            formatter.write_dl(records)
