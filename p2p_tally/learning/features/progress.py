"""How long work on features shows itself on stderr: a live bar, or a line now and then."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import TaskID

# Lines for each stage of the work where there is no bar.
PLAIN_LINES = 4


class Display:
    """Called with a stage of the work, the parts of it that are done, and all its parts.

    `live` asks for a bar where stderr is a terminal. Inside a run, which has a bar of its own, there are lines only.
    """

    def __init__(self, *, live: bool) -> None:
        # Here: every node imports this module, and few show anything.
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

        self.used = False  # whether there was any work to show
        self._console = Console(stderr=True)
        self._live = live and self._console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description:>16}"),
            BarColumn(bar_width=24),
            TimeRemainingColumn(compact=True),
            console=self._console,
            disable=not self._live,
        )
        self._tasks: dict[str, TaskID] = {}
        self._next_line: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, what: str, done: int, of: int) -> None:
        self.used = True
        if self._live:
            if what not in self._tasks:
                self._tasks[what] = self._bar.add_task(what, total=of)
            self._bar.update(self._tasks[what], completed=done)
        elif done == of or done >= self._next_line.get(what, of / PLAIN_LINES):
            self._next_line[what] = done + of / PLAIN_LINES
            self._console.print(f"features: {what} {100 * done / of:.0f} %", highlight=False, soft_wrap=True)
