"""The cells of an experiment, one run for each seed: processes of `p2p-tally simulate`, on this machine or on Ray.

A sweep's folder: sweep.json (what the cells are, for the report), CELL/seed-S.toml (the options of a run),
CELL/seed-S (its run folder) and CELL/seed-S.log (its standard error). Finished runs are kept.
"""

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

import tomli_w

from p2p_tally.config import EngineName, Federation, SimulationSettings, parse_options, read_options
from p2p_tally.errors import ConfigError
from p2p_tally.files import locked
from p2p_tally.learning.architectures import check_models
from p2p_tally.runner.experiments.experiment import FACT_OPTIONS, Cell, Experiment
from p2p_tally.runner.experiments.payload import cell_bytes
from p2p_tally.runner.experiments.sweep_display import Display
from p2p_tally.runner.runs.folder import CHECKPOINTS

MANIFEST = "sweep.json"

JobState = Literal["waiting", "running", "done", "kept", "failed"]


@dataclass
class Job:
    """One cell with one seed."""

    cell: Cell
    seed: int
    folder: Path
    engine: EngineName = "exact"
    state: JobState = "waiting"
    resumes: bool = False  # from a checkpoint of an earlier sweep
    error: str = ""
    started: float = 0.0
    seconds: float = 0.0

    @property
    def federation(self) -> Federation:
        return self.cell.federation.model_copy(update={"seed": self.seed})

    @property
    def config(self) -> Path:
        return self.folder.with_name(self.folder.name + ".toml")

    @property
    def log(self) -> Path:
        return self.folder.with_name(self.folder.name + ".log")

    @property
    def finished(self) -> bool:
        return (self.folder / "summary.json").is_file()

    @property
    def interrupted(self) -> bool:
        """Whether the folder holds a checkpoint to resume from."""
        return (self.folder / "config.toml").is_file() and any((self.folder / CHECKPOINTS).glob("*.safetensors"))

    def arguments(self, settings: SimulationSettings, config: str, folder: str) -> list[str]:
        """The arguments of p2p-tally that run this job: its options are in `config`, its files go into `folder`."""
        where = ["--resume", folder] if self.resumes else ["--config", config, "--out", folder]
        command = ["simulate", "--report", *where]
        command += ["--device", settings.device, "--checkpoint-seconds", str(settings.checkpoint_seconds)]
        command += ["--data-root", str(settings.data_root)] if settings.data_root else []
        return command + (["--download"] if settings.download else [])

    def options(self) -> str:
        """The options of the run, as the text of its TOML file."""
        options = self.federation.model_dump(exclude_none=True, mode="json")
        return tomli_w.dumps({**options, "engine": self.engine})

    def has_same_options(self) -> bool:
        """Whether the files in the folder were made with these options. One that the old file lacks had its default."""
        if not self.config.is_file():
            return False
        federation, settings = parse_options(read_options(self.config), SimulationSettings, source=str(self.config))
        return (federation, settings.engine) == (self.federation, self.engine)

    def check_folder(self) -> bool:
        """Keep a finished run, resume an interrupted one; refuse where either was made with other options.

        True where the folder is there and nothing in it can be used.
        """
        if (self.finished or self.interrupted) and not self.has_same_options():
            what = "a finished" if self.finished else "an interrupted"
            raise ConfigError(
                f"--out {self.folder}: {what} run with other options; accepted is another --out, or remove it"
            )
        if self.finished:
            self.state = "kept"
        self.resumes = not self.finished and self.interrupted
        return self.folder.exists() and not (self.finished or self.resumes)

    def start(self) -> None:
        self.state, self.started = "running", time.monotonic()

    def end(self, code: int) -> None:
        """Its process has ended with this exit code."""
        self.seconds = time.monotonic() - self.started
        self.state = "done" if code == 0 and self.finished else "failed"
        if self.state == "failed":
            self.error = last_line(self.log) or f"ended with code {code} and said nothing"


def parse_changes(given: Sequence[str]) -> dict[str, str]:
    """`--set KEY=VALUE`, each an option of a federation. The values are checked with each cell's own."""
    changes = {}
    for text in given:
        key, equals, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or key not in Federation.model_fields or key == "seed":
            accepted = ", ".join(sorted(set(Federation.model_fields) - {"seed"}))
            raise ConfigError(f"--set {text}: accepted is KEY=VALUE, KEY one of {accepted} (seeds: --seeds)")
        changes[key] = value.strip()
    return changes


