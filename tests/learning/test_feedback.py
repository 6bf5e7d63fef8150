"""Base and residual of coded merges: what they begin as, when they change, and that a snapshot carries them."""

import hashlib

import numpy as np
import pytest
import torch

from p2p_tally.learning.feedback import NAME_BYTES, ErrorFeedback

START = torch.arange(1.0, 6.0)


def test_peers_begin_with_what_they_have_in_common() -> None:
    own, common = ErrorFeedback(START, common_start=False), ErrorFeedback(START, common_start=True)
    assert own.base.tolist() == [0.0] * 5
    assert common.base.tolist() == START.tolist()
    assert not own.residual.any() and not common.residual.any()
    START.add_(0)  # the base is a copy
    assert not np.shares_memory(common.base, START.numpy())


def test_a_name_is_of_the_bases_values_alone() -> None:
    one, other = ErrorFeedback(START, common_start=True), ErrorFeedback(torch.zeros(5), common_start=False)
    assert one.name != other.name
    other.settle(START.numpy(), np.ones(5, np.float32))
    assert one.name == other.name == hashlib.sha256(START.numpy().astype("<f4").tobytes()).digest()[:NAME_BYTES]


def test_a_completed_merge_sets_both_by_copy() -> None:
    feedback = ErrorFeedback(START, common_start=False)
    merged, kept = np.arange(5, dtype=np.float32), np.full(5, 0.25, np.float32)
    feedback.settle(merged, kept)
    merged += 1
    assert feedback.base.tolist() == [0, 1, 2, 3, 4]
    assert feedback.residual.tolist() == [0.25] * 5


@pytest.mark.parametrize("common_start", [False, True])
def test_state_that_is_written_to_gets_its_name(common_start: bool) -> None:
    feedback, restored = ErrorFeedback(START, common_start), ErrorFeedback(2 * START, common_start)
    feedback.settle(np.arange(5, dtype=np.float32), np.full(5, 0.5, np.float32))
    for key, tensor in restored.state.items():
        tensor.copy_(feedback.state[key])
    restored.restored()
    assert restored.name == feedback.name
    assert restored.residual.tolist() == [0.5] * 5
