"""What an experiment claims, as data: a claim, where it is made, and a check of it in a tiny language of comparisons.

    'tally+fa200'.tail > max('fedavg-*'.tail, feddf.tail) and abs(tally.tail - fedmd.tail) < 0.5

A figure is CELL.METRIC, the cell in quotes where its name is no plain word, a pattern of cells inside min and max.
There are also numbers, + - * /, abs, min, max, < <= > >= and `and`. Python's parser reads the text, but it is never run
as Python. This module reads no files and writes no text: verdicts.py judges, report.py shows.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from p2p_tally.errors import ConfigError
from p2p_tally.runner.runs.time_axis import STEP

METRICS = (
    "tail",
    "peak",
    "spread",
    "perplexity",
    "best_perplexity",
    "payload",
    "framed",
    "wire",
    "tail_std",
    "own",  # tail accuracy on data distributed like each peer's own
    "tail_smallest",  # of the peers with the smallest models, and with the largest, where they differ
    "tail_largest",
    "hours",  # by the virtual clock of --link: of the whole run, the idle share in per cent, to an accuracy
    "idle",
    *(f"hours_to_{goal}" for goal in range(STEP, 100, STEP)),
)
FUNCTIONS: Mapping[str, Callable[..., float]] = {"abs": abs, "min": min, "max": max}
OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}
SIGNS: Mapping[type[ast.cmpop], tuple[str, int]] = {
    ast.Gt: (">", 1),
    ast.GtE: ("≥", 1),
    ast.Lt: ("<", -1),
    ast.LtE: ("≤", -1),
}
LONGEST = 1000  # characters
HIGHEST = 1e100  # a larger number is a typing error

Figure = tuple[str, str]  # a cell and a metric
Lookup = Callable[[str, str], float]


@dataclass(frozen=True)
class Comparison:
    """`left` SIGN `right`; its margin is positive where it holds."""

    left: ast.expr
    right: ast.expr
    sign: str
    direction: int

    def values(self, lookup: Lookup) -> tuple[float, float]:
        return value(self.left, lookup), value(self.right, lookup)

    def margin(self, lookup: Lookup) -> float:
        left, right = self.values(lookup)
        return self.direction * (left - right)

    def figures(self) -> set[Figure]:
        return {*figures(self.left), *figures(self.right)}

    def branch(self, lookup: Lookup) -> "Comparison":
        """The same without abs, min and max: each replaced by the argument that it selects for these figures."""
        return replace(self, left=_branch(self.left, lookup), right=_branch(self.right, lookup))


@dataclass(frozen=True)
class Finding:
    """One claim of a paper, or of an experiment's own."""

    claim: str
    paper: str  # where it is claimed, and its numbers
    holds: str  # the check as it is written
    comparisons: tuple[Comparison, ...]

    @property
    def cells(self) -> set[str]:
        return {cell for comparison in self.comparisons for cell, _ in comparison.figures()}

    def as_json(self) -> dict[str, str]:
        return {"claim": self.claim, "paper": self.paper, "holds": self.holds}


def parse_finding(table: Any, cells: Sequence[str], where: str, names: Mapping[str, str] | None = None) -> Finding:
    """A finding from its table, or a ConfigError that names the file and the key.

    `names`, of a twin, gives each cell the name it has there: the check is then written with those.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: accepted is a table, headed [[findings]]")
    unknown = sorted(set(table) - {"claim", "paper", "holds"})
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; known keys: claim, holds, paper")
    for key in ("claim", "paper", "holds"):
        if not isinstance(table.get(key), str) or not table[key].strip():
            raise ConfigError(f"{where}: {key}: accepted is a text")
    where = f"{where}, holds"
    names = names or {cell: cell for cell in cells}
    with _readable(table["holds"], where):
        tree = ast.parse(table["holds"].strip(), mode="eval").body
        comparisons = tuple(_comparisons(_Resolved(cells, where, names).visit(deepcopy(tree)), where))
        text = ast.unparse(_Resolved(cells, where, names, keep_patterns=True).visit(tree))
    return Finding(table["claim"], table["paper"], re.sub(r"'([^\W\d]\w*)'\.", r"\1.", text), comparisons)


def parse_expression(text: str, cells: Sequence[str], where: str) -> ast.expr:
    """One side of a comparison: a figure, or several with arithmetic. `value` works it out."""
    with _readable(text, where):
        tree: ast.expr = _Resolved(cells, where, {cell: cell for cell in cells}).visit(
            ast.parse(text.strip(), mode="eval").body
        )
        _check(tree, where)
    return tree


@contextmanager
def _readable(text: str, where: str) -> Iterator[None]:
    """What Python's parser refuses is a ConfigError."""
    if len(text) > LONGEST:
        raise ConfigError(f"{where}: accepted are at most {LONGEST} characters")
    try:
        yield
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{where}: {text!r} cannot be read: {error}") from None


