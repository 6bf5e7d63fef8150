"""From a description to learners: what is held out, cut and checked, and whose initialisation each peer has."""

import logging
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError, OperatorError
from p2p_tally.ids import NodeName, ranked_names
from p2p_tally.learning.data import Arrays, Examples, every_index
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.methods import METHODS
from p2p_tally.learning.setup import Task, make_learner, pick_device, prepare

torch.set_num_threads(1)


def inputs(count: int, first: int = 0) -> np.ndarray:
    """Examples whose first number is their own."""
    return np.stack([np.arange(first, first + count), np.ones(count), np.zeros(count)], axis=1).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with task.npz: 60 training and 12 test examples, three classes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    np.savez(
        "task.npz",
        x_train=inputs(60),
        y_train=np.arange(60) % 3,
        x_test=inputs(12, first=1000),
        y_test=np.arange(12) % 3,
    )
    return tmp_path


def prepared(**options: object) -> Task:
    defaults: dict[str, object] = {
        "data": "npz:task.npz",
        "nodes": 3,
        "probes_per_round": 4,
        "partition": "iid",
        "rounds": 30,
    }
    return prepare(Federation.parse(defaults | options))


def numbers(examples: Examples) -> list[int]:
    return [int(x) for x in examples.take(every_index(examples))[0][:, 0]]


def refusal(**options: object) -> str:
    """The one line that a description is refused with."""
    with pytest.raises(OperatorError) as caught:
        task = prepared(**options)
        make_learner(task, NodeName("node-0"), 0, "cpu")
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- shards, probes, test set


@pytest.mark.usefixtures("folder")
def test_every_training_example_is_a_probe_or_in_one_shard() -> None:
    task = prepared(probe_count=9)
    pool = numbers(task.probes.examples)
    private = [number for shard in task.shards for number in numbers(shard)]
    assert len(pool) == 9
    assert sorted(pool + private) == list(range(60))
    assert numbers(task.test) == list(range(1000, 1012))
    assert (task.classes, task.input_shape, task.default_model) == (3, (3,), "mlp")


@pytest.mark.usefixtures("folder")
def test_the_holdout_is_the_sources_own_size_and_follows_the_seed() -> None:
    pools = [numbers(prepared(seed=seed).probes.examples) for seed in (0, 0, 1)]
    assert len(pools[0]) == 6  # a tenth
    assert pools[0] == pools[1]
    assert pools[0] != pools[2]


@pytest.mark.usefixtures("folder")
def test_open_defaults_are_filled_in() -> None:
    federation = prepared().federation
    assert (federation.warmup, federation.alpha, federation.merge_every) == (3, 0.5, 50)
    assert (federation.tail, federation.eval_every) == (1, 1)


def test_digits_are_split_as_the_figures_say() -> None:
    task = prepare(Federation())
    assert len(task.test) == 400
    assert len(task.probes.examples) == 200
    assert sum(len(shard) for shard in task.shards) == 1197
    assert len(task.shards) == 8
    assert len(make_learner(task, NodeName("node-0"), 0, "cpu").parameters) == 4810


@pytest.mark.usefixtures("folder")
def test_probes_of_a_file_leave_all_the_data_private() -> None:
    np.savez("probes.npz", x=inputs(8, first=500), y=np.arange(8) % 2)
    task = prepared(probes="npz:probes.npz")
    assert numbers(task.probes.examples) == list(range(500, 508))
    assert sorted(number for shard in task.shards for number in numbers(shard)) == list(range(60))
    assert task.probes.labelled
    assert task.federation.alpha == 0.5
    assert numbers(prepared(probes="npz:probes.npz", probe_count=5).probes.examples) == list(range(500, 505))


@pytest.mark.usefixtures("folder")
def test_probes_without_labels_set_alpha_to_zero() -> None:
    np.savez("probes.npz", x=inputs(8, first=500))
    task = prepared(probes="npz:probes.npz", kl_decay=5)
    assert not task.probes.labelled
    assert task.federation.alpha == 0.0


@pytest.mark.usefixtures("folder")
def test_the_labels_of_another_whole_data_set_do_not_count() -> None:
    np.savez("other.npz", x_train=inputs(8, 500), y_train=np.full(8, 9), x_test=inputs(2, 700), y_test=np.zeros(2, int))
    task = prepared(probes="npz:other.npz")
    assert not task.probes.labelled
    assert numbers(task.probes.examples) == list(range(500, 508))


@pytest.mark.usefixtures("folder")
def test_probes_in_the_test_set_are_counted_aloud(caplog: pytest.LogCaptureFixture) -> None:
    np.savez("probes.npz", x=np.concatenate([inputs(6, 500), inputs(2, 1000)]), y=np.arange(8) % 3)
    with caplog.at_level(logging.WARNING):
        prepared(probes="npz:probes.npz")
    assert [message[:43] for message in caplog.messages] == ["2 of 8 probes are in the test set too: accu"]
    caplog.clear()
    prepared()
    assert caplog.messages == []


