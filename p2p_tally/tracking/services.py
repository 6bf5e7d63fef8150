"""The tools that take figures: one small class each, and the table of them.

A service is opened with a place for its files, the name of the run and its options. Their packages are extras, imported
when one is asked for.
"""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from p2p_tally.errors import ConfigError

PROJECT = "p2p-tally"  # what runs are listed under, where a service lists them


class Service(Protocol):
    """Where the figures of one run go."""

    def write(self, round: int, figures: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run folder: `tensorboard --logdir runs` shows every run."""

    def __init__(self, folder: Path | None, name: str, options: Mapping[str, Any]) -> None:
        if folder is None:
            raise ConfigError("--log tensorboard: needs --out FOLDER, where its files go")
        writer = _import("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder / "tensorboard" / name))
        self._writer = writer
        writer.add_text("options", "\n".join(f"    {key} = {value}" for key, value in options.items()))

    def write(self, round: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, round)

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """Weights & Biases, as its own environment variables say: WANDB_MODE=offline writes files alone."""

    def __init__(self, folder: Path | None, name: str, options: Mapping[str, Any]) -> None:
        wandb = _import("wandb", "wandb")
        self._run = wandb.init(
            project=PROJECT, name=name, dir=None if folder is None else str(folder), config=dict(options)
        )

    def write(self, round: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=round)

    def close(self) -> None:
        self._run.finish()


class Mlflow:
    """MLflow, at MLFLOW_TRACKING_URI. By its client: its plain functions allow one run a process."""

    def __init__(self, folder: Path | None, name: str, options: Mapping[str, Any]) -> None:
        del folder  # MLflow has its own
        mlflow = _import("mlflow", "mlflow")
        experiment = mlflow.set_experiment(PROJECT)
        self._client = mlflow.MlflowClient()
        self._run = self._client.create_run(experiment.experiment_id, run_name=name).info.run_id
        for key, value in options.items():
            self._client.log_param(self._run, key, value)

    def write(self, round: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._client.log_metric(self._run, name, value, step=round)

    def close(self) -> None:
        self._client.set_terminated(self._run)


SERVICES: dict[str, Callable[[Path | None, str, Mapping[str, Any]], Service]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": Mlflow,
}


def check_installed(kind: str) -> None:
    """A ConfigError where the package of a service is not there: said before a run has made its folder."""
    if kind != "none":
        _import(kind, kind)


def _import(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"--log {extra}: needs a package; install p2p-tally[{extra}] ({error})") from None