def _comparisons(tree: ast.expr, where: str) -> Iterator[Comparison]:
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        for part in tree.values:
            yield from _comparisons(part, where)
    elif isinstance(tree, ast.Compare):
        sides = [tree.left, *tree.comparators]
        for side in sides:
            _check(side, where)
        for left, operator, right in zip(sides, tree.ops, sides[1:], strict=False):
            if type(operator) not in SIGNS:
                raise ConfigError(f"{where}: {ast.unparse(tree)!r}: accepted are the comparisons < <= > >=")
            yield Comparison(left, right, *SIGNS[type(operator)])
    else:
        raise ConfigError(f"{where}: {ast.unparse(tree)!r}: accepted are comparisons, joined by and")


def _check(tree: ast.expr, where: str) -> None:
    """Whether `value` knows what to do with it."""
    match tree:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and number < HIGHEST:
            parts: list[ast.expr] = []
        case ast.Attribute(value=ast.Constant(value=str())):
            parts = []
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            parts = [operand]
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
            parts = [left, right]
        case ast.Call(func=ast.Name(id="abs"), args=[argument], keywords=[]):
            parts = [argument]
        case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _, *_] as arguments, keywords=[]):
            parts = arguments
        case _:
            raise ConfigError(
                f"{where}: {ast.unparse(tree)!r}: accepted are CELL.METRIC, numbers, + - * /, abs of one, "
                "min and max of several"
            )
    for part in parts:
        _check(part, where)


def value(tree: ast.expr, lookup: Lookup) -> float:
    """The value of a checked expression; NaN where it divides by zero."""
    match tree:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Attribute(value=ast.Constant(value=str(cell)), attr=metric):
            return lookup(cell, metric)
        case ast.UnaryOp(operand=operand):
            return -value(operand, lookup)
        case ast.BinOp(left=left, op=operator, right=right):
            try:
                return OPERATORS[type(operator)](value(left, lookup), value(right, lookup))
            except ArithmeticError:
                return float("nan")
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return FUNCTIONS[name](*(value(argument, lookup) for argument in arguments))
    raise AssertionError(ast.dump(tree))


def _branch(tree: ast.expr, lookup: Lookup) -> ast.expr:
    match tree:
        case ast.Call(func=ast.Name(id="abs"), args=[argument]):
            inner = _branch(argument, lookup)
            return inner if value(inner, lookup) >= 0 else ast.UnaryOp(ast.USub(), inner)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            choose = min if name == "min" else max
            return choose((_branch(argument, lookup) for argument in arguments), key=lambda one: value(one, lookup))
        case ast.UnaryOp(op=operator, operand=operand):
            return ast.UnaryOp(operator, _branch(operand, lookup))
        case ast.BinOp(left=left, op=operator, right=right):
            return ast.BinOp(_branch(left, lookup), operator, _branch(right, lookup))
    return tree


def figures(tree: ast.expr) -> Iterator[Figure]:
    """The figures that an expression names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Constant):
            yield str(node.value.value), node.attr


class _Resolved(ast.NodeTransformer):
    """Replaces cells by their names here, and patterns by the cells that fit; an unknown cell is a ConfigError."""

    def __init__(self, cells: Sequence[str], where: str, names: Mapping[str, str], keep_patterns: bool = False) -> None:
        self.cells, self.where, self.names = cells, where, names
        self.keep_patterns = keep_patterns  # those that stand for the same cells under their new names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        spread: list[ast.expr] = []
        for argument in node.args:
            match argument:
                case ast.Attribute(value=ast.Constant(value=str(pattern)), attr=metric) if "*" in pattern:
                    found = [cell for cell in self.cells if fnmatchcase(cell, pattern)] or [pattern]
                    figures = [self._figure(cell, metric) for cell in found]
                    renamed = {self.names.get(cell) for cell in found}
                    same = renamed == {name for name in self.names.values() if fnmatchcase(name, pattern)}
                    spread += [argument] if same and self.keep_patterns else figures
                case _:
                    spread.append(self.visit(argument))
        return ast.Call(node.func, spread, node.keywords)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        match node.value:
            case ast.Constant(value=str(cell)) | ast.Name(id=cell):
                return self._figure(cell, node.attr)
        return self.generic_visit(node)

    def _figure(self, cell: str, metric: str) -> ast.Attribute:
        if cell not in self.cells:
            raise ConfigError(f"{self.where}: unknown cell {cell!r}; known cells: {', '.join(self.cells)}")
        if metric not in METRICS:
            raise ConfigError(f"{self.where}: unknown metric {metric!r} of {cell}; known: {', '.join(METRICS)}")
        return ast.Attribute(ast.Constant(self.names.get(cell, cell)), metric, ast.Load())
