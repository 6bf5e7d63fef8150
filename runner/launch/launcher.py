"""Starts N daemons, collects their reports into one record, and ends them. No daemon outlives its launcher."""

import asyncio
import contextlib
import json
import logging
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from p2p_tally.attacks.kinds import check_attacks
from p2p_tally.config import Federation, ServiceSettings, write_options
from p2p_tally.errors import OperatorError, StoppedError
from p2p_tally.files import replacing
from p2p_tally.ids import ranked_names
from p2p_tally.learning.architectures import check_models
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.start_file import check_start_file
from p2p_tally.runner.launch.daemons import Daemons, LaunchedNode, LaunchPlan, LocalDaemons
from p2p_tally.runner.runs.folder import CHECKPOINTS, RunFolder
from p2p_tally.runner.runs.provenance import one_or_each, record_provenance
from p2p_tally.runner.runs.run import RoundLine, Run, of_each
from p2p_tally.tracking.services import check_installed

log = logging.getLogger(__name__)

# The time that daemons have to finish their round and write a checkpoint when they are asked to stop.
GRACE_SECONDS = 30.0

OnLine = Callable[[RoundLine], None]

# Called with the name and the admin address of a daemon that has started.
OnAdmin = Callable[[str, str], None]


class LaunchFailed(OperatorError):
    """Some daemon did not finish; the message names it and its log."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def launch(
    federation: Federation,
    settings: ServiceSettings,
    on_line: OnLine | None = None,
    resume: bool = False,
    where: Daemons | None = None,
    on_admin: OnAdmin | None = None,
) -> Run:
    """Run a federation as daemons. `settings.out` is the run folder; with `resume`, one that holds a stopped run.

    With `on_admin` each daemon serves an admin address on this machine, and `on_admin` is told of it.
    """
    # Checked here too: otherwise every daemon would fail, and only after the run folder was made.
    federation.check_names()
    if federation.link is not None:
        log.warning("--link %s: accepted with simulate; ignored", federation.link)
    check_models(federation)
    check_attacks(federation, "daemon")
    check_start_file(federation)
    make_topology(federation)
    check_installed(settings.log)
    where = where or LocalDaemons()
    with where:
        launcher = Launcher(federation, settings, on_line or (lambda _: None), resume, where, on_admin)
        return asyncio.run(launcher.run())


class Launcher:
    """One launch, from start to end."""

    def __init__(
        self,
        federation: Federation,
        settings: ServiceSettings,
        on_line: OnLine,
        resume: bool,
        where: Daemons,
        on_admin: OnAdmin | None = None,
    ) -> None:
        assert settings.out is not None
        self.federation = federation
        self.settings = settings
        self.out = settings.out
        self.on_line = on_line
        self.names = ranked_names(federation.nodes)
        self.topology = make_topology(federation)
        self.resume_round = self._resume_round() if resume else None
        self.where = where
        self.on_admin = on_admin
        self.plan = LaunchPlan(self.names, self.out, self.resume_round, admin=on_admin is not None)
        self.nodes: list[LaunchedNode] = []
        self.stopping = asyncio.Event()
        self.run_record: Run | None = None  # from the first report of a daemon on
        self.sizes: dict[str, Any] = {}  # classes and examples, as the daemons reported them
        self.failed: list[LaunchedNode] = []  # ended with an error that is not logged yet

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
            # The options that the daemons start with; the first report brings those with every default filled in.
            folder.begin(self.federation, self.settings)
            await self._spawn()
            async with asyncio.TaskGroup() as group:
                passing_on = group.create_task(self._pass_on_stop())
                followers = [group.create_task(self._follow(node, folder, kept)) for node in self.nodes]
                await asyncio.wait(followers)
                passing_on.cancel()
            return self._finish(folder, started)
        finally:
            await self._end(signal.SIGKILL, 5.0)
            await self.where.close()
            folder.close()

    # --- starting

    async def _spawn(self) -> None:
        """Start the daemons, unless the operator stops the launch before they are started."""
        spawning = asyncio.create_task(self.where.spawn(self.plan, self.nodes))
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

    async def _follow(self, node: LaunchedNode, folder: RunFolder, kept: list[RoundLine]) -> None:
        """Read a daemon's reports until it ends."""
        async for text in node.process.lines():
            try:
                report = json.loads(text)
            except ValueError:
                report = None
            if not isinstance(report, dict):  # from C code: what Python code prints goes to the daemon's log
                log.warning("%s printed: %.200s", node.name, text.strip())
                continue
            while self.failed:  # this daemon works, so the error is not one that ends them all
                log.warning("%s; the others go on without it", _why(self.failed.pop()))
            if "admin" in report:
                if self.on_admin is not None:
                    self.on_admin(node.name, report["admin"])
                continue
            node.receive(report)
            if "federation" in report:
                self._begin(Federation.parse(report["federation"]), kept)
                self.sizes = {key: value for key, value in report["sizes"].items() if key != "parameters"}
            else:
                self._write_complete_rounds(folder)
        (self.out / f"{node.name}.pid").unlink(missing_ok=True)
        self._write_complete_rounds(folder)
        if node.final is None and not self.stopping.is_set():
            self._report_death(node)

    def _report_death(self, node: LaunchedNode) -> None:
        """Report a dead daemon to the operator and to the others: before the first round they would wait for it."""
        code = node.process.returncode or 0
        if code < 0:
            what = f"{node.name} was killed by signal {-code}"
            log.warning("%s; the others go on without it (log: %s)", what, node.log)
        else:
            self.failed.append(node)
        for other in self.nodes:
            if other.alive:
                other.process.send_line(json.dumps({"gone": node.name}))

    def _begin(self, federation: Federation, kept: list[RoundLine]) -> None:
        if self.run_record is None:
            self.run_record = Run(federation, [str(name) for name in self.names], lines=kept, folder=self.out)
            # A daemon may be reading the first config.toml at this moment.
            with replacing(self.out / "config.toml") as temporary:
                write_options(temporary, federation, self.settings)

    def _write_complete_rounds(self, folder: RunFolder) -> None:
        """Record every round that all living daemons have reported."""
        if self.run_record is None:
            return
        rounds = sorted({round for node in self.nodes for round in node.lines})
        for round in rounds:
            if any(node.alive and self._is_awaited(node, round) for node in self.nodes):
                return
            line = self._combine(round)
            self.run_record.lines.append(line)
            folder.add(line)
            self.on_line(line)

    def _is_awaited(self, node: LaunchedNode, round: int) -> bool:
        """Whether the line of this round waits for a report of a node: of the round, or, if it has left, its last."""
        if self.topology.next_round(node.name, round) is None:
            return node.final is None
        return node.name in self.topology.members_at(round) and node.last < round

    def _combine(self, round: int) -> RoundLine:
        reports = [node.lines.pop(round, None) for node in self.nodes]
        present = [line for line in reports if line is not None]
        # Who does not take part has sent what it had sent before. Who has died is left out.
        there = set(self.topology.members_at(round))
        counted = [*present, *(node.newest for node in self.nodes if node.name not in there)]
        stages = sorted({stage for line in present for stage in line["sent"]})
        phases = sorted({phase for line in present for phase in line["seconds"]})
        return RoundLine(
            round=round,
            accuracy=of_each(reports, "accuracy"),
            loss=of_each(reports, "loss"),
            merged=any(line["merged"] for line in present),
            plurality_right=_mean(line["plurality_right"] for line in present),
            agreement=_mean(line["agreement"] for line in present),
            margin=_mean(line["margin"] for line in present),
            pairwise_kl=None,  # no node sees another's probabilities
            payload_bytes=sum(line["payload_bytes"] for line in counted) / len(counted),
            framed_bytes=sum(line["framed_bytes"] for line in counted) / len(counted),
            sent={
                stage: {
                    accounting: sum(line["sent"].get(stage, {}).get(accounting, 0) for line in present) / len(counted)
                    for accounting in ("payload", "framed")
                }
                for stage in stages
            },
            seconds={
                phase: sum(line["seconds"].get(phase, 0.0) for line in present) / len(present) for phase in phases
            },
            own_accuracy=of_each(reports, "own_accuracy"),
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
        living = [node for node in self.nodes if node.alive]
        for node in living:
            with contextlib.suppress(ProcessLookupError):
                node.process.send_signal(number)
        if living:
            waits = [asyncio.create_task(node.process.wait()) for node in living]
            _, late = await asyncio.wait(waits, timeout=patience)
            if late:
                await self._end(signal.SIGKILL, patience)
        for node in self.nodes:
            (self.out / f"{node.name}.pid").unlink(missing_ok=True)

    def _finish(self, folder: RunFolder, started: float) -> Run:
        run = self.run_record
        failed = [node for node in self.nodes if node.final is None]
        if self.stopping.is_set() and any(node.final is None or not node.final["finished"] for node in self.nodes):
            command = f"p2p-tally launch --resume {self.out}"
            folders = [self.out / CHECKPOINTS / name for name in self.topology.members_at(1)]
            if not all(any(folder.glob("*.safetensors")) for folder in folders):
                raise StoppedError(f"stopped before there was a checkpoint of all nodes; begin anew with: {command}")
            raise StoppedError(f"stopped; go on with: {command}")
        if run is None or len(failed) == len(self.nodes):
            # 2 where the daemon found a mistake of the operator's, as everywhere.
            raise LaunchFailed(_why(failed[0]), 2 if failed[0].process.returncode == 2 else 1)
        provenance = replace(record_provenance("launch", self.settings.device), **self.sizes)
        sizes = [node.parameters for node in self.nodes if node.parameters is not None]
        if len(sizes) == len(self.nodes):
            provenance = replace(provenance, parameters=one_or_each(sizes))
        carried = [node.final["wire_bytes"] for node in self.nodes if node.final is not None]
        run = replace(
            run,
            parameters_sha256=["" if node.final is None else node.final["parameters_sha256"] for node in self.nodes],
            seconds=time.perf_counter() - started,
            provenance=provenance,
            wire_bytes=sum(carried) / len(carried) or None,  # 0: this kernel does not count
        )
        folder.finish(run)
        if failed:
            names = ", ".join(node.name for node in failed)
            raise LaunchFailed(f"{names} did not finish, the others did: {_why(failed[0])}")
        return run

    def _resume_round(self) -> int:
        """The newest round that every daemon can start again from; 0 where there is none.

        For that a daemon needs a checkpoint of the last round that it had played then, if it had played any.
        """
        from p2p_tally.node.service.checkpoint import sound_rounds  # noqa: PLC0415 - torch, needed for this alone

        kept = {name: {0, *sound_rounds(self.out / CHECKPOINTS / name)} for name in self.names}
        common = set.union(*kept.values())
        played = self.topology.last_round
        return max(round for round in common if all(played(name, round) in kept[name] for name in self.names))


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _why(node: LaunchedNode) -> str:
    """How a daemon ended, with the last line of its log: its error message."""
    lines = node.log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no message"]
    return f"{node.name} ended with code {node.process.returncode}: {lines[-1]} (log: {node.log})"