# --- refusals

REFUSED = {
    "holdout of everything": ({"probe_count": 60}, "--probe-count 60: accepted is less than the 60"),
    "more probes a round than the pool": ({"probes_per_round": 7}, "--probes-per-round 7: accepted is at most"),
    "more nodes than examples": ({"nodes": 55}, "--nodes 55: only 54 private examples"),
    "more likeliest classes than classes": ({"method": "rcfd", "top_k": 4}, "--top-k 4: accepted is at most the 3"),
    "unknown data": ({"data": "mnist99"}, "--data mnist99: accepted is one of"),
    "no such file": ({"data": "npz:none.npz"}, "--data npz:none.npz: No such file"),
    "no such probes": ({"probes": "npz:none.npz"}, "--probes npz:none.npz: No such file"),
    "no test set": ({"data": "npz:probes.npz"}, "--data npz:probes.npz: has no array 'x_train'"),
    "probes of another shape": (
        {"probes": "npz:wide.npz"},
        "--probes npz:wide.npz: inputs of shape (4,), but the data",
    ),
    "probes of more classes": ({"probes": "npz:classes.npz"}, "--probes npz:classes.npz: labels up to class 3, but"),
    "more probes than there are": (
        {"probes": "npz:probes.npz", "probe_count": 9},
        "--probe-count 9: accepted is at most the 8 probes of npz:probes.npz",
    ),
    "labels that are not there": ({"probes": "npz:bare.npz", "alpha": 0.5}, "--alpha 0.5: the probes carry no labels"),
    "labels alone, not there": ({"probes": "npz:bare.npz", "method": "no-consensus"}, "--alpha 1: the probes carry no"),
    "automatic without labels": ({"probes": "npz:bare.npz", "warmup": "auto"}, "--warmup auto: "),
    "unknown model": ({"model": "resnet99"}, "--model resnet99: accepted is auto"),
    "unknown partition": ({"partition": "fair"}, "--partition fair: accepted is"),
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line_that_names_the_option(case: str) -> None:
    np.savez("probes.npz", x=inputs(8, 500), y=np.arange(8) % 3)
    np.savez("bare.npz", x=inputs(8, 500))
    np.savez("wide.npz", x=np.zeros((8, 4), dtype=np.float32))
    np.savez("classes.npz", x=inputs(8, 500), y=np.arange(8) % 4)
    options, said = REFUSED[case]
    assert refusal(**options).startswith(said)


@pytest.mark.usefixtures("folder")
def test_labels_do_not_matter_to_methods_that_ask_no_probes() -> None:
    np.savez("bare.npz", x=inputs(8, 500))
    assert prepared(probes="npz:bare.npz", method="fedavg", alpha=0.5).federation.method == "fedavg"


# --- learners


def learners(task: Task) -> list[Learner]:
    return [make_learner(task, name, rank, "cpu") for rank, name in enumerate(ranked_names(3))]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("start", ["auto", "own", "common"])
@pytest.mark.parametrize("method", METHODS)
def test_peers_that_merge_begin_alike_unless_told_otherwise(method: str, start: str) -> None:
    if METHODS[method].common_start and start == "own":
        assert refusal(method=method, start=start).startswith(f"--start own: the method {method} needs a common start")
        return
    task = prepared(method=method, start=start)
    digests = [learner.parameters.sha256() for learner in learners(task)]
    alike = start == "common" or (start == "auto" and bool(task.federation.merge_every))
    assert len(set(digests)) == (1 if alike else 3)
    assert [learner.parameters.sha256() for learner in learners(task)] == digests
    other_seed = learners(prepared(method=method, start=start, seed=1))
    assert not set(digests) & {learner.parameters.sha256() for learner in other_seed}


@pytest.mark.usefixtures("folder")
def test_hidden_labels_are_as_if_there_were_none() -> None:
    known, hidden = prepared(), prepared(probe_labels="hidden")
    assert known.probes.labelled and known.federation.alpha == 0.5
    assert not hidden.probes.labelled and hidden.federation.alpha == 0.0
    assert hidden.probes.sample(3)[1] is None and hidden.probes.labels_of(3) is None
    assert torch.equal(hidden.probes.sample(3)[0], known.probes.sample(3)[0])
    assert "the probes carry no labels" in refusal(probe_labels="hidden", method="no-consensus")
    np.savez("probes.npz", x=inputs(20, first=2000))
    assert "--anchor 6" in refusal(probe_labels="hidden", probes="npz:probes.npz", anchor=6)


@pytest.mark.usefixtures("folder")
def test_peers_that_hide_labels_need_not_have_the_same() -> None:
    np.savez("bare.npz", x=inputs(20, first=2000))
    np.savez("labelled.npz", x=inputs(20, first=2000), y=np.arange(20) % 3)
    bare, labelled = (prepared(probe_labels="hidden", probes=f"npz:{name}.npz") for name in ("bare", "labelled"))
    assert bare.probes.digest() == labelled.probes.digest()
    assert bare.probes.digest() != prepared(probes="npz:labelled.npz").probes.digest()


@pytest.mark.usefixtures("folder")
def test_a_learner_gets_the_shard_of_its_rank_and_the_common_rest() -> None:
    task = prepared()
    for rank, learner in enumerate(learners(task)):
        assert learner.private is task.shards[rank]
        assert learner.probes is task.probes
        assert learner.test is task.test
        assert learner.federation == task.federation


# --- the user's own

USERS_OWN = """
import torch
from torch import nn
from p2p_tally import Arrays, Source

def task():
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    return Source(Arrays(x[:30], y[:30]), Arrays(x[30:], y[30:]), classes=2, input_shape=(5,), holdout=6)

def no_test():
    x = torch.zeros(40, 5)
    return Source(Arrays(x, torch.zeros(40).long()), None, classes=2, input_shape=(5,), holdout=6)

def model(input_shape, classes):
    return nn.Sequential(nn.Linear(*input_shape, 4), nn.BatchNorm1d(4), nn.Linear(4, classes))

def too_many_outputs(input_shape, classes):
    return nn.Linear(*input_shape, classes + 2)

def other_inputs(classes):
    return nn.Linear(7, classes)

def doubles(input_shape, classes):
    return nn.Linear(*input_shape, classes).double()
"""


@pytest.fixture
def users(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    package = "users_package_of_test_learning_setup"
    for name in (package, f"{package}.own"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (folder / package).mkdir()
    (folder / package / "own.py").write_text(USERS_OWN)
    return f"{package}.own"


def test_own_data_and_model_learn(users: str) -> None:
    task = prepared(data=f"{users}:task", model=f"{users}:model", lr=0.01, local_steps=50, start="own")
    assert isinstance(task.probes.examples, Arrays)
    assert len(task.probes.examples) == 6
    learner = make_learner(task, NodeName("node-1"), 1, "cpu")
    assert len(learner.parameters) == 5 * 4 + 4 + 4 + 4 + 4 * 2 + 2
    before = learner.evaluate()
    learner.train()
    assert learner.evaluate().loss < before.loss
    # BatchNorm's statistics follow from the parameters: a checkpoint holds none.
    assert set(learner.state()) == {"parameters", "generator", *(f"optimiser.{key}" for key in learner.optimiser.state)}


def test_own_functions_that_do_not_fit_are_one_line(users: str) -> None:
    own = {"data": f"{users}:task"}
    assert refusal(data=f"{users}:no_test") == f"--data {users}:no_test: has no test set"
    assert refusal(data=f"{users}:nothing").startswith(f"--data {users}:nothing: ")
    assert refusal(**own, model=f"{users}:nothing").startswith(f"--model {users}:nothing: ")
    assert refusal(**own, model=f"{users}:doubles").startswith("--model")
    # Outputs past the classes would be votes for classes that nobody counts.
    assert refusal(**own, model=f"{users}:too_many_outputs").startswith(f"--model {users}:too_many_outputs: ")
    assert refusal(**own, model=f"{users}:other_inputs").startswith(f"--model {users}:other_inputs: ")


# --- devices


@pytest.mark.parametrize(
    ("wanted", "devices", "picked"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda:0"),
        ("cpu", 2, "cpu"),
        ("cuda", 1, "cuda"),
        ("cuda:1", 2, "cuda:1"),
    ],
)
def test_device(wanted: str, devices: int, picked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: devices > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    assert pick_device(wanted) == picked


@pytest.mark.parametrize(("wanted", "devices"), [("cuda", 0), ("cuda:0", 0), ("cuda:2", 2)])
def test_a_device_that_is_not_there_is_one_line(wanted: str, devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    with pytest.raises(ConfigError, match=rf"^--device {wanted}: this machine has {devices} [^\n]*$"):
        pick_device(wanted)


def test_the_first_test_examples_where_not_all_are_asked_for(folder: Path) -> None:
    federation = Federation(data="npz:task.npz", nodes=2, partition="iid", probe_count=6, probes_per_round=4)
    whole = prepare(federation).test
    some = prepare(federation.model_copy(update={"test_count": 5})).test
    assert (len(whole), len(some)) == (12, 5)
    first = torch.arange(5)
    for one, other in zip(whole.take(first), some.take(first), strict=True):
        assert one is not None and other is not None
        assert torch.equal(one, other)
    with pytest.raises(ConfigError, match=r"--test-count 13: accepted is at most the 12 test examples"):
        prepare(federation.model_copy(update={"test_count": 13}))
