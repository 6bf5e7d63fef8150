"""--init and --train: which parameters train, from which values, and that peers hold the same of what does not."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import own_models
import pytest
import torch
from conftest import make_daemons, run_all, run_as_simulated, small
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from p2p_tally.config import EngineName, Federation, NodeSettings
from p2p_tally.errors import ConfigError, DataError, HandshakeError
from p2p_tally.ids import NodeName
from p2p_tally.learning.architectures import of_rank
from p2p_tally.learning.models import build
from p2p_tally.learning.norms import keep_no_averages
from p2p_tally.learning.setup import make_learner, prepare
from p2p_tally.learning.start import choose_trained, frozen_digest, frozen_tensors, same_values, warm_start
from p2p_tally.learning.start_file import start_digests, start_file
from p2p_tally.protocol.handshake import check_hello
from p2p_tally.runner.runs.run import Run
from p2p_tally.runner.simulation.simulate import simulate


def net(seed: int = 0, classes: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, classes))
    keep_no_averages(model)
    return model


def trained(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def write(path: Path, model: nn.Module, **more: Tensor) -> Path:
    save_file({key: value.clone() for key, value in model.state_dict().items()} | more, path)
    return path


# --- which train


@pytest.mark.parametrize(
    ("train", "names"),
    [
        ("all", ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"]),
        ("head", ["3.weight", "3.bias"]),
        ("*.bias", ["0.bias", "1.bias", "3.bias"]),
        ("1.*,head", ["1.weight", "1.bias", "3.weight", "3.bias"]),
    ],
)
def test_what_is_named_trains(train: str, names: list[str]) -> None:
    model = net()
    choose_trained(model, train)
    assert trained(model) == names


@pytest.mark.parametrize(("model", "names"), [("tinygpt:8x1", ["head.weight"]), ("cnn", ["14.weight", "14.bias"])])
def test_the_head_is_the_last_layer(model: str, names: list[str]) -> None:
    shape, classes = ((12,), 20) if model.startswith("tiny") else ((3, 32, 32), 4)
    made = build(of_rank(Federation(model=model), 0), "", shape, classes, 0)
    choose_trained(made, "head")
    assert trained(made) == names


def test_a_single_layer_is_its_own_head_and_what_was_frozen_stays_so() -> None:
    alone = nn.Linear(2, 2)
    choose_trained(alone, "head")
    assert trained(alone) == ["weight", "bias"]
    model = own_models.with_extras()
    choose_trained(model, "0.*,still")
    assert trained(model) == ["0.weight", "0.bias"]


def test_a_pattern_without_a_match_is_one_line() -> None:
    expected = (
        r"^--train fc\.\*: no parameter has such a name; accepted is all, head, or patterns of 0\.weight, 0\.bias, "
        r"1\.weight, 1\.bias, 3\.weight, 3\.bias$"
    )
    with pytest.raises(ConfigError, match=expected):
        choose_trained(net(), "fc.*")


# --- from which values


def test_all_parameters_of_a_file_are_taken(tmp_path: Path) -> None:
    source, model = net(1), net(2)
    warm_start(model, write(tmp_path / "m.safetensors", source))
    assert all(torch.equal(value, source.state_dict()[key]) for key, value in model.state_dict().items())


def test_a_new_head_begins_anew_and_frozen_statistics_are_the_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, model = net(1, classes=7), net(2)
    with torch.no_grad():
        source.get_buffer("1.running_mean").fill_(5)
    head = model[3].weight.detach().clone()
    choose_trained(model, "head")
    path = write(tmp_path / "m.safetensors", source, extra=torch.zeros(1))
    for _ in range(2):
        warm_start(model, path)
    assert torch.equal(model[0].weight, source[0].weight)
    assert torch.equal(model[3].weight, head)
    assert model.get_buffer("1.running_mean").tolist() == [5.0] * 4
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        f"--init {path}: not in the file, or of another shape, and so begun anew: 3.weight, 3.bias",
        f"--init {path}: not of this model, and so not used: extra",
    ]


def test_a_file_without_statistics_fits_a_model_that_gets_them_from_the_probes(tmp_path: Path) -> None:
    source = {key: value for key, value in net(1).state_dict().items() if key.endswith(("weight", "bias"))}
    save_file({key: value.clone() for key, value in source.items()}, tmp_path / "m.safetensors")
    model = net(2)
    warm_start(model, tmp_path / "m.safetensors")
    assert torch.equal(model[0].weight, source["0.weight"])
    frozen = net(2)
    choose_trained(frozen, "head")
    with pytest.raises(ConfigError, match=r"1\.running_mean is missing in the file, float32 \(4,\) in the model"):
        warm_start(frozen, tmp_path / "m.safetensors")


def test_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", net(1, classes=7))
    expected = (
        r"^--init \S+: 3\.weight is float32 \(7, 4\) in the file, float32 \(3, 4\) in the model; accepted is a file "
        r"with all parameters but those that --train names$"
    )
    with pytest.raises(ConfigError, match=expected):
        warm_start(net(), path)
    save_file({"other": torch.zeros(2)}, tmp_path / "other.safetensors")
    alone = nn.Linear(2, 2)
    alone.weight.requires_grad_(False)
    with pytest.raises(ConfigError, match=r"weight is missing in the file"):
        warm_start(alone, tmp_path / "other.safetensors")
    (tmp_path / "text").write_text("no model")
    with pytest.raises(DataError, match=r"^--init \S+text: not a safetensors file"):
        warm_start(net(), tmp_path / "text")
    with pytest.raises(ConfigError, match=r"^--init nowhere: no such file; accepted is a safetensors file, or the fol"):
        simulate(small(init="nowhere"))


def test_a_folder_gives_each_node_its_own(tmp_path: Path) -> None:
    before = simulate(small(merge_every=0), NodeSettings(out=tmp_path / "run"))
    federation = small(init=tmp_path / "run", merge_every=0, lr=1e-9, weight_decay=0, rounds=1, warmup=0)
    assert start_file(federation, NodeName("a:1")) == tmp_path / "run" / "a_1.safetensors"
    after = simulate(federation)
    for one, other in zip(before.models, after.models, strict=True):
        torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=1e-5, atol=1e-6)
    with pytest.raises(
        ConfigError, match=r"a folder, from which every node takes its own model, and these nodes begin"
    ):
        simulate(small(init=tmp_path / "run"))
    assert len(start_digests(federation)) == 4


# --- a run


@pytest.fixture
def backbone(tmp_path: Path) -> Path:
    """A model of an earlier run, with BatchNorm."""
    run = simulate(small(model="own_models:with_norms", rounds=20), NodeSettings(out=tmp_path / "before"))
    assert run.folder is not None
    return run.folder / "node-0.safetensors"


HEAD: dict[str, Any] = {"model": "own_models:with_norms", "train": "head", "rounds": 8}


@pytest.mark.parametrize("engine", ["exact", "stacked"])
def test_frozen_parameters_stay_and_only_the_head_is_sent(backbone: Path, engine: EngineName, tmp_path: Path) -> None:
    whole = simulate(small(model="own_models:with_norms"), engine=engine)
    run = simulate(small(**HEAD, init=backbone), NodeSettings(out=tmp_path / "run"), engine=engine)
    before, after = load_file(backbone), load_file(tmp_path / "run" / "node-1.safetensors")
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed == {"9.weight", "9.bias"}  # statistics of frozen layers stay too
    parameters = 16 * 10 + 10
    assert parameters_of(run) == parameters
    # A merge sends 2 (N - 1) / N vectors of four-byte floats a peer, and there are two.
    less = 2 * 2 * 3 / 4 * 4 * (parameters_of(whole) - parameters)
    assert whole.summary()["payload_bytes"] - run.summary()["payload_bytes"] == less
    assert run.accuracy[0].mean() > whole.accuracy[0].mean() + 10  # it begins with what the earlier run has learned


def parameters_of(run: Run) -> int:
    assert isinstance(run.provenance.parameters, int)
    return run.provenance.parameters


async def test_daemons_have_the_bits_of_the_simulation(tmp_path: Path) -> None:
    """Without dropout: daemons in one process would draw from one generator."""
    chosen = {"model": "own_models:with_norms_alone", "nodes": 3}
    await asyncio.to_thread(simulate, small(**chosen), NodeSettings(out=tmp_path / "before"))
    federation = small(**chosen, train="head", init=tmp_path / "before" / "node-0.safetensors")
    daemons = await run_as_simulated(federation, tmp_path / "out")
    names = [name for name, _ in daemons[0].fields]
    assert "frozen parameters" in names and "first parameters" in names


def test_a_resumed_run_has_the_frozen_parameters_again(backbone: Path) -> None:
    task = prepare(small(**HEAD, init=backbone))
    first, second = (make_learner(task, NodeName("node-0"), 0, "cpu") for _ in range(2))
    for _ in range(3):
        first.train()
    second.restore(first.snapshot())
    assert second.evaluate() == first.evaluate()


async def test_peers_that_hold_other_frozen_parameters_refuse_each_other(backbone: Path, tmp_path: Path) -> None:
    held = load_file(backbone)
    held["1.weight"] = held["1.weight"] + 1
    save_file(held, tmp_path / "other.safetensors")
    ours, theirs = (
        make_daemons(small(**HEAD, init=path, nodes=2), tmp_path / path.stem)[rank]
        for rank, path in enumerate((backbone, tmp_path / "other.safetensors"))
    )
    with pytest.raises(HandshakeError, match=r"^frozen parameters is [0-9a-f]{16} here, [0-9a-f]{16} there$"):
        check_hello(ours.hello(), theirs.hello(), ["node-1"])


async def test_peers_that_only_vote_may_differ(backbone: Path, tmp_path: Path) -> None:
    daemons = make_daemons(small(**HEAD, init=backbone, nodes=2, merge_every=0), tmp_path / "out")
    assert not {"frozen parameters", "first parameters"} & {name for name, _ in daemons[0].fields}
    await run_all(daemons)


@pytest.mark.parametrize("engine", ["exact", "stacked"])
def test_a_simulation_refuses_them_too(engine: EngineName) -> None:
    expected = r"^--model own_models:with_extras: (still|mark) does not train and is another at node-1 than at node-0, "
    with pytest.raises(ConfigError, match=expected):
        simulate(small(model="own_models:with_extras", start="own"), engine=engine)
    simulate(small(model="own_models:with_extras", start="own", merge_every=0, rounds=2), engine=engine)
    simulate(small(model="own_models:with_extras", rounds=4), engine=engine)


# --- the digest


@given(st.sampled_from(["0.weight", "0.bias", "1.weight", "1.running_mean", "1.running_var"]), st.integers(0, 3))
def test_any_frozen_value_changes_the_digest_and_no_other_does(key: str, place: int) -> None:
    model, other = net(), net()
    for each in (model, other):
        choose_trained(each, "head")
    with torch.no_grad():
        other[3].weight.add_(1)
    assert frozen_digest(model) == frozen_digest(other)
    with torch.no_grad():
        other.state_dict()[key].view(-1)[place] += 1
    assert frozen_digest(model) != frozen_digest(other)


def test_where_everything_trains_there_is_nothing_to_compare() -> None:
    assert frozen_digest(net()) is None and frozen_tensors(net()) == {}


@given(st.lists(st.floats(), min_size=1), st.integers(0, 9))
def test_same_values(values: list[float], place: int) -> None:
    one = torch.tensor(values, dtype=torch.float64)
    assert same_values(one, one.clone())
    other = one.clone()
    other[place % len(one)] = 1.5 if other[place % len(one)] != 1.5 else 2.5
    assert not same_values(one, other) and not same_values(None, one) and not same_values(one, one.float())


def test_a_list_of_patterns_is_an_option() -> None:
    assert Federation.parse({"train": "fc.*,layer4.*"}).train == "fc.*,layer4.*"
    with pytest.raises(ConfigError, match=r"^--train a,: accepted is all, head, or patterns of parameter names"):
        Federation.parse({"train": "a,"})
