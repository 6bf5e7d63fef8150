"""Tables on a terminal. None of their figures is cut off, and none is wider than the screen."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table

# Wider than any table: what a pipe has room for.
UNBOUNDED = 10_000

# Names are shortened to this many characters at least before a table loses a column.
READABLE = 16
SHORTEST = 5

# What a terminal prints for Ctrl-C, at the end of what is shown. In a full line it would push a live picture one down.
ECHO = len("^C")


@dataclass(frozen=True)
class Column:
    title: str
    words: bool = False  # flush left, and shortened where there is no room; figures never are
    least_useful: int = 0  # above 0: may be left out, the largest first


def table_for(width: int, columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str | None = None) -> Table:
    """A table of at most this width: names are shortened in the middle, then the least useful columns left out."""
    kept = list(range(len(columns)))
    spare = sorted((place for place in kept if columns[place].least_useful), key=lambda p: columns[p].least_useful)
    while spare and _width(columns, rows, kept, READABLE) > width:
        kept.remove(spare.pop())
    longest = max((len(row[place]) for row in rows for place in kept if columns[place].words), default=0)
    while longest > SHORTEST and _width(columns, rows, kept, longest) > width:
        longest -= 1
    table = Table(title=title, title_justify="left")
    for place in kept:
        words = columns[place].words
        table.add_column(columns[place].title, justify="left" if words else "right", no_wrap=True)
    texts = [[row[place] for row in rows] for place in kept]
    cells = [shortened(text, longest) if columns[p].words else text for p, text in zip(kept, texts, strict=True)]
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    return table


def _width(columns: Sequence[Column], rows: Sequence[Sequence[str]], kept: Sequence[int], longest: int) -> int:
    """Of a table with these columns, its names at most so long. A cell has a space on both sides and a rule."""
    total = 1
    for place in kept:
        most = max((len(row[place]) for row in rows), default=0)
        if columns[place].words:
            most = min(most, longest)
        total += 3 + max(len(columns[place].title), most)
    return total


def shortened(texts: Sequence[str], longest: int) -> list[str]:
    """Texts of at most this length, their middle left out, where it tells most of them apart."""
    middle = longest // 2
    cuts = sorted(range(1, longest), key=lambda head: abs(head - middle))
    tried = [[_cut(text, head, longest) for text in texts] for head in cuts]
    return max(tried, key=lambda short: len(set(short)), default=list(texts))


def _cut(text: str, head: int, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:head]}…{text[len(text) - (longest - 1 - head) :]}"


def print_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Print a table that fits the terminal; into a pipe or a file, all of it."""
    console = Console()
    if console.is_terminal:
        console.print(table_for(console.width, columns, rows, title))
    else:
        print_table(table_for(UNBOUNDED, columns, rows, title))


def print_table(table: Table) -> None:
    """Print a table at its own width where that is more than the terminal's, or the 80 columns of a pipe."""
    console = Console()
    wanted = console.measure(table, options=console.options.update(max_width=UNBOUNDED)).maximum
    Console(width=max(console.width, wanted)).print(table)


class WithRoom:
    """What is drawn again and again, with room for the echo of Ctrl-C."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.update(width=max(1, options.max_width - ECHO))
        yield from console.render(self._inner, narrow)
