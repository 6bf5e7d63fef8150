"""What a node answers: the likeliest class, or no opinion where it is least sure."""

import numpy as np
import pytest
import torch

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.answers import unsure, votes

LOGITS = torch.tensor([[3.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 5.0]])


@pytest.mark.parametrize(
    ("abstain", "expected"),
    [
        (0.0, [0, 1, 1, 2]),
        (0.25, [0, 1, 3, 2]),
        (0.5, [0, 3, 3, 2]),
        (0.74, [0, 3, 3, 2]),  # two whole votes of four
        (0.75, [3, 3, 3, 2]),
        ("below:0.5", [0, 1, 3, 2]),
        ("below:0.95", [3, 3, 3, 2]),
        ("below:0", [0, 1, 1, 2]),
        ("below:1", [3, 3, 3, 3]),
    ],
)
def test_the_least_confident_votes_are_left_out(abstain: object, expected: list[int]) -> None:
    assert votes(LOGITS, Federation.parse({"abstain": abstain})).tolist() == expected


def test_many_peers_at_once_are_as_each_alone() -> None:
    many = torch.randn(5, 7, 4, generator=torch.Generator().manual_seed(2))
    settings = Federation(abstain=0.4)
    np.testing.assert_array_equal(votes(many, settings), np.stack([votes(own, settings) for own in many]))


def test_even_probes_are_left_out_in_order() -> None:
    assert unsure(np.array([0.5, 0.5, 0.5, 0.5]), 0.5).tolist() == [True, True, False, False]


def test_a_model_that_has_diverged_is_sure_of_nothing() -> None:
    broken = LOGITS.clone()
    broken[3] = torch.nan
    assert votes(broken, Federation(abstain=0.25)).tolist()[3] == 3


@pytest.mark.parametrize("value", [1, -0.1, "below:2", "below:-1", "below:", "half", "0.5,"])
def test_what_is_no_share(value: object) -> None:
    with pytest.raises(ConfigError, match=r"--abstain .*: accepted is a number from 0, below 1, or below:P"):
        Federation.parse({"abstain": value})
