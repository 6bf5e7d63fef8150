"""AdamW over one flat vector is torch's AdamW over the model's own tensors."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from p2p_tally.learning.optimiser import FlatAdamW, adamw_by_rows
from p2p_tally.learning.parameters import FlatParameters

torch.set_num_threads(1)


def model() -> nn.Sequential:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.parametrize(("lr", "weight_decay"), [(1e-3, 5e-4), (3e-2, 0.0), (1e-2, 0.5)])
def test_twenty_steps_equal_torchs_own(lr: float, weight_decay: float) -> None:
    ours, theirs = model(), model()
    flat = FlatParameters(ours, torch.device("cpu"))
    start = flat.vector.clone()
    optimiser = FlatAdamW(flat.vector, flat.gradient, lr, weight_decay)
    reference = torch.optim.AdamW(theirs.parameters(), lr=lr, weight_decay=weight_decay, foreach=False)
    random = torch.Generator().manual_seed(5)
    for _ in range(20):
        x, y = torch.randn(7, 6, generator=random), torch.randint(3, (7,), generator=random)
        flat.gradient.zero_()
        F.cross_entropy(ours(x), y).backward()
        optimiser.step()
        reference.zero_grad()
        F.cross_entropy(theirs(x), y).backward()
        reference.step()
    expected = torch.cat([parameter.detach().flatten() for parameter in theirs.parameters()])
    torch.testing.assert_close(flat.vector, expected, rtol=1e-5, atol=1e-6)
    assert (flat.vector - start).abs().max() > 5 * lr  # it went somewhere, so the agreement says something
    mean = torch.cat([reference.state[parameter]["exp_avg"].flatten() for parameter in theirs.parameters()])
    torch.testing.assert_close(optimiser.state["mean"], mean, rtol=1e-4, atol=1e-6)
    assert optimiser.state["step"].item() == 20


def test_two_steps_by_hand() -> None:
    # lr 0.1, decay 0.5, gradients 2 then -1, from w = 1:
    #   step 1: w x (1 - 0.05) = 0.95; m = 0.2, v = 0.004; corrected 2 and 4: w = 0.95 - 0.1 x 2/2 = 0.85
    #   step 2: w x 0.95 = 0.8075; m = 0.9 x 0.2 - 0.1 = 0.08, corrected by 1 - 0.81 = 0.19: 0.421053
    #           v = 0.999 x 0.004 + 0.001 = 0.004996, corrected by 1 - 0.998001 = 0.001999: 2.499250
    #           w = 0.8075 - 0.1 x 0.421053 / sqrt(2.499250)
    vector, gradient = torch.tensor([1.0]), torch.tensor([2.0])
    optimiser = FlatAdamW(vector, gradient, 0.1, 0.5)
    optimiser.step()
    assert vector.item() == pytest.approx(0.85, rel=1e-6)
    gradient.fill_(-1.0)
    optimiser.step()
    expected = 0.8075 - 0.1 * (0.08 / 0.19) / math.sqrt(0.004996 / 0.001999)
    assert vector.item() == pytest.approx(expected, rel=1e-5)
    assert optimiser.state["mean"].item() == pytest.approx(0.08, rel=1e-6)
    assert optimiser.state["square"].item() == pytest.approx(0.004996, rel=1e-6)


def test_a_gradient_in_pieces_is_the_gradient() -> None:
    random = torch.Generator().manual_seed(6)
    start, gradients = torch.randn(10, generator=random), torch.randn(4, 10, generator=random)
    whole, cut = start.clone(), start.clone()
    one, other = FlatAdamW(whole, torch.empty(10), 0.1, 0.5), FlatAdamW(cut, None, 0.1, 0.5)
    for gradient in gradients:
        one.step([gradient])
        other.step([gradient[:6].reshape(2, 3), gradient[6:7], gradient[7:]])
    torch.testing.assert_close(cut, whole, rtol=1e-6, atol=1e-7)
    for key, value in one.state.items():
        torch.testing.assert_close(other.state[key], value, rtol=1e-6, atol=1e-7)
    assert other.state["step"].item() == 4


def test_the_vector_is_changed_in_place_and_the_gradient_is_not() -> None:
    vector, gradient = torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0])
    view = vector[:1]
    FlatAdamW(vector, gradient, 0.1, 0.0).step()
    assert view.item() == pytest.approx(0.9)
    assert vector[1] == 1.0  # no gradient, no decay
    assert gradient.tolist() == [1.0, 0.0]


def test_rows_with_counts_of_their_own_take_the_same_steps() -> None:
    """The second row begins five steps later."""
    draw = torch.Generator().manual_seed(1)
    rows = torch.randn(2, 30, generator=draw)
    state = {"mean": torch.zeros(2, 30), "square": torch.zeros(2, 30), "steps": torch.zeros(2, 1)}
    alone = [FlatAdamW(row.clone(), None, 0.01, 0.1) for row in rows]
    for step in range(12):
        gradient = torch.randn(2, 30, generator=draw)
        taking = 2 if step >= 5 else 1
        adamw_by_rows(
            rows[:taking], gradient[:taking], {key: value[:taking] for key, value in state.items()}, 0.01, 0.1
        )
        for one, own in list(zip(alone, gradient, strict=True))[:taking]:
            one.step([own])
    assert state["steps"].tolist() == [[12.0], [7.0]]
    torch.testing.assert_close(rows, torch.stack([one.vector for one in alone]), rtol=1e-5, atol=1e-6)
