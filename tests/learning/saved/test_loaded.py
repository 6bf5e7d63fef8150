"""`p2p_tally.load` and `Run.models`: ready modules, the user's own code only where the user says so."""

from pathlib import Path

import own_models
import pytest
import torch
from conftest import small
from torch import Tensor, nn

import p2p_tally
from p2p_tally import Arrays, Federation, Source, simulate
from p2p_tally.config import NodeSettings
from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning.data.images import PerChannel
from p2p_tally.learning.saved.about import OWN, About
from p2p_tally.learning.saved.file import ModelFile, model_bytes
from p2p_tally.learning.saved.loaded import loaded
from p2p_tally.learning.setup import prepare

CALLED: list[str] = []


def called() -> nn.Module:
    CALLED.append("here")
    return nn.Linear(64, 10)


def saved(model: nn.Module, about: About) -> ModelFile:
    return ModelFile.parse(model_bytes(model, about), "m")


def about(model: str, **more: object) -> About:
    return About(**{"model": model, "width": 0, "depth": 0, "input_shape": (64,), "classes": 10, **more})  # type: ignore[arg-type]


def test_a_file_of_a_run_gives_a_ready_module(tmp_path: Path) -> None:
    federation = small()
    run = simulate(federation, NodeSettings(out=tmp_path / "run"))
    model = p2p_tally.load(tmp_path / "run" / "node-2.safetensors")
    assert isinstance(model, nn.Module) and not model.training
    x, y = prepare(federation).test.take(torch.arange(400))
    accuracy = 100 * (int((model(x).argmax(-1) == y).sum()) / 400)
    assert accuracy == run.summary()["accuracy"][2]
    assert accuracy == 100 * (int((run.models[2](x).argmax(-1) == y).sum()) / 400)


def test_a_run_without_a_folder_has_its_models_too(tmp_path: Path) -> None:
    kept, stored = simulate(small()), simulate(small(), NodeSettings(out=tmp_path / "run"))
    assert len(kept.models) == len(stored.models) == 4
    assert stored.model_files == []
    for one, other in zip(kept.models, stored.models, strict=True):
        assert all(torch.equal(one.state_dict()[key], value) for key, value in other.state_dict().items())
    assert torch.equal(kept.models[-1].model[1].weight, kept.models[3].model[1].weight)
    with pytest.raises(IndexError):
        kept.models[4]


def test_models_of_several_architectures_and_of_objects_without_a_path() -> None:
    def own() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    assert isinstance(simulate(small(model=own, rounds=2)).models[1].model[1], nn.Linear)
    mixed = simulate(small(model="mlp:8,own_models:with_norms", rounds=2, merge_every=0))
    assert [type(model.model[0]) for model in mixed.models] == [nn.Flatten, nn.Unflatten] * 2


def doubled(x: Tensor) -> Tensor:
    return 2 * x


def test_a_normalisation_of_the_users_own_is_in_the_runs_models() -> None:
    x, y = torch.randn(200, 4), torch.randint(2, (200,))
    source = Source(Arrays(x[:100], y[:100]), Arrays(x[100:], y[100:]), 2, (4,), holdout=20, normalise=doubled)
    run = simulate(Federation(nodes=2, rounds=4, data=source))
    model = run.models[0]
    assert model.about.normalise == OWN
    assert torch.equal(model(x), model.model(2 * x))
    file = ModelFile.parse(run.model_files[0], "m")
    with pytest.raises(
        ConfigError, match=r"^m: its inputs are normalised by a function of its data source's own; name"
    ):
        loaded(file)
    assert torch.equal(loaded(file, normalise=doubled)(x), model(x))


def test_pixels_are_normalised_as_in_the_run() -> None:
    constants = PerChannel((0.5,), (0.25,))
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 10))
    model = loaded(saved(net, about("m:f", input_shape=(1, 2, 2), normalise=constants)), model=net)
    x = torch.tensor([[[[0, 51], [102, 255]]]], dtype=torch.uint8)
    torch.testing.assert_close(model(x), model.model((x / 255 - 0.5) / 0.25))


def test_code_that_a_file_names_runs_only_if_the_user_says_so() -> None:
    file = saved(nn.Linear(64, 10), about("test_loaded:called"))
    CALLED.clear()
    expected = r"^m: its model is test_loaded:called, a function of the user's own; say that it may run with --model "
    with pytest.raises(ConfigError, match=expected):
        loaded(file)
    assert CALLED == []
    assert isinstance(loaded(file, model="test_loaded:called").model, nn.Linear)
    assert CALLED == ["here"]


def test_a_module_that_is_there_already_is_filled() -> None:
    torch.manual_seed(0)
    trained, empty = own_models.with_norms(10), own_models.with_norms(10)
    made = loaded(saved(trained, about("own_models:with_norms")), model=empty)
    assert made.model is empty
    assert torch.equal(empty[9].weight, trained[9].weight)


def test_the_layers_are_as_their_own_code_makes_them() -> None:
    """Somebody who goes on training has BatchNorm as torch has it."""
    made = loaded(saved(own_models.with_norms(10), about("own_models:with_norms")), model="own_models:with_norms")
    assert made.model[2].track_running_stats and not made.model[2].training


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (nn.Linear(64, 9), r"^m: weight is float32 \(10, 64\) in the file, float32 \(9, 64\) in the model$"),
        (nn.Linear(64, 10, bias=False), r"^m: bias is float32 \(10,\) in the file, missing in the model$"),
        (nn.Linear(64, 10).double(), r"^m: weight is float32 \(10, 64\) in the file, float64 \(10, 64\) in the model$"),
    ],
)
def test_a_model_that_does_not_fit_is_said_in_one_line(model: nn.Module, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        loaded(saved(nn.Linear(64, 10), about("m:f")), model=model)


def test_a_model_of_this_project_takes_no_other() -> None:
    with pytest.raises(ConfigError, match=r"^m: its model is mlp; --model is accepted for a model of your own only$"):
        loaded(saved(nn.Linear(64, 10), about("mlp")), model="own_models:with_norms")
