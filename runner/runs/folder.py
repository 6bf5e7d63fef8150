"""The run folder: config.toml, rounds.jsonl (as the run goes), summary.json, made.json, the models, accuracy.svg."""

import contextlib
import json
import math
import shutil
from pathlib import Path

from p2p_tally.config import (
    Federation,
    NodeSettings,
    Settings,
    SimulationSettings,
    parse_options,
    read_options,
    write_options,
)
from p2p_tally.errors import ConfigError
from p2p_tally.files import locked, write_whole
from p2p_tally.json_lines import LineFile, json_value
from p2p_tally.runner.runs.run import RoundLine, Run
from p2p_tally.tracking.tracker import Tracker, open_tracker

CHECKPOINTS = "checkpoints"


class RunFolder:
    """The files of one run. A folder with another run's files is refused, and one that another process writes to."""

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--out {path}: {error.strerror}; accepted is a folder that can be made") from None
        if any(path.iterdir()):
            raise ConfigError(f"--out {path}: not empty; accepted is a new or empty folder")
        self._open(path)

    def _open(self, path: Path) -> None:
        self.path = path
        self._lock = contextlib.ExitStack()
        try:
            self._lock.enter_context(locked(path, wait=False))  # two processes would mix their lines
        except BlockingIOError:
            raise ConfigError(f"--out {path}: another process is running in this folder") from None
        self._lines = LineFile(path / "rounds.jsonl")
        self._tracker: Tracker | None = None  # from begin() on

    @classmethod
    def reopen(cls, path: Path) -> "RunFolder":
        """The folder of a stopped run, to resume it."""
        folder = cls.__new__(cls)
        folder._open(path)
        return folder

    def go_back_to(self, upto: int) -> list[RoundLine]:
        """Remove the lines of rounds after `upto`, and return those that stay."""
        path = self.path / "rounds.jsonl"
        kept = [line for line in read_lines(path) if line.round <= upto]
        self._lines.close()
        write_whole(path, "".join(as_text(line) for line in kept))
        self._lines = LineFile(path)
        return kept

    def begin(self, federation: Federation, settings: NodeSettings) -> None:
        """Write the options down. What --log names is opened here and hears of every line from now on."""
        self._tracker = open_tracker(settings.log, self.path, self.path.name, federation)
        write_options(self.path / "config.toml", federation, settings)

    def add(self, line: RoundLine) -> None:
        self._lines.add(as_text(line))
        if self._tracker is not None:
            self._tracker.add(line.as_json())

    def sync(self) -> None:
        """The lines so far are on the disk when this returns, or an OSError says why not."""
        self._lines.sync()

    def finish(self, run: Run) -> None:
        """Write the results. summary.json is the last: a folder that has one holds a finished run."""
        from p2p_tally.runner.report.accuracy_figure import accuracy_figure  # noqa: PLC0415 - matplotlib takes a second to import

        self._lines.close()
        accuracy_figure(run, self.path / "accuracy.svg")
        run.provenance.write(self.path)
        write_whole(self.path / "summary.json", json.dumps(json_value(run.summary())) + "\n")

    def drop_checkpoints(self) -> None:
        shutil.rmtree(self.path / CHECKPOINTS, ignore_errors=True)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # LineFile has logged what could not be written
            self._lines.close()
        if self._tracker is not None:
            self._tracker.close()
        self._lock.close()


def resume_options(folder: Path, settings: type[Settings]) -> tuple[Federation, Settings]:
    """The options of the stopped run in a folder."""
    path = folder / "config.toml"
    if not path.is_file():
        raise ConfigError(f"--resume {folder}: no config.toml there; accepted is the folder of a stopped run")
    values = read_options(path, "--resume")
    simulated = "engine" in values
    if simulated != (settings is SimulationSettings):
        command = f"p2p-tally {'simulate' if simulated else 'launch'} --resume {folder}"
        raise ConfigError(f"--resume {folder}: the folder of another command; go on with: {command}")
    federation, found = parse_options(values, settings, source=str(path))
    return federation, found.model_copy(update={"out": folder})


def read_lines(path: Path) -> list[RoundLine]:
    """The lines of a rounds.jsonl; a last one that was cut off is left out."""
    lines = []
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                values = json.loads(text)
            except json.JSONDecodeError:
                break
            for key in ("accuracy", "loss", "own_accuracy"):
                if key in values:
                    values[key] = [math.nan if value is None else value for value in values[key]]
            lines.append(RoundLine(**values))
    return lines


def keep_newest(checkpoint: Path, count: int = 2) -> None:
    """Remove all checkpoints but the newest up to this one. Later ones are of before the run was resumed."""
    found = sorted(checkpoint.parent.glob("*.safetensors"))
    last = found.index(checkpoint) + 1
    for old in found[: max(0, last - count)] + found[last:]:
        old.unlink()


def as_text(line: RoundLine) -> str:
    """A line of rounds.jsonl."""
    return json.dumps(json_value(line.as_json())) + "\n"


def fresh_folder(base: Path, name: str) -> Path:
    """base/name, or base/name-2, -3 ... where runs of that name are there already."""
    candidate, number = base / name, 1
    while candidate.exists():
        number += 1
        candidate = base / f"{name}-{number}"
    return candidate
