import threading
from typing import Any

import pytest
from torch import Tensor, nn

from p2p_tally import Federation, simulate
from p2p_tally.config import SimulationSettings
from p2p_tally.errors import ConfigError
from p2p_tally.learning.learner import Learner

SIZE = {"nodes": 5, "rounds": 6, "warmup": 1, "merge_every": 3, "local_steps": 2, "batch": 8, "eval_every": 2}


def played(workers: int, **options: Any) -> tuple[list[str], list[dict[str, Any]]]:
    run = simulate(Federation.parse(SIZE | options), SimulationSettings(workers=workers))
    lines = [{key: value for key, value in line.as_json().items() if key != "seconds"} for line in run.lines]
    return run.parameters_sha256, lines


@pytest.mark.parametrize(
    "options",
    [
        {"topology": "mesh"},
        {"topology": "ring", "hops": 2, "warmup": "auto"},
        {"topology": "mesh", "method": "fedmd", "merge_precision": "int8", "link": "1mbit,100ms", "compute": "1s"},
        {"model": "mlp:8,mlp:16", "merge_every": 0, "attack": "flip:1"},
    ],
    ids=str,
)
def test_workers_change_no_bit(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    train = Learner.train

    def noting(learner: Learner, round: int) -> None:
        threads.append(threading.current_thread().name)
        train(learner, round)

    monkeypatch.setattr(Learner, "train", noting)
    one = played(1, **options)
    assert set(threads) == {threading.current_thread().name}
    threads.clear()
    assert played(3, **options) == one
    assert len(threads) == 5 * 6
    assert all(name.startswith("worker") for name in threads)


class Dropping(nn.Module):
    """Draws random numbers without a module that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(nn.functional.dropout(x.flatten(1), 0.5, self.training))
        return logits


@pytest.mark.parametrize(
    ("workers", "options", "said"),
    [
        (6, {}, "--workers 6: accepted is at most the number of nodes, 5"),
        (2, {"model": "test_workers:Dropping"}, "--workers 2: accepted for this model is 1; it draws random numbers"),
        (2, {"attack": "withhold:vote:1"}, "--workers 2 with --attack withhold:vote:1: accepted with this attack is 1"),
        (0, {}, "--workers 0: accepted is a whole number from 1"),
    ],
)
def test_workers_that_cannot_be_are_refused_in_one_line(workers: int, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        simulate(Federation.parse(SIZE | options), SimulationSettings.parse({"workers": workers}))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_workers_of_the_stacked_engine_are_its_threads() -> None:
    runs = [
        simulate(Federation.parse(SIZE | {"nodes": 40}), SimulationSettings(engine="stacked", workers=workers))
        for workers in (1, 2)
    ]
    assert runs[0].parameters_sha256 == runs[1].parameters_sha256
