"""--log: what TensorBoard's own reader finds in the files, and what the other services are told."""

import json
import logging
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import make_daemons, run_all, small

from p2p_tally.config import NodeSettings, ServiceSettings
from p2p_tally.errors import ConfigError
from p2p_tally.runner.launch.launcher import launch
from p2p_tally.runner.simulation.simulate import simulate
from p2p_tally.tracking.figures import figures_of
from p2p_tally.tracking.tracker import open_tracker


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard reads from a folder: by tag, round and value."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Modules wandb and mlflow that keep what they are told."""
    calls: dict[str, list[Any]] = {"init": [], "log": [], "end": []}

    def init(**options: Any) -> Any:
        calls["init"].append(options)
        return SimpleNamespace(
            log=lambda figures, step: calls["log"].append((step, figures)), finish=lambda: calls["end"].append(True)
        )

    class Client:
        def create_run(self, experiment: str, run_name: str) -> Any:
            calls["init"].append({"experiment": experiment, "name": run_name, "config": {}})
            return SimpleNamespace(info=SimpleNamespace(run_id="run-1"))

        def log_param(self, run: str, key: str, value: Any) -> None:
            calls["init"][-1]["config"][key] = value

        def log_metric(self, run: str, name: str, value: float, step: int) -> None:
            assert run == "run-1"
            if not calls["log"] or calls["log"][-1][0] != step:
                calls["log"].append((step, {}))
            calls["log"][-1][1][name] = value

        def set_terminated(self, run: str) -> None:
            calls["end"].append(True)

    experiment = SimpleNamespace(experiment_id="7")
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    mlflow = SimpleNamespace(MlflowClient=Client, set_experiment=lambda name: experiment)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    return calls


def test_a_line_as_flat_figures() -> None:
    line = {
        "name": "a",
        "round": 3,
        "accuracy": [50.0, 70.0, math.nan],
        "loss": [None, None, None],
        "merged": True,
        "margin": None,
        "sent": {"vote": {"payload": 16.0}},
        "seconds": {"train": 0.5},
    }
    assert figures_of(line) == {
        "accuracy/mean": 60.0,
        "accuracy/spread": 10.0,
        "accuracy/node-0": 50.0,
        "accuracy/node-1": 70.0,
        "merged": 1.0,
        "sent/vote/payload": 16.0,
        "seconds/train": 0.5,
    }


def test_tensorboard_reads_back_what_a_simulation_recorded(tmp_path: Path) -> None:
    run = simulate(small(nodes=2), NodeSettings(out=tmp_path / "run", log="tensorboard"))
    assert run.parameters_sha256 == simulate(small(nodes=2)).parameters_sha256
    found = scalars(tmp_path / "run" / "tensorboard" / "run")
    means = [(line.round, sum(line.accuracy) / 2) for line in run.lines]
    assert found["accuracy/mean"] == [(round, pytest.approx(mean, rel=1e-6)) for round, mean in means]
    assert found["payload_bytes"] == [(line.round, line.payload_bytes) for line in run.lines]
    assert {"accuracy/node-1", "loss/mean", "agreement", "merged", "seconds/train"} <= set(found)


def test_a_launch_writes_them_once_and_not_from_each_node(tmp_path: Path) -> None:
    run = launch(small(nodes=1), ServiceSettings(out=tmp_path / "run", log="tensorboard", device="cpu"))
    found = scalars(tmp_path / "run" / "tensorboard" / "run")
    assert [step for step, _ in found["accuracy/spread"]] == list(run.rounds)
    assert [path.name for path in (tmp_path / "run" / "tensorboard").iterdir()] == ["run"]


async def test_a_node_writes_its_own(tmp_path: Path) -> None:
    [daemon] = make_daemons(small(nodes=1), tmp_path, log="tensorboard", keep_record=True)
    await run_all([daemon])
    found = scalars(tmp_path / "tensorboard" / "node-0")
    lines = [json.loads(text) for text in (tmp_path / "node-0.jsonl").read_text().splitlines()]
    assert found["accuracy"] == [(line["round"], pytest.approx(line["accuracy"], rel=1e-6)) for line in lines]


@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_the_other_services_are_told_the_same(kind: str, told: dict[str, list[Any]], tmp_path: Path) -> None:
    run = simulate(small(nodes=2), NodeSettings(out=tmp_path / "mine", log=kind))
    [begun] = told["init"]
    assert begun["name"] == "mine" and begun["config"]["rounds"] == 8 and begun["config"]["method"] == "tally"
    assert told["log"] == [(line.round, figures_of(line.as_json())) for line in run.lines]
    assert told["end"] == [True]


def test_a_run_without_a_folder_has_a_service_too(told: dict[str, list[Any]]) -> None:
    simulate(small(nodes=2), NodeSettings(log="wandb"))
    assert told["init"][0]["name"] == "tally+fa4" and told["init"][0]["dir"] is None
    with pytest.raises(ConfigError, match=r"^--log tensorboard: needs --out FOLDER"):
        simulate(small(nodes=2), NodeSettings(log="tensorboard"))


def test_a_service_that_fails_ends_no_run_and_says_so_once(
    told: dict[str, list[Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def log_metric(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(sys.modules["mlflow"].MlflowClient, "log_metric", log_metric)
    with caplog.at_level(logging.WARNING, "p2p_tally.tracking"):
        run = simulate(small(nodes=2), NodeSettings(out=tmp_path / "run", log="mlflow"))
    assert len(run.lines) == 8
    assert [record.message for record in caplog.records if "--log" in record.message] == [
        "--log mlflow has failed, and gets no more: ConnectionError: no route to host"
    ]


@pytest.mark.parametrize("kind", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_one_line_that_names_the_extra(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(ConfigError, match=rf"^--log {kind}: needs a package; install p2p-tally\[{kind}\]"):
        simulate(small(nodes=2), NodeSettings(out=tmp_path / "run", log=kind))
    monkeypatch.undo()
    simulate(small(nodes=2, rounds=2), NodeSettings(out=tmp_path / "run"))  # the folder can be used again


def test_a_service_that_cannot_be_opened_says_why(told: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        raise ValueError("no API key")

    monkeypatch.setattr(sys.modules["wandb"], "init", init)
    with pytest.raises(ConfigError, match=r"^--log wandb: cannot be opened: ValueError: no API key$"):
        open_tracker("wandb", None, "x", small())


def test_another_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^--log comet: accepted is tensorboard, wandb, mlflow or none$"):
        NodeSettings.parse({"log": "comet"})
