"""Models: sizes by hand, initialisation by seed, the user's own, BatchNorm without running averages."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.models import build, construct, models

torch.set_num_threads(1)


def made(shape: tuple[int, ...] = (64,), classes: int = 10, seed: int = 0, default: str = "mlp", **options: object):
    return build(Federation.parse(options), default, shape, classes, seed)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize(
    ("shape", "options", "parameters"),
    [
        ((64,), {}, 4810),  # 64 x 64 + 64 + 64 x 10 + 10, as the paper counts
        ((64,), {"width": 16}, 1210),  # 64 x 16 + 16 + 16 x 10 + 10
        ((64,), {"depth": 3}, 13_130),  # two more of 64 x 64 + 64
        ((3, 8, 8), {"width": 4}, 822),  # flattened: 192 x 4 + 4 + 4 x 10 + 10
    ],
)
def test_mlp(shape: tuple[int, ...], options: dict[str, object], parameters: int) -> None:
    model = made(shape, model="mlp", **options)
    assert count(model) == parameters
    assert model(torch.zeros(5, *shape)).shape == (5, 10)


@pytest.mark.parametrize(("shape", "parameters"), [((64,), 650), ((3, 8, 8), 1930)])  # inputs x 10 + 10
def test_linear(shape: tuple[int, ...], parameters: int) -> None:
    model = made(shape, model="linear")
    assert count(model) == parameters
    x = torch.randn(2, 5, *shape)
    assert model(x[0]).shape == (5, 10)
    torch.testing.assert_close(model(x[0] + x[1]) + model(torch.zeros(5, *shape)), model(x[0]) + model(x[1]))


@pytest.mark.parametrize(
    ("shape", "options", "parameters"),
    [
        # 3 x 3 kernels without bias, GroupNorm with two vectors, and the head:
        # 9 x (1 x 16 + 16 x 32 + 32 x 64) + 2 x (16 + 32 + 64) + 64 x 10 + 10
        ((64,), {}, 24_058),
        ((1, 8, 8), {}, 24_058),
        # 9 x (3 x 4 + 4 x 8) + 2 x (4 + 8) + 8 x 10 + 10
        ((3, 32, 32), {"width": 4, "depth": 2}, 510),
    ],
)
def test_cnn(shape: tuple[int, ...], options: dict[str, object], parameters: int) -> None:
    model = made(shape, model="cnn", **options)
    assert count(model) == parameters
    assert model(torch.zeros(2, *shape)).shape == (2, 10)


def test_cnn_of_any_width() -> None:
    for width in (1, 3, 6, 12):  # the groups of GroupNorm must divide the channels
        assert made((1, 8, 8), model="cnn", width=width)(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def test_half_a_cnn_is_the_cnn_on_averaged_images() -> None:
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    whole, half = made((3, 16, 16), model="cnn"), made((3, 32, 32), model="cnn-half")
    averaged = x.view(3, 3, 16, 2, 16, 2).mean((3, 5))
    torch.testing.assert_close(half(x), whole(averaged))
    assert made((64,), model="cnn-half", depth=2)(torch.zeros(2, 64)).shape == (2, 10)
    with pytest.raises(ConfigError, match=r"^--depth 3: images of 8 x 8 can be halved 3 times, once before the first"):
        made((1, 8, 8), model="cnn-half")


def test_cnn_sees_a_flat_square_as_its_image() -> None:
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(made((64,), model="cnn")(x.flatten(1)), made((1, 8, 8), model="cnn")(x))


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((1, 8, 8), {"depth": 4}, "--depth 4: images of 8 x 8 can be halved 3 times"),
        ((1, 32, 5), {}, "--depth 3: images of 32 x 5 can be halved 2 times"),
        ((60,), {}, "--model cnn: needs inputs .* not \\(60,\\)"),
        ((8, 8), {}, "--model cnn: needs inputs .* not \\(8, 8\\)"),
    ],
)
def test_cnn_refuses_in_one_line(shape: tuple[int, ...], options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        made(shape, model="cnn", **options)


def test_auto_is_the_datas_own_model() -> None:
    assert count(made((1, 8, 8), default="cnn")) == 24_058
    assert count(made((1, 8, 8), default="mlp")) == 4810
    assert count(made((1, 8, 8), default="cnn", model="mlp")) == 4810


def test_an_unknown_model_is_one_line_with_those_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        made(model="resnet99")
    message = str(caught.value)
    assert message.startswith("--model resnet99: accepted is auto, ")
    assert all(name in message for name in models())
    assert "\n" not in message


def test_initialisation_is_the_seeds_and_leaves_global_randomness_alone() -> None:
    torch.manual_seed(123)
    expected = torch.rand(4)
    torch.manual_seed(123)
    one = made(seed=1)
    assert torch.equal(torch.rand(4), expected)
    assert torch.equal(flat(one), flat(made(seed=1)))
    assert not torch.equal(flat(one), flat(made(seed=2)))


# --- the user's own

USERS_MODELS = """
import torch
from torch import nn

def everything(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0], classes))

def nothing():
    return nn.Linear(64, 10)

def only_classes(classes, width=5):
    return nn.Sequential(nn.Linear(64, width), nn.Linear(width, classes))

def normalised():
    return nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))

def no_module():
    return [1, 2, 3]
"""


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = "users_models_of_test_learning_models"
    monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / f"{name}.py").write_text(USERS_MODELS)
    return name


@pytest.mark.parametrize(
    ("function", "parameters"),
    # 64 x 10 + 10; the same; 64 x 5 + 5 + 5 x 10 + 10
    [("everything", 650), ("nothing", 650), ("only_classes", 385)],
)
def test_a_users_function_is_given_what_it_asks_for(users: str, function: str, parameters: int) -> None:
    model = made(model=f"{users}:{function}")
    assert count(model) == parameters
    assert model(torch.zeros(3, 64)).shape == (3, 10)


def test_a_users_model_is_initialised_by_the_seed(users: str) -> None:
    spec = f"{users}:nothing"
    assert torch.equal(flat(made(model=spec, seed=5)), flat(made(model=spec, seed=5)))
    assert not torch.equal(flat(made(model=spec, seed=5)), flat(made(model=spec, seed=6)))


def test_batch_norm_keeps_no_running_averages_unless_it_is_constructed_alone(users: str) -> None:
    federation = Federation(model=f"{users}:normalised")
    x = torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
    for make, moved in ((build, False), (construct, True)):
        model = make(federation, "mlp", (64,), 10, 0)
        model(x)
        assert bool(model.get_buffer("1.running_mean").abs().sum() > 0) == moved


def test_a_users_function_that_gives_no_module_is_one_line(users: str) -> None:
    with pytest.raises(ConfigError, match=r"^--model \S+:no_module: [^\n]*torch\.nn\.Module, not list$"):
        made(model=f"{users}:no_module")
    with pytest.raises(ConfigError, match=r"^--model \S+:missing: [^\n]*has no function 'missing'$"):
        made(model=f"{users}:missing")
