"""N daemons, here or on Ray: start them, follow them, end them. No daemon outlives its launcher."""

import asyncio
import contextlib
import json
import logging
import math
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from p2p_tally.config import Federation, ServiceSettings, write_options
from p2p_tally.errors import OperatorError, StoppedError
from p2p_tally.files import replacing
from p2p_tally.ids import ranked_names
from p2p_tally.learning.architectures import check_models
from p2p_tally.learning.graph import make_topology
from p2p_tally.runner.launch.daemons import Child, Daemons, LocalDaemons, Plan
from p2p_tally.runner.runs import provenance as made
from p2p_tally.runner.runs.folder import CHECKPOINTS, RunFolder
from p2p_tally.runner.runs.run import RoundLine, Run

log = logging.getLogger(__name__)

# What daemons that were asked to stop are given to finish their round and write a checkpoint.
GRACE_SECONDS = 30.0

OnLine = Callable[[RoundLine], None]


class LaunchFailed(OperatorError):
    """Some daemon did not finish; the message names it and its log."""

    exit_code = 1


def launch(
    federation: Federation,
    settings: ServiceSettings,
    on_line: OnLine | None = None,
    resume: bool = False,
    where: Daemons | None = None,
) -> Run:
    """Run a federation as daemons. `settings.out` is the run folder; with `resume`, one that holds a stopped run."""
    # Here, and not first in every daemon, once there is a folder.
    check_models(federation)
    make_topology(federation)
    where = where or LocalDaemons()
    with where:
        return asyncio.run(Launcher(federation, settings, on_line or (lambda _: None), resume, where).run())


