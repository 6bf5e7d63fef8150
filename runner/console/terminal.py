"""Tables on a terminal, none of whose figures is cut off."""

from rich.console import Console
from rich.table import Table

# Wider than any table: what a table is measured at.
UNBOUNDED = 10_000


def print_table(table: Table) -> None:
    """Print a table at its own width where that is more than the terminal's, or the 80 columns of a pipe."""
    console = Console()
    wanted = console.measure(table, options=console.options.update(max_width=UNBOUNDED)).maximum
    Console(width=max(console.width, wanted)).print(table)
