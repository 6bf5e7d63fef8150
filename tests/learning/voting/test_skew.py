"""The skew of a peer's own data: counted, undone in the local loss, and taken out of its votes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from p2p_tally.learning.data import Arrays
from p2p_tally.learning.data.tokens import every_window
from p2p_tally.learning.voting.skew import RATE, balance_shift, calibration, class_counts, local_loss

CPU = torch.device("cpu")
SKEWED = Arrays(torch.zeros(10, 1), torch.tensor([0] * 7 + [2] * 3))


def test_labels_are_counted() -> None:
    assert class_counts(SKEWED, 4).tolist() == [7, 0, 3, 0]
    assert class_counts(SKEWED.subset(torch.tensor([0, 9])), 4).tolist() == [1, 0, 1, 0]


def test_every_token_of_a_text_is_counted_once() -> None:
    tokens = np.array([0, 1, 1, 2, 1, 0, 2, 2, 2], np.uint16)
    counted = class_counts(every_window(tokens, 2), 3)
    assert counted.tolist() == np.bincount(tokens[1:], minlength=3).tolist()


def test_the_shift_by_hand() -> None:
    shift = balance_shift(torch.tensor([7, 0, 3, 0]), 0.5)
    assert shift.tolist() == pytest.approx([0.5 * np.log(share / 14) for share in (8, 1, 4, 1)])


def test_without_balance_the_loss_is_plain() -> None:
    assert local_loss(SKEWED, 4, 0.0, CPU) is F.cross_entropy


def test_a_balanced_loss_is_that_of_shifted_logits() -> None:
    logits, labels = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 2, 0, 2, 0])
    expected = F.cross_entropy(logits + balance_shift(torch.tensor([7, 0, 3, 0]), 1.0), labels)
    assert float(local_loss(SKEWED, 4, 1.0, CPU)(logits, labels)) == float(expected)


def test_a_balanced_model_that_knows_nothing_has_no_slope() -> None:
    """Labels as common as in the data, and logits that do not tell classes apart: there is nothing to learn."""
    logits = torch.zeros(10, 4, requires_grad=True)
    labels = torch.tensor([0] * 7 + [2] * 3)
    many = Arrays(torch.zeros(10_000, 1), labels.repeat(1000))
    local_loss(many, 4, 1.0, CPU)(logits, labels).backward()
    assert logits.grad is not None
    assert logits.grad.sum(0).abs().max() < 1e-3
    logits.grad = None
    F.cross_entropy(logits, labels).backward()
    assert logits.grad.sum(0).abs().max() > 0.1


# --- calibration


def test_no_calibration_unless_asked_for() -> None:
    assert calibration(10, 0.0) is None


def test_calibration_by_hand() -> None:
    one = calibration(2, 0.5)
    assert one is not None
    logits = torch.tensor([[0.9, 0.1], [0.7, 0.3]]).log()
    mean = torch.tensor([0.5 * (1 - RATE) + 0.8 * RATE, 0.5 * (1 - RATE) + 0.2 * RATE])
    torch.testing.assert_close(one.calibrated(logits), logits - 0.5 * mean.log())
    torch.testing.assert_close(one.mean, mean)


def test_a_peer_that_always_says_the_same_comes_to_say_what_differs() -> None:
    one = calibration(3, 1.0)
    assert one is not None
    logits = torch.tensor([[5.0, 1.0, 0.0], [5.0, 0.0, 1.0]])
    for _ in range(500):
        votes = one.calibrated(logits).argmax(-1)
    assert logits.argmax(-1).tolist() == [0, 0] and votes.tolist() == [1, 2]


def test_a_model_that_has_diverged_leaves_the_mean_alone() -> None:
    one = calibration(2, 1.0)
    assert one is not None
    one.calibrated(torch.full((3, 2), torch.nan))
    assert one.mean.tolist() == [0.5, 0.5]


@given(st.integers(0, 1000))
def test_many_peers_at_once_are_as_each_alone(seed: int) -> None:
    logits = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(seed))
    together, alone = calibration(3, 0.7, (4,)), [calibration(3, 0.7) for _ in range(4)]
    assert together is not None
    for _ in range(3):
        rows = together.calibrated(logits)
        for own, row, logit in zip(alone, rows, logits, strict=True):
            assert own is not None
            torch.testing.assert_close(own.calibrated(logit), row)
