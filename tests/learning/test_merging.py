"""Averages by hand, and DiLoCo's outer step against torch's own Nesterov SGD."""

import numpy as np
import pytest
import torch

from p2p_tally.config import Federation
from p2p_tally.learning.merging import OuterNesterov, mean, outer_nesterov, replace, weighted_sum

torch.set_num_threads(1)


def vectors(*rows: list[float]) -> list[np.ndarray]:
    return [np.array(row, dtype=np.float32) for row in rows]


def test_mean_by_hand() -> None:
    average = mean(vectors([1, 2], [3, 6], [5, -2]))
    assert average.dtype == np.float32
    assert average.tolist() == [3, 2]


def test_mean_of_one_is_a_copy() -> None:
    (own,) = vectors([1, 2])
    average = mean([own])
    own[0] = 9
    assert average.tolist() == [1, 2]


def test_the_vectors_are_left_alone_even_if_read_only() -> None:
    given = vectors([1, 2], [3, 4])
    for vector in given:
        vector.flags.writeable = False  # as they come out of a frame
    mean(given)
    weighted_sum(given, [0.5, 0.5])
    assert [vector.tolist() for vector in given] == [[1, 2], [3, 4]]


def test_mean_is_one_float32_sum_in_the_order_given() -> None:
    # 1e8 + 1 is 1e8 in float32, so (1e8 + 1) - 1e8 = 0, but (1e8 - 1e8) + 1 = 1.
    assert mean(vectors([1e8], [1], [-1e8])).tolist() == [0]
    assert mean(vectors([1e8], [-1e8], [1])).tolist() == [np.float32(1 / 3)]


def test_weighted_sum_by_hand() -> None:
    # 1/2 x (1, 0) + 1/4 x (2, 4) + 1/4 x (4, 8) = (2, 3)
    average = weighted_sum(vectors([1, 0], [2, 4], [4, 8]), [0.5, 0.25, 0.25])
    assert average.dtype == np.float32
    assert average.tolist() == [2, 3]


def test_equal_weights_are_the_mean() -> None:
    random = np.random.default_rng(0)
    given = [random.normal(size=50).astype(np.float32) for _ in range(5)]
    np.testing.assert_allclose(weighted_sum(given, [0.2] * 5), mean(given), rtol=1e-5, atol=1e-6)


def test_a_weight_for_every_vector() -> None:
    with pytest.raises(ValueError, match="zip"):
        weighted_sum(vectors([1], [2]), [1.0])


def test_a_weighted_sum_of_one_is_that_one() -> None:
    """A node that heard nobody in a merge mixes with itself."""
    assert weighted_sum(vectors([1, 2]), [1.0]).tolist() == [1, 2]


def test_where_a_merge_replaces_the_mean_is_the_model() -> None:
    step = replace(torch.tensor([8.0]), Federation())
    assert step.step(torch.tensor([4.0])).item() == 4.0
    assert step.state == {}


def test_the_outer_step_takes_its_options() -> None:
    step = outer_nesterov(torch.tensor([8.0]), Federation(method="diloco", outer_lr=0.5, outer_momentum=0.5))
    assert step.step(torch.tensor([4.0])).item() == 5.0


def test_outer_step_by_hand() -> None:
    # lr 1/2, momentum 1/2, from 8. Mean of the peers 4, then 2:
    #   g = 8 - 4 = 4, v = 4, step = g + v/2 = 6, w = 8 - 3 = 5
    #   g = 5 - 2 = 3, v = 2 + 3 = 5, step = 3 + 2.5 = 5.5, w = 5 - 2.75 = 2.25
    outer = OuterNesterov(torch.tensor([8.0]), lr=0.5, momentum=0.5)
    assert outer.step(torch.tensor([4.0])).item() == 5.0
    assert outer.state["velocity"].item() == 4.0
    assert outer.step(torch.tensor([2.0])).item() == 2.25
    assert outer.state["velocity"].item() == 5.0
    assert outer.state["anchor"].item() == 2.25


@pytest.mark.parametrize(("lr", "momentum"), [(0.7, 0.9), (1.0, 0.5), (0.3, 0.99)])
def test_outer_steps_are_torchs_nesterov_sgd(lr: float, momentum: float) -> None:
    random = torch.Generator().manual_seed(2)
    start = torch.randn(40, generator=random)
    parameter = torch.nn.Parameter(start.clone())
    reference = torch.optim.SGD([parameter], lr=lr, momentum=momentum, nesterov=True)
    outer = OuterNesterov(start, lr, momentum)
    for _ in range(8):
        average = outer.state["anchor"] + torch.randn(40, generator=random)  # where local training took the peers
        parameter.grad = parameter.detach() - average
        reference.step()
        merged = outer.step(average)
        torch.testing.assert_close(merged, parameter.detach(), rtol=1e-5, atol=1e-5)


def test_without_momentum_and_with_step_one_the_mean_is_the_model() -> None:
    outer = OuterNesterov(torch.tensor([8.0, 1.0]), lr=1.0, momentum=0.0)
    assert outer.step(torch.tensor([4.0, 3.0])).tolist() == [4, 3]


def test_outer_step_keeps_its_own_anchor() -> None:
    start, average = torch.tensor([8.0]), torch.tensor([4.0])
    outer = OuterNesterov(start, 0.5, 0.5)
    outer.step(average)
    assert (start.item(), average.item()) == (8.0, 4.0)
