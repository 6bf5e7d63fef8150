"""The opening of a report: words that a person wrote, with figures that are worked out from the runs.

The file is Markdown of headings, paragraphs, bullets and tables, with a blank line between them. In it
{EXPERIMENT: EXPRESSION} stands for a figure, in the language of the findings' checks:

    Votes lift peers by {bridge: tally.tail - local.tail} points.

It is the mean over the seeds that all its cells have. Below 1,000 it has one decimal; a difference has its sign.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from p2p_tally.errors import ConfigError
from p2p_tally.runner.report.document import Block, Bullets, Heading, Table, Text
from p2p_tally.runner.report.findings import figures, parse_expression, value
from p2p_tally.runner.report.results import Results

FIGURE = re.compile(r"\{([^{}:]+):([^{}]+)\}")
HEADING = re.compile(r"(#{1,6}) +(.+)")
RULE = re.compile(r":?-+:?")
NOT_KNOWN = re.compile(r"```|~~~|>|<|!\[|\* |\d+\. |    ")  # how other Markdown begins
ACCEPTED = "accepted are headings, paragraphs, bullets with - and tables, with a blank line between them"


def read_opening(path: Path, found: Sequence[Results]) -> list[Block]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--opening {path}: {error.strerror}; accepted is a Markdown file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--opening {path}: is not text; accepted is a Markdown file") from None
    return list(_blocks(fill_in(text, found, f"--opening {path}"), f"--opening {path}"))


def fill_in(text: str, found: Sequence[Results], where: str) -> str:
    """The text with every {EXPERIMENT: EXPRESSION} replaced by its figure."""
    experiments = {results.name: results for results in found}

    def figure(match: re.Match[str]) -> str:
        name, expression = match[1].strip(), " ".join(match[2].split())
        place = f"{where}: {{{name}: {expression}}}"
        if name not in experiments:
            raise ConfigError(f"{place}: accepted is an experiment of this report: {', '.join(experiments)}")
        return _figure(expression, experiments[name], place)

    return FIGURE.sub(figure, text)


def _figure(expression: str, results: Results, where: str) -> str:
    cells = {cell.name: cell for cell in results.cells}
    tree = parse_expression(expression, list(cells), where)
    named = {cell for cell, _ in figures(tree)}
    seeds = set.intersection(*(set(cells[cell].seeds) for cell in named)) if named else set()

    def lookup(cell: str, metric: str) -> float:
        found = cells[cell].of_seeds(seeds).metric(metric) if seeds else None
        if found is None:
            raise ConfigError(f"{where}: the runs have no {metric} of {cell}")
        return found.mean

    number = value(tree, lookup)
    shown = f"{abs(number):,.1f}" if abs(number) < 1000 else f"{abs(number):,.0f}"
    if number < 0:
        return f"−{shown}"
    difference = isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Sub)
    return f"+{shown}" if difference else shown


def _blocks(text: str, where: str) -> Iterator[Block]:
    numbered = list(enumerate(text.splitlines(), 1))
    while numbered:
        if not numbered[0][1].strip():
            numbered.pop(0)
            continue
        first = numbered[0][0]
        lines: list[str] = []
        while numbered and numbered[0][1].strip():
            lines.append(numbered.pop(0)[1].rstrip())
        block = _block(lines)
        if block is None:
            raise ConfigError(f"{where}, line {first}: {ACCEPTED}")
        yield block


def _block(lines: list[str]) -> Block | None:
    """None: something else."""
    heading = HEADING.fullmatch(lines[0])
    if heading:
        return Heading(len(heading[1]), heading[2]) if len(lines) == 1 else None
    if lines[0].startswith("- "):
        return _bullets(lines)
    if lines[0].startswith("|"):
        return _table(lines)
    if any(NOT_KNOWN.match(line) or line.startswith(("#", "- ", "|")) for line in lines):
        return None
    return Text(" ".join(line.strip() for line in lines))


def _bullets(lines: list[str]) -> Bullets | None:
    items: list[str] = []
    for line in lines:
        if line.startswith("- "):
            items.append(line[2:].strip())
        elif line.startswith("  ") and not line.strip().startswith("- "):
            items[-1] += " " + line.strip()
        else:
            return None
    return Bullets(items)


def _table(lines: list[str]) -> Table | None:
    if not all(len(line) > 1 and line.startswith("|") and line.endswith("|") for line in lines):
        return None
    rows = [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line[1:-1])] for line in lines]
    if len(rows) < 2 or not all(map(RULE.fullmatch, rows[1])) or any(len(row) != len(rows[0]) for row in rows):
        return None
    return Table(rows[0], rows[2:], words=not any(rule.endswith(":") for rule in rows[1]))