def parse_seeds(text: str) -> list[int]:
    try:
        seeds = [int(seed) for seed in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or max(seeds) >= 2**63 or len(set(seeds)) < len(seeds):
        raise ConfigError(
            f"--seeds {text}: accepted are different whole numbers from 0, below 2^63, separated by commas"
        )
    return seeds


def choose(experiment: Experiment, patterns: str | None) -> list[Cell]:
    """The cells that `--cells` names: names or patterns such as cifar10-*, separated by commas."""
    if patterns is None:
        return experiment.cells
    wanted = [pattern.strip() for pattern in patterns.split(",")]
    for pattern in wanted:
        if not any(fnmatchcase(cell.name, pattern) for cell in experiment.cells):
            names = ", ".join(cell.name for cell in experiment.cells)
            raise ConfigError(f"--cells {pattern}: accepted are cells of {experiment.name}: {names}")
    return [cell for cell in experiment.cells if any(fnmatchcase(cell.name, pattern) for pattern in wanted)]


def sweep(
    experiment: Experiment,
    cells: Sequence[Cell],
    seeds: Sequence[int],
    out: Path,
    *,
    where: "Cells",
    settings: SimulationSettings,
    changes: Mapping[str, str],
    notes: Sequence[str] = (),
) -> list[Job]:
    """Run the jobs that are not finished; interrupted ones resume from their last checkpoint. Returns all jobs."""
    for cell in cells:
        try:
            check_models(cell.federation)
        except ConfigError as error:
            raise ConfigError(f"cell {cell.name}: {error}") from None
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror}; accepted is a folder that can be made") from None
    with _only_sweep(out):
        # All cells of one seed first: a sweep that is stopped half way then has a whole table of fewer seeds.
        todo = [
            Job(cell, seed, out / cell.name / f"seed-{seed}", experiment.engine) for seed in seeds for cell in cells
        ]
        contents = manifest(experiment, cells, out, changes, notes)
        unusable = [job.folder for job in todo if job.check_folder()]
        for folder in unusable:  # after all were checked: a sweep that is refused removes nothing
            shutil.rmtree(folder)
        (out / MANIFEST).write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")
        if all(job.state == "kept" for job in todo):
            return todo
        with where, Display(todo) as display:
            try:
                asyncio.run(_run_all(todo, where, settings, display))
            except asyncio.CancelledError:
                raise KeyboardInterrupt from None
    return todo


@contextmanager
def _only_sweep(out: Path) -> Iterator[None]:
    """Hold the folder's lock: a second sweep would take the running cells of the first for interrupted ones."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(out / ".lock", wait=False))
        except BlockingIOError:
            raise ConfigError(f"--out {out}: another sweep is running in this folder") from None
        yield


def manifest(
    experiment: Experiment, cells: Sequence[Cell], out: Path, changes: Mapping[str, str], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """The contents of sweep.json, for the report. Cells and notes of earlier sweeps into the same folder are kept."""
    known: dict[str, Any] = {}
    noted: dict[str, None] = {}
    if (out / MANIFEST).is_file():
        try:
            before = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
            name, known = before["experiment"], {cell["name"]: cell for cell in before["cells"]}
            noted = dict.fromkeys(before.get("notes", []))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(
                f"--out {out}: its {MANIFEST} cannot be read; accepted is another --out, or remove that file"
            ) from None
        if name != experiment.name:
            raise ConfigError(f"--out {out}: holds a sweep of {name}, not of {experiment.name}")
    for cell in cells:
        void = FACT_OPTIONS & changes.keys() or (cell.facts.votes_per_round and "probes_per_round" in changes)
        known[cell.name] = {
            "name": cell.name,
            "set": dict(changes),
            "paper": cell.paper,
            "accounting": cell.accounting,
            "facts": asdict(cell.facts),
            "payload_bytes": None if void else cell_bytes(cell).payload_bytes,
        }
    order = [cell.name for cell in experiment.cells]
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "question": experiment.question,
        "prose": experiment.prose,
        "notes": list(noted | dict.fromkeys(notes)),
        "findings": [finding.as_json() for finding in experiment.findings],
        "cell_names": order,  # also those that are not in this folder: findings speak of them
        "cells": [known[name] for name in order if name in known],
    }


async def _run_all(todo: list[Job], cells: "Cells", settings: SimulationSettings, display: Display) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    free = asyncio.Semaphore(cells.at_once or max(1, len(todo)))

    async def one(job: Job) -> None:
        def started() -> None:
            job.start()
            display.changed(job)

        async with free:
            job.folder.parent.mkdir(parents=True, exist_ok=True)
            job.config.write_text(job.options(), encoding="utf-8")
            job.end(await cells.run(job, settings, started))
            display.changed(job)

    ticking = asyncio.create_task(display.tick())
    try:
        async with asyncio.TaskGroup() as group:
            for job in todo:
                if job.state == "waiting":
                    group.create_task(one(job))
    finally:
        ticking.cancel()
        await cells.close()


class Cells(Protocol):
    """Runs jobs somewhere; a context that lasts for as long as there are any."""

    at_once: int | None  # None: as many as there is room for

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, job: Job, settings: SimulationSettings, started: Callable[[], None]) -> int:
        """Run one job and return its exit code. By then its folder and its log are there, and its process has ended."""
        ...

    async def close(self) -> None:
        """No job runs any more, and none will."""
        ...


def last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip().removeprefix("p2p-tally: ") for line in reversed(lines) if line.strip()), "")
