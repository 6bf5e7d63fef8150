"""How a sweep shows itself on stderr: a live table on a terminal, a line for each change anywhere else."""

import asyncio
import json
import statistics
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from p2p_tally.runner.console.terminal import WithRoom

if TYPE_CHECKING:
    from p2p_tally.runner.experiments.sweep import Job

TICK = 1.0  # seconds between two looks at the running cells
SHOWN = 12  # finished cells that stay in sight


class Display:
    def __init__(self, jobs: "list[Job]") -> None:
        self._jobs = jobs
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None

    def __enter__(self) -> Self:
        kept = sum(job.state == "kept" for job in self._jobs)
        self._say(f"{len(self._jobs)} runs, {kept} of them finished before")
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.update(WithRoom(self._table()), refresh=True)
            self._live.stop()

    def changed(self, job: "Job") -> None:
        if self._live:
            self._live.update(WithRoom(self._table()), refresh=True)
            return
        left = sum(job.state in ("waiting", "running") for job in self._jobs)
        text = {
            "running": "goes on from its checkpoint" if job.resumes else "started",
            "done": f"done in {job.seconds:.0f} s, {progress(job.folder)}; {left} left",
            "failed": f"failed after {job.seconds:.0f} s: {job.error}; {left} left",
        }
        self._say(f"{job.cell.name} seed {job.seed}: {text[job.state]}")

    async def tick(self) -> None:
        while self._live:
            self._live.update(WithRoom(self._table()), refresh=True)
            await asyncio.sleep(TICK)

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def _table(self) -> Table:
        counts = Counter[str](job.state for job in self._jobs)
        order = ("running", "waiting", "done", "kept", "failed")
        table = Table(title=", ".join(f"{counts[state]} {state}" for state in order if counts[state]))
        for column in ("cell", "seed", "state", "time", ""):
            table.add_column(column, overflow="fold")
        finished = [job for job in self._jobs if job.state == "done"]
        shown = [job for job in self._jobs if job.state in ("running", "failed")] + finished[-SHOWN:]
        for job in shown:
            seconds = time.monotonic() - job.started if job.state == "running" else job.seconds
            text = job.error if job.state == "failed" else progress(job.folder)
            table.add_row(job.cell.name, str(job.seed), job.state, f"{seconds:.0f} s", Text(text))
        return table


def progress(folder: Path) -> str:
    """Where a run is, from the last whole line of its record."""
    try:
        with (folder / "rounds.jsonl").open("rb") as record:
            record.seek(max(0, record.seek(0, 2) - (1 << 17)))
            line = record.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
        values = json.loads(line)
    except (OSError, ValueError):
        return ""
    known = [accuracy for accuracy in values["accuracy"] if accuracy is not None]
    return f"round {values['round']}, accuracy {statistics.fmean(known):.1f} %" if known else f"round {values['round']}"
