"""Targets of any row for all peers at once: whose answers each one gets, in which order, and with which weights."""

import numpy as np
import pytest
import torch

from p2p_tally.config import Federation
from p2p_tally.ids import ranked_names
from p2p_tally.learning.answers import soft_labels, top_k
from p2p_tally.learning.methods import METHODS, Method, Sends
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.runner.stacked.any_target import answers_of, any_target, is_batched
from p2p_tally.runner.stacked.neighbourhoods import Neighbourhoods
from p2p_tally.topologies import build

CALLS: list[tuple[list[int], list[float] | None]] = []


def written_down(answers, classes, federation, weights) -> np.ndarray:
    """Notes whose answers it was given: peer n votes n for its only probe."""
    CALLS.append(([int(one[0]) for one in answers], None if weights is None else weights.round(3).tolist()))
    return np.full((1, classes), len(answers), np.float32)


ROW = Method("mine", sends=Sends.VOTES, answer=soft_labels, target=written_down, learns_from_probes=True)


def targets(graph: str, speaking: list[bool], tally_weights: str = "uniform", hops: int = 1) -> np.ndarray:
    CALLS.clear()
    count = len(speaking)
    audience = Neighbourhoods(build(graph, ranked_names(count)), 1, hops, tally_weights)
    given = [np.array([peer]) for peer in range(count)]
    return any_target(ROW, Federation(), 2, given, audience.heard(np.array(speaking))).numpy()


def test_on_a_mesh_one_target_serves_all() -> None:
    assert targets("mesh", [True] * 4).tolist() == [[[4, 4]]]
    assert CALLS == [([0, 1, 2, 3], None)]
    targets("mesh", [True, False, True, True])
    assert CALLS == [([0, 2, 3], None)]


def test_elsewhere_each_peer_has_the_answers_of_its_neighbourhood() -> None:
    assert targets("line", [True] * 4)[:, 0, 0].tolist() == [2, 3, 3, 2]
    assert CALLS == [([0, 1], None), ([0, 1, 2], None), ([1, 2, 3], None), ([2, 3], None)]
    targets("line", [True] * 4, hops=2)
    assert CALLS == [([0, 1, 2], None), ([0, 1, 2, 3], None), ([0, 1, 2, 3], None), ([1, 2, 3], None)]


def test_who_hears_nobody_gets_zeros() -> None:
    found = targets("line", [True, False, False, False])
    assert found[:, 0, 0].tolist() == [1, 1, 0, 0]
    assert CALLS == [([0], None), ([0], None)]


def test_mixing_weights_are_those_of_who_speaks() -> None:
    # Metropolis-Hastings on a line of 3: an edge weighs 1 / (1 + 2) = 1/3, an end keeps 2/3 for itself, the middle 1/3.
    targets("line", [True] * 3, "mixing")
    assert CALLS == [([0, 1], [0.667, 0.333]), ([0, 1, 2], [0.333] * 3), ([1, 2], [0.333, 0.667])]
    targets("line", [True, False, True], "mixing")
    assert CALLS == [([0], [1.0]), ([0, 2], [0.5, 0.5]), ([2], [1.0])]


def test_answers_are_cut_up_by_peer_as_they_are_heard() -> None:
    logits = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    federation = Federation(top_k=2)
    row = Method("mine", sends=Sends.TOP_K, answer=top_k, target=written_down, learns_from_probes=True)
    exact = answers_of(row, federation, BallotFormat("top-k", 2, 4, 2), logits)
    assert len(exact) == 3
    for peer, (classes, shares) in enumerate(exact):
        own_classes, own_shares = top_k(logits[peer], federation)
        np.testing.assert_array_equal(classes, own_classes)
        np.testing.assert_array_equal(shares, own_shares)
    rounded = answers_of(row, federation, BallotFormat("top-k", 2, 4, 2, "int8"), logits)
    assert not np.array_equal(rounded[0][1], exact[0][1])


@pytest.mark.parametrize("name", METHODS)
def test_the_rows_of_the_paper_have_batched_code(name: str) -> None:
    others = ("fedct", "dsfl", "idkd", "cronus", "fd", "fedproto", "desa")
    assert is_batched(METHODS[name], Federation()) == (name not in others)
    assert not is_batched(METHODS[name], Federation(tally_weights="reliability"))


def test_a_row_of_ones_own_has_none() -> None:
    assert not is_batched(ROW, Federation())
