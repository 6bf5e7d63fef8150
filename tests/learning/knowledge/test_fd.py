"""FD: the mean by class over the peers that hold it, and a step of two peers, on paper."""

import numpy as np
import pytest
import torch
from torch import nn

from p2p_tally.config import Federation
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.data.probes import ProbePool
from p2p_tally.learning.knowledge.fd import mean_of_holders
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.schedule import Channel, resolve


def test_three_peers_on_paper() -> None:
    """Class 0 is held by the first two: the mean of (0.8, 0.2) and (0.4, 0.6), however many examples each has. Class 1
    is held by the third alone. With weights 3 : 1 class 0 is (0.7, 0.3)."""
    tables = [
        np.array([[9, 0.8, 0.2], [0, 0, 0]], np.float32),
        np.array([[1, 0.4, 0.6], [0, 0, 0]], np.float32),
        np.array([[0, 0, 0], [2, 0.1, 0.9]], np.float32),
    ]
    np.testing.assert_allclose(mean_of_holders(tables, 2, Federation()), [[0.6, 0.4], [0.1, 0.9]], rtol=1e-6)
    weights = np.array([0.6, 0.2, 0.2])
    np.testing.assert_allclose(mean_of_holders(tables, 2, Federation(), weights), [[0.7, 0.3], [0.1, 0.9]], rtol=1e-6)
    assert not mean_of_holders(tables[:2], 2, Federation())[1].any()


def linear(weight: list[list[float]]) -> nn.Module:
    model = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(weight))
    return model


def test_a_step_of_two_peers_on_paper() -> None:
    """Two peers with one example each, x = 1, of class 0 and of class 1. Both look at it twice (two probes a round).

    The first has logits (ln 3, 0): its table says (3/4, 1/4) for class 0. The second has logits (0, 0): (1/2, 1/2) for
    class 1. The first's target for its example is alpha (1, 0) + (1 - alpha) (3/4, 1/4), which is (7/8, 1/8) with
    alpha 1/2: softmax minus target gives it the gradient (3/4 - 7/8, 1/4 - 1/8) = (-1/8, 1/8)."""
    federation = resolve(
        Federation(method="fd", probes_per_round=2, nodes=2, lr=0.1, weight_decay=0, alpha=0.5), labelled=True
    )
    pool = ProbePool(Arrays(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64)), 2, 0)
    test = Arrays(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64))
    peers = [
        Learner(name, federation, linear(weight), 2, Arrays(torch.ones(1, 1), torch.tensor([label])), pool, test)
        for name, label, weight in (("a", 0, [[np.log(3)], [0.0]]), ("b", 1, [[0.0], [0.0]]))
    ]
    tables = [peer.vote(1) for peer in peers]
    np.testing.assert_allclose(tables[0], [[2, 0.75, 0.25], [0, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(tables[1], [[0, 0, 0], [2, 0.5, 0.5]], rtol=1e-6)
    steps = []
    first = peers[0]
    first.optimiser.step = lambda gradient: steps.append([piece.clone() for piece in gradient])  # type: ignore[method-assign]
    first.distill(1, tables, Channel(0.5, 0.5))
    assert torch.cat([piece.flatten() for piece in steps[0]]).tolist() == pytest.approx([-1 / 8, 1 / 8], rel=1e-5)
