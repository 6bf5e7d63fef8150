"""The run folder: config.toml, rounds.jsonl (written as the run goes), summary.json, the models, accuracy.svg."""

import json
from pathlib import Path

from safetensors.torch import save_file

from p2p_tally.config import Federation, NodeSettings, write_options
from p2p_tally.errors import ConfigError
from p2p_tally.learning.learner import Learner
from runner.figures import accuracy_figure
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

    def begin(self, federation: Federation, settings: NodeSettings) -> None:
        write_options(self.path / "config.toml", federation, settings)

    def add(self, line: RoundLine) -> None:
        self._lines.write(json.dumps(line.as_json()) + "\n")

    def finish(self, run: Run, learners: list[Learner]) -> None:
        self._lines.close()
        for name, learner in zip(run.names, learners, strict=True):
            # The parameters are views of one vector; safetensors wants each tensor's storage its own.
            tensors = {key: value.clone().contiguous() for key, value in learner.model.state_dict().items()}
            save_file(tensors, self.path / f"{name}.safetensors")
        accuracy_figure(run, self.path / "accuracy.svg")
        (self.path / "summary.json").write_text(json.dumps(run.summary()) + "\n", encoding="utf-8")

    def close(self) -> None:
        self._lines.close()


def fresh_folder(base: Path, name: str) -> Path:
    """base/name, or base/name-2, -3 ... where runs of that name are there already."""
    candidate, number = base / name, 1
    while candidate.exists():
        number += 1
        candidate = base / f"{name}-{number}"
    return candidate
