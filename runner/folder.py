"""The run folder: config.toml, rounds.jsonl (as the run goes), summary.json, made.json, the models, accuracy.svg."""

import json
import math
from pathlib import Path
from typing import Any

from p2p_tally.config import Federation, NodeSettings, write_options
from p2p_tally.errors import ConfigError
from runner.record import RoundLine, Run


class RunFolder:
    """One run's files. A folder that holds another run's is not written over."""

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--out {path}: {error.strerror}; accepted is a folder that can be made") from None
        if any(path.iterdir()):
            raise ConfigError(f"--out {path}: not empty; accepted is a new or empty folder")
        self.path = path
        self._lines = (path / "rounds.jsonl").open("w", encoding="utf-8", buffering=1)

    @classmethod
    def reopen(cls, path: Path, upto: int) -> tuple["RunFolder", list[RoundLine]]:
        """A run that goes on after round `upto`: what was written of later rounds is dropped, the rest given back."""
        kept = [line for line in read_lines(path / "rounds.jsonl") if line.round <= upto]
        folder = cls.__new__(cls)
        folder.path = path
        folder._lines = (path / "rounds.jsonl").open("w", encoding="utf-8", buffering=1)
        for line in kept:
            folder.add(line)
        return folder, kept

    def begin(self, federation: Federation, settings: NodeSettings) -> None:
        write_options(self.path / "config.toml", federation, settings)

    def add(self, line: RoundLine) -> None:
        self._lines.write(json.dumps(plain(line.as_json())) + "\n")

    def finish(self, run: Run) -> None:
        from runner.figures import accuracy_figure  # noqa: PLC0415 - matplotlib takes a second to import

        self._lines.close()
        accuracy_figure(run, self.path / "accuracy.svg")
        run.made.write(self.path)
        (self.path / "summary.json").write_text(json.dumps(plain(run.summary())) + "\n", encoding="utf-8")

    def close(self) -> None:
        self._lines.close()


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


def plain(value: Any) -> Any:
    """JSON has no NaN: what is not known is null."""
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def fresh_folder(base: Path, name: str) -> Path:
    """base/name, or base/name-2, -3 ... where runs of that name are there already."""
    candidate, number = base / name, 1
    while candidate.exists():
        number += 1
        candidate = base / f"{name}-{number}"
    return candidate
