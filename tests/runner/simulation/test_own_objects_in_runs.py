"""Runs of a user's own method, model and data: objects in Python, by both engines, and what cannot go into a file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import small
from torch import nn

from p2p_tally import (
    METHODS,
    Arrays,
    Federation,
    Method,
    NodeSettings,
    Sends,
    Source,
    simulate,
    soft_labels,
    top_k,
    votes,
)
from p2p_tally.config import EngineName, ServiceSettings, write_options
from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning.consensus import histogram, mean_top_k
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.setup import prepare
from p2p_tally.runner.launch.launcher import launch
from p2p_tally.runner.runs.folder import RunFolder
from p2p_tally.runner.simulation.checkpoints import checkpoints_of

ENGINES: tuple[EngineName, ...] = ("exact", "stacked")


def own(name: str, like: str, **fields: object) -> Method:
    return replace(METHODS[like], name=name, **fields)  # type: ignore[arg-type]


def again(target):
    """The same target by another function: no engine has batched code for this one."""

    def by_another_function(answers, classes, federation, weights):
        return target(answers, classes, federation, weights)

    return by_another_function


def blobs() -> Source:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (300,), generator=generator)
    x = torch.eye(3)[y] * 3 + torch.randn(300, 3, generator=generator)
    return Source(Arrays(x[:200], y[:200]), Arrays(x[200:], y[200:]), classes=3, input_shape=(3,), holdout=40)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "options",
    [
        {"method": "tally", "ballot": "coded"},
        {"method": "tally", "topology": "ring", "nodes": 5, "tally_weights": "mixing", "inverse_agreement": 0.5},
        {"method": "fedmd", "topology": "ring", "nodes": 5, "hops": 2},
        {"method": "rcfd", "top_k": 2, "tally_weights": "mixing", "topology": "star", "nodes": 5},
        {"method": "rcfd", "merge_when": "drift", "merge_every": 2},
        {"method": "tally", "warmup": "auto", "topology": "line", "nodes": 4},
        {"method": "fedmd", "soft_precision": "int8"},
        {"method": "fedmd", "lr": 1e38, "rounds": 4},  # diverges: there is no ballot for what it would say
    ],
)
def test_a_row_that_calls_what_a_built_in_row_calls_gives_the_same_run(engine, options) -> None:
    """The stacked engine takes the generic way here, and the built-in row its own tensor code."""
    base = {"rounds": 8, "nodes": 4, "warmup": 1, "merge_every": 3, "lr": 0.01, "eval_every": 1} | options
    row = METHODS[str(base["method"])]
    theirs = simulate(small(**base), engine=engine)
    ours = simulate(small(**base | {"method": own("mine", row.name, target=again(row.target))}), engine=engine)
    np.testing.assert_allclose(ours.loss, theirs.loss, rtol=1e-3)
    assert [line.sent for line in ours.lines] == [line.sent for line in theirs.lines]
    assert [line.merged for line in ours.lines] == [line.merged for line in theirs.lines]


@pytest.mark.parametrize("engine", ENGINES)
def test_peers_learn_what_the_rows_own_target_says(engine: EngineName) -> None:
    """With nothing else to learn from, a target that always says class 0 makes everybody say class 0."""

    def zero(answers, classes, federation, weights):
        target = np.zeros((len(answers[0]), classes))  # float64 will do
        target[:, 0] = 1
        return target

    data = blobs()
    silent = Source(Arrays(data.train.x * 0, data.train.y), data.test, 3, (3,), 40)  # private inputs say nothing
    federation = Federation(
        method=own("zero", "tally", target=zero),
        data=silent,
        probes=Source(Arrays(data.train.x, None), None, 3, (3,), 0),
        nodes=3,
        rounds=40,
        warmup=0,
        lr=0.05,
        local_steps=1,
        merge_every=0,
        partition="iid",
    )
    run = simulate(federation, engine=engine)
    zeros = 100 * float((data.test.y == 0).float().mean())
    assert run.accuracy[-1] == pytest.approx([zeros] * 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_of_ones_own_takes_the_mean(engine: EngineName) -> None:
    """A merge that goes half of the way; its state is part of the run's, and of a checkpoint's."""

    class Halfway:
        def __init__(self, start: torch.Tensor) -> None:
            self._last = start.clone()

        @property
        def state(self) -> dict[str, torch.Tensor]:
            return {"last": self._last}

        def step(self, average: torch.Tensor) -> torch.Tensor:
            self._last.add_(average).mul_(0.5)
            return self._last

    row = own("halfway", "fedavg", merge_step=lambda start, _: Halfway(start), common_start=True)
    ours, plain = (simulate(small(method=method, rounds=4, merge_every=2), engine=engine) for method in (row, "fedavg"))
    assert ours.merge_rounds == plain.merge_rounds == [2, 4]
    assert ours.parameters_sha256 != plain.parameters_sha256
    assert len(set(ours.parameters_sha256)) == 1  # one start, one mean: one model


@pytest.mark.parametrize("engine", ENGINES)
def test_model_and_data_as_objects(engine: EngineName) -> None:
    def net(input_shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Linear(input_shape[0], classes)

    data = blobs()
    federation = Federation(data=data, model=net, nodes=3, rounds=20, lr=0.05, warmup=2, partition="iid")
    run = simulate(federation, engine=engine)
    assert run.summary()["method"] == "tally"
    assert run.provenance.parameters == 12
    assert run.accuracy[-1].mean() > 70
    probes = Source(data.train, None, classes=3, input_shape=(3,), holdout=0)
    other = simulate(federation.model_copy(update={"probes": probes}), engine=engine)
    assert other.provenance.probes == 200


def test_an_object_that_can_be_imported_is_kept_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kept_by_name.py").write_text(
        "import torch\nfrom p2p_tally import Arrays, METHODS, Source\nfrom dataclasses import replace\n"
        "ROW = replace(METHODS['tally'], name='mine')\n"
        "def net(): return torch.nn.Linear(3, 3)\n"
        "def load(): return DATA\n"
        "x, y = torch.eye(3).repeat(20, 1), torch.arange(3).repeat(20)\n"
        "DATA = Source(Arrays(x, y), Arrays(x, y), 3, (3,), 20)\n"
    )
    import kept_by_name as mine

    federation = Federation(method=mine.ROW, model=mine.net, data=mine.DATA, nodes=2, rounds=2)
    assert (federation.method, federation.model) == ("kept_by_name:ROW", "kept_by_name:net")
    assert federation.data == "kept_by_name:DATA"
    assert Federation(data=mine.load).data == "kept_by_name:load"
    run = simulate(federation, NodeSettings(out=tmp_path / "run"))
    assert run.summary()["method"] == "mine"
    assert 'method = "kept_by_name:ROW"' in (tmp_path / "run/config.toml").read_text()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"method": own("mine", "tally")}, "--method mine: "),
        ({"model": lambda: nn.Linear(64, 10)}, "--model <lambda>: "),
        ({"data": blobs()}, "--data Source(200 examples, 3 classes): "),
        ({"probes": blobs()}, "--probes Source(200 examples, 3 classes): "),
    ],
)
def test_an_object_without_a_name_cannot_go_into_a_file(options, named: str, tmp_path: Path) -> None:
    federation = Federation(**options)
    expected = named + (
        "an object without an import path cannot be written to a file or given to another process; define it in a "
        "module and name it as package.module:NAME"
    )
    for attempt in (
        lambda: simulate(federation, NodeSettings(out=tmp_path / "run")),
        lambda: write_options(tmp_path / "config.toml", federation, NodeSettings()),
        lambda: launch(federation, ServiceSettings(out=tmp_path / "launched")),
    ):
        with pytest.raises(ConfigError) as caught:
            attempt()
        assert str(caught.value) == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": 5}, "--method 5: accepted is one of tally, "),
        ({"method": Method}, "Method'>: accepted is one of tally, "),
        ({"data": {"x": 1}}, "--data {'x': 1}: accepted is a source that "),
        ({"model": 5}, "--model 5: accepted is a model that "),
        ({"data": lambda: 1}, ": accepted is a source that "),
    ],
)
def test_what_is_no_method_no_model_and_no_data_is_one_line(options, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Federation.parse(options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_module_is_no_function_that_makes_one() -> None:
    with pytest.raises(ConfigError, match=r"a Linear; accepted is a function that returns a torch\.nn\.Module"):
        simulate(Federation(model=nn.Linear(64, 10), rounds=1))


def test_an_object_with_the_look_of_a_source_is_none() -> None:
    with pytest.raises(DataError, match="accepted is a p2p_tally Source, not Topping"):
        simulate(Federation(data=Topping(), rounds=1))


class Topping:
    input_shape = (3,)


# --- rows that do not fit


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            own("x", "tally", answer=soft_labels),
            "its answer gives an array (2, 3, 10) for logits (2, 3, 10); accepted of a method that sends votes is an "
            "array (2, 3)",
        ),
        (own("x", "fedmd", answer=votes), "accepted of a method that sends soft is an array (2, 3, 10)"),
        (own("x", "rcfd", answer=votes), "sends top-k is an array (2, 3, 3) and an array (2, 3, 3)"),
        (own("x", "tally", answer=lambda logits, _: None), "its answer gives a NoneType"),
        (own("x", "tally", answer=lambda logits, f: votes(logits, f) + 1), "a class that is none; accepted is 0 to 9"),
        (own("x", "fedmd", answer=lambda logits, f: 2 * soft_labels(logits, f)), "probabilities of a probe do not sum"),
        (own("x", "tally", answer=lambda logits, _: logits.no), "its answer fails: AttributeError: "),
        (own("x", "tally", target=lambda a, c, f, w: np.zeros(c)), "its target gives an array (10,) for 3 probes"),
        (own("x", "tally", target=lambda a, c, f, w: [1]), "its target gives a list"),
        (own("x", "tally", target=lambda a, c, f: 1), "its target fails: TypeError: "),
        (own("x", "tally", target=mean_top_k), "its target fails: "),
        (
            own("x", "tally", target=lambda a, c, f, w: histogram(a, c, f, w if w is None else w[:1])),
            "its target fails: ValueError: ",
        ),  # weights of another length
    ],
)
def test_a_row_whose_functions_do_not_fit_is_refused_before_the_run(row: Method, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(Federation(method=row))
    assert str(caught.value).startswith("--method x: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_row_that_fits_is_tried_and_taken() -> None:
    row = Method("x", sends=Sends.TOP_K, answer=top_k, target=mean_top_k, learns_from_probes=True)
    assert prepare(Federation(method=row, top_k=2)).federation.method is row


def test_checkpoints_of_an_edited_method_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of the row stays the same; what it declares does not. How it is shown does not matter."""
    monkeypatch.syspath_prepend(tmp_path)
    row = own("mine", "tally")
    (tmp_path / "edited_method.py").write_text("ROW = None\n")
    import edited_method

    def whose(row: Method) -> str:
        monkeypatch.setattr(edited_method, "ROW", row)
        task = prepare(Federation(method="edited_method:ROW", nodes=2, rounds=2))
        folder = RunFolder(tmp_path / str(len(list(tmp_path.iterdir()))))
        topology = make_topology(task.federation)
        found = checkpoints_of(folder, task, topology, "exact").federation
        folder.close()
        return found

    assert whose(row) == whose(replace(row, colour="#123456"))
    assert whose(row) != whose(replace(row, waits=False))
