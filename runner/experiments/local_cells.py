"""The jobs of a sweep as processes of this machine, forked from one that has loaded everything where the platform can.

To load torch and all else takes three seconds of processor time, which is more than a small run.
"""

import asyncio
import signal
from collections.abc import Callable
from types import TracebackType
from typing import IO, Self

from p2p_tally.config import SimulationSettings
from p2p_tally.runner import processes
from p2p_tally.runner.experiments.sweep import Job
from p2p_tally.runner.launch.forks import ForkedProcess, Nursery, can_fork

PATIENCE = 5.0  # seconds that a process has to end before it is killed

# What a run loads besides what every node does.
LOADED = ("p2p_tally.runner.simulation.simulate", "p2p_tally.runner.report.accuracy_figure")


class LocalCells:
    """So many at once."""

    def __init__(self, at_once: int, *, forked: bool | None = None) -> None:
        """`forked`: None: if it is possible."""
        self.at_once: int | None = at_once
        self._nursery = Nursery(LOADED) if (can_fork() if forked is None else forked) else None
        self._opened = False
        self._one_by_one = asyncio.Lock()  # a nursery is asked for one process at a time

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to do: every process has ended with its job, and the nursery with `close`."""

    async def run(self, job: Job, settings: SimulationSettings, started: Callable[[], None]) -> int:
        started()
        arguments = job.arguments(settings, str(job.config), str(job.folder))
        with job.log.open("wb") as log:
            if self._nursery is None:
                return await _to_its_end(await processes.start(arguments, log=log, read_stdout=False))
            return await _to_its_end(await self._fork(self._nursery, arguments, log))

    async def _fork(self, nursery: Nursery, arguments: list[str], log: IO[bytes]) -> ForkedProcess:
        async with self._one_by_one:
            if not self._opened:
                await nursery.open()
                self._opened = True
            return await nursery.start(arguments, log)

    async def close(self) -> None:
        if self._nursery is not None and self._opened:
            await self._nursery.close()


async def _to_its_end(process: asyncio.subprocess.Process | ForkedProcess) -> int:
    """Wait for the exit code of a process; if nobody waits any more, end it."""
    try:
        return await _code(process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(_code(process), PATIENCE)
            except TimeoutError:
                process.send_signal(signal.SIGKILL)
                await _code(process)


async def _code(process: asyncio.subprocess.Process | ForkedProcess) -> int:
    if isinstance(process, ForkedProcess):
        async for _ in process.lines():  # which nobody reads, and which would fill the pipe
            pass
    else:
        await process.wait()
    assert process.returncode is not None
    return process.returncode
