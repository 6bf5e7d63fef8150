"""How a long run shows itself on stderr: a live bar on a terminal, a line now and then anywhere else."""

import math
import statistics
from types import TracebackType
from typing import Self

import rich.progress
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from p2p_tally.runner.console.terminal import WithRoom
from p2p_tally.runner.runs.run import RoundLine

# Lines that a run of any length writes where there is no terminal.
PLAIN_LINES = 10


class Bar(rich.progress.Progress):
    def get_renderable(self) -> RenderableType:
        return WithRoom(super().get_renderable())


class Progress:
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self._console = Console(stderr=True)
        self._live = self._console.is_terminal
        self._next_line = 0.0
        self._bar = Bar(
            TextColumn("round"),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),  # where there is little room, the bar gives way
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
            console=self._console,
            disable=not self._live,
        )
        self._task = self._bar.add_task("starting", total=rounds)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, line: RoundLine) -> None:
        known = [accuracy for accuracy in line.accuracy if not math.isnan(accuracy)]
        mean, spread = statistics.fmean(known), statistics.pstdev(known)
        text = f"accuracy {mean:5.1f} %  spread {spread:4.1f}  sent {line.payload_bytes / 1e3:,.1f} kB/peer"
        if self._live:
            self._bar.update(self._task, completed=line.round, description=text)
        elif line.round >= self._next_line or line.round == self.rounds:
            self._next_line = line.round + self.rounds / PLAIN_LINES
            self._console.print(f"round {line.round}/{self.rounds}  {text}", highlight=False, soft_wrap=True)
