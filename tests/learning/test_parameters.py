"""One flat vector under a model: views both ways, digests, and what a peer's vector must be."""

import hashlib

import numpy as np
import pytest
import torch
from torch import nn

from p2p_tally.errors import ConfigError, ParameterError
from p2p_tally.learning import parameters
from p2p_tally.learning.parameters import FlatParameters, checked_vector

torch.set_num_threads(1)

CPU = torch.device("cpu")


def small_model() -> nn.Sequential:
    """2-3-2: 2 x 3 + 3 + 3 x 2 + 2 = 17 parameters."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))


def test_vector_holds_the_parameters_in_the_models_order() -> None:
    model = small_model()
    before = torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])
    flat = FlatParameters(model, CPU)
    assert len(flat) == 17
    assert torch.equal(flat.vector, before)


def test_a_change_of_the_vector_is_a_change_of_the_model_and_back() -> None:
    model = small_model()
    flat = FlatParameters(model, CPU)
    flat.vector.copy_(torch.arange(17.0))
    assert model[0].weight.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert model[0].bias.tolist() == [6, 7, 8]
    assert model[2].weight.tolist() == [[9, 10, 11], [12, 13, 14]]
    assert model[2].bias.tolist() == [15, 16]
    with torch.no_grad():
        model[2].bias[1] = -1
    assert flat.vector[16] == -1


def test_outputs_follow_the_vector() -> None:
    model = nn.Linear(2, 1, bias=False)
    flat = FlatParameters(model, CPU)
    flat.vector.copy_(torch.tensor([2.0, -1.0]))
    assert model(torch.tensor([[3.0, 4.0]])).item() == 2.0  # 2 x 3 - 1 x 4


def test_gradients_land_in_the_flat_gradient() -> None:
    model = small_model()
    plain = small_model()
    flat = FlatParameters(model, CPU)
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    for times in (1, 2):  # autograd adds up in place: the views stay the gradient
        model(x).square().sum().backward()
        plain(x).square().sum().backward()
        expected = torch.cat([parameter.grad.flatten() for parameter in plain.parameters()])
        torch.testing.assert_close(flat.gradient, expected)
        assert times == 2 or flat.gradient.abs().max() > 0


def test_a_parameter_the_output_does_not_use_has_gradient_zero() -> None:
    model = small_model()
    flat = FlatParameters(model, CPU)
    model[0](torch.ones(1, 2)).sum().backward()
    assert flat.gradient[:9].abs().min() > 0
    assert flat.gradient[9:].tolist() == [0.0] * 8


@pytest.mark.parametrize("large", [False, True])
def test_backward_begins_anew_each_time(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(parameters, "LARGE", 1)
    model, plain = small_model(), small_model()
    flat = FlatParameters(model, CPU)
    assert (flat.gradient is None) == large
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    plain(x).square().sum().backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in plain.parameters()])
    for _ in range(2):
        pieces = flat.backward(model(x).square().sum())
        torch.testing.assert_close(torch.cat([piece.flatten() for piece in pieces]), expected)
        assert [piece.shape for piece in flat.pieces(flat.vector)] == [piece.shape for piece in pieces]
    # What the loss does not reach has gradient zero, not the last one.
    pieces = flat.backward(model[0](x).sum())
    assert torch.cat([piece.flatten() for piece in pieces])[9:].tolist() == [0.0] * 8


def test_export_is_the_vector_and_replace_is_its_inverse() -> None:
    model = small_model()
    flat = FlatParameters(model, CPU)
    values = np.arange(17, dtype=np.float32)
    flat.replace(torch.from_numpy(values))
    exported = flat.export()
    assert exported.dtype == np.float32
    np.testing.assert_array_equal(exported, values)
    values[0] = 99  # the model keeps a copy
    assert model[0].weight[0, 0] == 0


def test_sha256_is_that_of_the_little_endian_floats() -> None:
    flat = FlatParameters(small_model(), CPU)
    values = np.linspace(-1, 1, 17, dtype=np.float32)
    flat.replace(torch.from_numpy(values))
    assert flat.sha256() == hashlib.sha256(values.astype("<f4").tobytes()).hexdigest()
    before = flat.sha256()
    flat.vector[5] = float(np.nextafter(values[5], np.float32(2)))  # the last bit of one parameter
    assert flat.sha256() != before


def test_schema_tells_shapes_and_names_apart_but_not_values() -> None:
    schema = FlatParameters(small_model(), CPU).schema
    torch.manual_seed(1)
    other_values = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    assert FlatParameters(other_values, CPU).schema == schema
    assert FlatParameters(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)), CPU).schema != schema
    assert FlatParameters(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), CPU).schema != schema


def test_tied_parameters_count_once() -> None:
    first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    flat = FlatParameters(model, CPU)
    assert len(flat) == 9
    flat.vector.copy_(torch.eye(3).flatten() * 2)
    assert model(torch.ones(1, 3)).tolist() == [[4, 4, 4]]


def test_frozen_parameters_stay_out() -> None:
    model = small_model()
    model[0].requires_grad_(False)
    flat = FlatParameters(model, CPU)
    assert len(flat) == 8
    assert flat.schema != FlatParameters(small_model(), CPU).schema


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^--model: .*no parameters to train$"):
        FlatParameters(nn.Flatten(), CPU)
    frozen = small_model().requires_grad_(False)
    with pytest.raises(ConfigError, match="no parameters to train"):
        FlatParameters(frozen, CPU)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_model_that_is_not_all_float32_is_refused(dtype: torch.dtype) -> None:
    model = small_model()
    model[2].to(dtype)
    with pytest.raises(ConfigError, match=r"^--model: accepted .* float32$"):
        FlatParameters(model, CPU)


def test_a_peers_vector_passes_as_it_is() -> None:
    values = np.array([1.0, -2.0, 0.0], dtype=np.float32)
    assert checked_vector(values, 3) is values


def test_large_finite_parameters_pass_though_their_squares_overflow() -> None:
    values = np.array([3e38, -3e38], dtype=np.float32)
    assert checked_vector(values, 2) is values


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.zeros(4, dtype=np.float32), "shape"),
        (np.zeros(2, dtype=np.float32), "shape"),
        (np.zeros((3, 1), dtype=np.float32), "shape"),
        (np.zeros(3, dtype=np.float64), "shape"),
        (np.zeros(3, dtype=np.int32), "shape"),
        (np.array([0, np.nan, 0], dtype=np.float32), "not-finite"),
        (np.array([0, 0, np.inf], dtype=np.float32), "not-finite"),
        (np.array([-np.inf, np.inf, 0], dtype=np.float32), "not-finite"),
        (np.array([3e38, np.nan, 3e38], dtype=np.float32), "not-finite"),
    ],
)
def test_a_peers_bad_vector_is_the_peers_fault(values: np.ndarray, reason: str) -> None:
    with pytest.raises(ParameterError) as caught:
        checked_vector(values, 3)
    assert caught.value.reason == reason