class Launcher:
    """The life of one launch."""

    def __init__(
        self, federation: Federation, settings: ServiceSettings, on_line: OnLine, resume: bool, where: Daemons
    ) -> None:
        assert settings.out is not None
        self.federation = federation
        self.settings = settings
        self.out = settings.out
        self.on_line = on_line
        self.names = ranked_names(federation.nodes)
        self.resume_round = self._resume_round() if resume else None
        self.where = where
        self.plan = Plan(self.names, self.out, self.resume_round)
        self.children: list[Child] = []
        self.stopping = asyncio.Event()
        self.run_record: Run | None = None
        self.sizes: dict[str, Any] = {}  # classes and examples, as a daemon has told
        self.failed: list[Child] = []  # ended by themselves, and not told of yet

    async def run(self) -> Run:
        kept: list[RoundLine] = []
        if self.resume_round is None:
            folder = RunFolder(self.out)
        else:
            folder = RunFolder.reopen(self.out)
            kept = folder.go_back_to(self.resume_round)
        started = time.perf_counter()
        self._obey_signals()
        try:
            # What the daemons are started with; replaced by the complete one as soon as a daemon has told it.
            folder.begin(self.federation, self.settings)
            await self._spawn()
            async with asyncio.TaskGroup() as group:
                passing_on = group.create_task(self._pass_on_stop())
                followers = [group.create_task(self._follow(child, folder, kept)) for child in self.children]
                await asyncio.wait(followers)
                passing_on.cancel()
            return self._finish(folder, started)
        finally:
            await self._end(signal.SIGKILL, 5.0)
            await self.where.close()
            folder.close()

    # --- starting

    async def _spawn(self) -> None:
        """Start the daemons, unless the operator will not wait for it."""
        spawning = asyncio.create_task(self.where.spawn(self.plan, self.children))
        stopped = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({spawning, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not spawning.done():
                raise StoppedError("stopped before the nodes were started")
            await spawning
        finally:
            for task in (spawning, stopped):
                task.cancel()
            await asyncio.gather(spawning, stopped, return_exceptions=True)

    # --- following

    async def _follow(self, child: Child, folder: RunFolder, kept: list[RoundLine]) -> None:
        """Read what a daemon says until it ends."""
        async for text in child.process.lines():
            try:
                said = json.loads(text)
            except ValueError:
                said = None
            if not isinstance(said, dict):  # not Python's own print, which goes to its log
                log.warning("%s printed: %.200s", child.name, text.strip())
                continue
            while self.failed:  # what this daemon says shows that it was not the fault of all
                log.warning("%s; the others go on without it", _why(self.failed.pop()))
            if "federation" in said:
                self._begin(Federation.parse(said["federation"]), kept)
                child.parameters = said["sizes"].pop("parameters")
                self.sizes = said["sizes"]
            elif "final" in said:
                child.final = said
            else:
                child.lines[said["round"]] = said
                child.last = said["round"]
                self._tell(folder)
        (self.out / f"{child.name}.pid").unlink(missing_ok=True)
        self._tell(folder)
        if child.final is None and not self.stopping.is_set():
            self._lose(child)

    def _lose(self, child: Child) -> None:
        """A daemon has died. The others notice that once they play; before, they would wait for it to come."""
        code = child.process.returncode or 0
        if code < 0:
            what = f"{child.name} was killed by signal {-code}"
            log.warning("%s; the others go on without it (log: %s)", what, child.log)
        else:
            self.failed.append(child)
        for other in self.children:
            if other.alive:
                other.process.tell(json.dumps({"gone": child.name}))

    def _begin(self, federation: Federation, kept: list[RoundLine]) -> None:
        if self.run_record is None:
            self.run_record = Run(federation, [str(name) for name in self.names], lines=kept, folder=self.out)
            # A daemon may still be reading the first config.toml: the complete one takes its place at once.
            with replacing(self.out / "config.toml") as temporary:
                write_options(temporary, federation, self.settings)

    def _tell(self, folder: RunFolder) -> None:
        """Pass on every round that no living daemon can still add to."""
        if self.run_record is None:
            return
        rounds = sorted({round for child in self.children for round in child.lines})
        for round in rounds:
            if any(child.alive and child.last < round for child in self.children):
                return
            line = self._combine(round)
            self.run_record.lines.append(line)
            folder.add(line)
            self.on_line(line)

    def _combine(self, round: int) -> RoundLine:
        said = [child.lines.pop(round, None) for child in self.children]
        present = [line for line in said if line is not None]
        stages = sorted({stage for line in present for stage in line["sent"]})
        phases = sorted({phase for line in present for phase in line["seconds"]})
        return RoundLine(
            round=round,
            accuracy=[math.nan if line is None else line["accuracy"] for line in said],
            loss=[math.nan if line is None else line["loss"] for line in said],
            merged=any(line["merged"] for line in present),
            plurality_right=_mean(line["plurality_right"] for line in present),
            agreement=_mean(line["agreement"] for line in present),
            margin=_mean(line["margin"] for line in present),
            pairwise_kl=None,  # no node sees another's probabilities
            payload_bytes=sum(line["payload_bytes"] for line in present) / len(present),
            framed_bytes=sum(line["framed_bytes"] for line in present) / len(present),
            sent={
                stage: {
                    accounting: sum(line["sent"].get(stage, {}).get(accounting, 0) for line in present) / len(present)
                    for accounting in ("payload", "framed")
                }
                for stage in stages
            },
            seconds={
                phase: sum(line["seconds"].get(phase, 0.0) for line in present) / len(present) for phase in phases
            },
        )

    # --- ending

    def _obey_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.stopping.set)

    async def _pass_on_stop(self) -> None:
        await self.stopping.wait()
        await self._end(signal.SIGTERM, GRACE_SECONDS)

    async def _end(self, number: signal.Signals, patience: float) -> None:
        """Signal every daemon that lives, and wait; those that take too long are killed."""
        living = [child for child in self.children if child.alive]
        for child in living:
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(number)
        if living:
            waits = [asyncio.create_task(child.process.wait()) for child in living]
            _, late = await asyncio.wait(waits, timeout=patience)
            if late:
                await self._end(signal.SIGKILL, patience)
        for child in self.children:
            (self.out / f"{child.name}.pid").unlink(missing_ok=True)

    def _finish(self, folder: RunFolder, started: float) -> Run:
        run = self.run_record
        failed = [child for child in self.children if child.final is None]
        if self.stopping.is_set() and any(
            child.final is None or not child.final["finished"] for child in self.children
        ):
            command = f"p2p-tally launch --resume {self.out}"
            folders = [self.out / CHECKPOINTS / name for name in self.names]
            if not all(any(folder.glob("*.safetensors")) for folder in folders):
                raise StoppedError(f"stopped before there was a checkpoint of all nodes; begin anew with: {command}")
            raise StoppedError(f"stopped; go on with: {command}")
        if run is None or len(failed) == len(self.children):
            error = LaunchFailed(_why(failed[0]))
            error.exit_code = 2 if failed[0].process.returncode == 2 else 1  # the operator's mistake, told by a daemon
            raise error
        run.parameters_sha256 = [
            "" if child.final is None else child.final["parameters_sha256"] for child in self.children
        ]
        run.seconds = time.perf_counter() - started
        sizes = [child.parameters for child in self.children if child.parameters is not None]
        run.made = replace(made.here("launch", self.settings.device), **self.sizes)
        if len(sizes) == len(self.children):
            run.made = replace(run.made, parameters=made.one_or_each(sizes))
        carried = [child.final["wire_bytes"] for child in self.children if child.final is not None]
        run.wire_bytes = sum(carried) / len(carried) or None  # 0: this kernel does not count
        folder.finish(run)
        if failed:
            names = ", ".join(child.name for child in failed)
            raise LaunchFailed(f"{names} did not finish, the others did: {_why(failed[0])}")
        return run

    def _resume_round(self) -> int:
        """The newest round that every daemon can start again from; 0 where there is none."""
        from p2p_tally.node.service.checkpoint import sound_rounds  # noqa: PLC0415 - torch, needed for this alone

        kept = [set(sound_rounds(self.out / CHECKPOINTS / name)) | {0} for name in self.names]
        return max(set.intersection(*kept))


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _why(child: Child) -> str:
    """The last line of a daemon's log, which is where its error stands."""
    lines = child.log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no message"]
    return f"{child.name} ended with code {child.process.returncode}: {lines[-1]} (log: {child.log})"
