"""The run folder: config.toml, rounds.jsonl (as the run goes), summary.json, made.json, the models, accuracy.svg."""

import contextlib
import json
import math
import os
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
from p2p_tally.line_file import LineFile
from p2p_tally.plain import plain
from p2p_tally.runner.runs.run import RoundLine, Run

try:
    import fcntl
except ImportError:  # Windows: two processes in one folder are then not told apart
    fcntl = None  # type: ignore[assignment]

CHECKPOINTS = "checkpoints"


class RunFolder:
    """One run's files. A folder that holds another run's is not written over, nor one that is being written."""

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
        self._lock = _only_here(path)
        self._lines = LineFile(path / "rounds.jsonl")

    @classmethod
    def reopen(cls, path: Path) -> "RunFolder":
        """The folder of a stopped run, to go on in."""
        folder = cls.__new__(cls)
        folder._open(path)
        return folder

    def go_back_to(self, upto: int) -> list[RoundLine]:
        """Drop what was written of rounds after `upto`; the lines that stay."""
        path = self.path / "rounds.jsonl"
        kept = [line for line in read_lines(path) if line.round <= upto]
        self._lines.close()
        temporary = path.with_suffix(".part")
        temporary.write_text("".join(as_text(line) for line in kept), encoding="utf-8")
        temporary.rename(path)
        self._lines = LineFile(path)
        return kept

    def begin(self, federation: Federation, settings: NodeSettings) -> None:
        write_options(self.path / "config.toml", federation, settings)

    def add(self, line: RoundLine) -> None:
        self._lines.add(as_text(line))

    def sync(self) -> None:
        """The lines so far are on the disk when this returns, or an OSError says why not."""
        self._lines.sync()

    def finish(self, run: Run) -> None:
        """The results; summary.json is the last, and whole: where it stands the run is finished."""
        from p2p_tally.runner.report.accuracy_figure import accuracy_figure  # noqa: PLC0415 - matplotlib takes a second to import

        self._lines.close()
        accuracy_figure(run, self.path / "accuracy.svg")
        run.made.write(self.path)
        temporary = self.path / "summary.json.part"
        temporary.write_text(json.dumps(plain(run.summary())) + "\n", encoding="utf-8")
        temporary.rename(self.path / "summary.json")

    def drop_checkpoints(self) -> None:
        shutil.rmtree(self.path / CHECKPOINTS, ignore_errors=True)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written was told of
            self._lines.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _only_here(path: Path) -> int | None:
    """A lock on a folder, which ends with the process at the latest: two would mix their lines."""
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ConfigError(f"--out {path}: another process is running in this folder") from None
    except OSError:  # a network's file system that locks no folders
        os.close(handle)
        return None
    return handle


def resume_options(folder: Path, settings: type[Settings]) -> tuple[Federation, Settings]:
    """What the stopped run in a folder was started with."""
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
            values["accuracy"] = [math.nan if value is None else value for value in values["accuracy"]]
            values["loss"] = [math.nan if value is None else value for value in values["loss"]]
            lines.append(RoundLine(**values))
    return lines


def put_file(path: Path, content: bytes) -> None:
    """Write a file in one go: it is there whole, or as it was before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(content)
    temporary.rename(path)


def keep_newest(checkpoint: Path, count: int = 2) -> None:
    """Of the checkpoints up to this one the newest; later ones are of before the run went back."""
    found = sorted(checkpoint.parent.glob("*.safetensors"))
    last = found.index(checkpoint) + 1
    for old in found[: max(0, last - count)] + found[last:]:
        old.unlink()


def as_text(line: RoundLine) -> str:
    """A line of rounds.jsonl."""
    return json.dumps(plain(line.as_json())) + "\n"


def fresh_folder(base: Path, name: str) -> Path:
    """base/name, or base/name-2, -3 ... where runs of that name are there already."""
    candidate, number = base / name, 1
    while candidate.exists():
        number += 1
        candidate = base / f"{name}-{number}"
    return candidate
