"""The arithmetic of methods that exchange parameters, worked by hand for two or three peers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.exchanges.dpfl import greedy
from p2p_tally.learning.exchanges.dspodfl import SPORADIC
from p2p_tally.learning.exchanges.exchange import Exchange, Heard
from p2p_tally.learning.exchanges.gflat import Uphill, flat_gradient
from p2p_tally.learning.exchanges.pame import PARTIAL, mean_of_what_came
from p2p_tally.learning.exchanges.spod_gt import TRACKING, Tracker
from p2p_tally.learning.own import Own
from p2p_tally.runner.stacked.by_method import mixed_by_method
from p2p_tally.topologies import build

OFF = Federation(robust_merge="off")


def over(pairs: set[tuple[int, int]], exchange: Exchange) -> Exchange:
    """The exchange over these directed links."""
    return replace(exchange, links=lambda _f, a, b, _r: (int(a[5:]), int(b[5:])) in pairs)


def merged(exchange: Exchange, graph: str, rows: list[list[float]], **options: Any) -> list[list[float]]:
    names = [f"node-{rank}" for rank in range(len(rows))]
    settings = OFF.model_copy(update=options)
    result: list[list[float]] = mixed_by_method(torch.tensor(rows), exchange, settings, build(graph, names), 1).tolist()
    return result


# --- GFlat: the loss is (w1^2 + 4 w2^2) / 2, so its gradient is (w1, 4 w2)


def test_gflat_looks_uphill_along_its_own_gradient_before_the_first_merge() -> None:
    """At (0.6, 0.2) the gradient is (0.6, 0.8), of length 1. At a distance of 0.5 along it, (0.9, 0.6), it is
    (0.9, 2.4)."""
    w = torch.tensor([[0.6, 0.2]])
    found = flat_gradient(lambda: w * torch.tensor([1.0, 4.0]), w, Uphill(w[0]).state, Federation(rho=0.5))
    torch.testing.assert_close(found, torch.tensor([[0.9, 2.4]]))
    assert w.tolist() == torch.tensor([[0.6, 0.2]]).tolist()  # it came back, bit for bit


def test_gflat_looks_uphill_along_the_last_merge_and_each_peer_along_its_own() -> None:
    """The first peer's merge moved it from (1, 3) to (1, 1): uphill is (0, 1), and at (0.6, 0.7) the gradient is
    (0.6, 2.8). The second was not moved, and looks along its own gradient as above."""
    start = torch.tensor([[1.0, 3.0], [0.6, 0.2]])
    step = Uphill(start)
    average = torch.tensor([[1.0, 1.0], [0.6, 0.2]])
    assert step.step(average).tolist() == average.tolist()
    w = torch.tensor([[0.6, 0.2], [0.6, 0.2]])
    found = flat_gradient(lambda: w * torch.tensor([1.0, 4.0]), w, step.state, Federation(rho=0.5))
    torch.testing.assert_close(found, torch.tensor([[0.6, 2.8], [0.9, 2.4]]))


def test_gflat_computes_one_gradient_a_step_once_it_knows_where_uphill_is() -> None:
    calls = []

    def gradient() -> Tensor:
        calls.append(1)
        return torch.ones(1, 2)

    step = Uphill(torch.zeros(2))
    flat_gradient(gradient, torch.zeros(1, 2), step.state, Federation())
    step.step(torch.ones(2))
    flat_gradient(gradient, torch.zeros(1, 2), step.state, Federation())
    assert len(calls) == 2 + 1


# --- DSpodFL


def test_dspodfl_leaves_the_weight_of_an_unused_link_with_the_peer() -> None:
    """A line of 0, 3 and 9: all weights of links are 1/3. Over the first link alone 0 becomes 1 and 3 becomes 2."""
    first = over({(0, 1), (1, 0)}, SPORADIC)
    assert np.array(merged(first, "line", [[0.0], [3.0], [9.0]])).ravel() == pytest.approx([1.0, 2.0, 9.0])
    both = over({(0, 1), (1, 0), (1, 2), (2, 1)}, SPORADIC)
    assert np.array(merged(both, "line", [[0.0], [3.0], [9.0]])).ravel() == pytest.approx([1.0, 4.0, 7.0])
    assert merged(over(set(), SPORADIC), "line", [[0.0], [3.0], [9.0]]) == [[0.0], [3.0], [9.0]]


# --- PaME

TRAVEL = {(0, 1): [0, 1], (0, 2): [1, 2], (1, 2): [3]}  # which of four coordinates, by pair


def test_pame_takes_the_mean_of_what_came_and_keeps_the_rest() -> None:
    """Peers at 0, 6 and 12 in every coordinate. The first hears 6 for coordinates 0 and 1, and 12 for 1 and 2: 3, 6, 6
    and its own 0. The second hears 0 for 0 and 1, and 12 for 3. The third 0 for 1 and 2, and 6 for 3."""
    pairs = {(a, b) for a in range(3) for b in range(3) if a != b}

    def places(_f: Any, one: str, other: str, _r: int, _part: int, _length: int) -> np.ndarray:
        return np.array(TRAVEL[min(int(one[5:]), int(other[5:])), max(int(one[5:]), int(other[5:]))])

    exchange = replace(over(pairs, PARTIAL), places=places)
    assert merged(exchange, "mesh", [[0.0] * 4, [6.0] * 4, [12.0] * 4]) == [
        [3.0, 6.0, 6.0, 0.0],
        [3.0, 3.0, 6.0, 9.0],
        [12.0, 6.0, 6.0, 9.0],
    ]


def test_pame_of_all_coordinates_over_all_links_of_a_mesh_is_the_mean() -> None:
    found = merged(PARTIAL, "mesh", [[0.0, 3.0], [6.0, 0.0], [12.0, 9.0]], coordinates_sent=1.0, links_used=1.0)
    assert found == [[6.0, 4.0]] * 3


def test_pame_bounds_how_far_a_neighbour_pulls_by_the_nearer_half() -> None:
    """The first peer at 0 hears 2 and 600 for both its coordinates: the far one counts as 2, so the mean is 4/3."""
    mean = mean_of_what_came(np.zeros(1, np.float32), 1.0, [Heard(np.array([2.0], np.float32), np.array([0]), 1.0)])
    assert mean.tolist() == [1.0]
    rows = [[0.0], [2.0], [600.0]]
    bound = merged(PARTIAL, "mesh", rows, coordinates_sent=1.0, links_used=1.0, robust_merge="clip")
    assert bound[0] == pytest.approx([4 / 3])


# --- gradient tracking

CIRCLE = over({(0, 1), (1, 2), (2, 0)}, TRACKING)  # each sends to the next, and hears the one before


def test_trackers_around_a_one_way_circle() -> None:
    """All at 0; local steps lead to -1, -2 and -6, so the changes are 1, 2 and 6. Each takes the mean with the one
    before it: -3.5, -1.5, -4. Of its tracker each keeps half and sends half: 3.5, 1.5, 4, together still 9.

    No local step follows: the next changes are 0, so the trackers are 2.5, -0.5, -2, together 0, and what is
    contributed is -6, -1, -2. The means with the one before are -4, -3.5, -1.5."""
    peers = [Tracker(torch.zeros(1)) for _ in range(3)]

    def merge(models: list[float]) -> list[float]:
        given = [peer.gives(torch.tensor([model])).tolist() for peer, model in zip(peers, models, strict=True)]
        result = merged(CIRCLE, "mesh", given)
        return [float(peer.step(torch.tensor(row))) for peer, row in zip(peers, result, strict=True)]

    assert merge([-1.0, -2.0, -6.0]) == [-3.5, -1.5, -4.0]
    assert [float(peer.state["tracker"]) for peer in peers] == [3.5, 1.5, 4.0]
    assert [float(peer.state["change"]) for peer in peers] == [1.0, 2.0, 6.0]
    assert merge([-3.5, -1.5, -4.0]) == [-4.0, -3.5, -1.5]
    assert sum(float(peer.state["tracker"]) for peer in peers) == 0.0


def test_one_hears_two_and_two_hear_none() -> None:
    """Both others send to the first only. It takes a third of each model, all of its own tracker and half of each of
    theirs; they keep their models, and half of their trackers."""
    exchange = over({(1, 0), (2, 0)}, TRACKING)
    assert np.array(merged(exchange, "mesh", [[3.0, 1.0], [6.0, 2.0], [9.0, 6.0]])).ravel() == pytest.approx(
        [6.0, 1.0 + 1.0 + 3.0, 6.0, 1.0, 9.0, 3.0]
    )


def test_a_merge_that_fails_changes_nothing() -> None:
    peer = Tracker(torch.zeros(2))
    first = peer.gives(torch.tensor([1.0, 2.0]))
    again = peer.gives(torch.tensor([1.0, 2.0]))
    assert torch.equal(first, again) and not peer.state["tracker"].any()


def test_over_all_links_of_a_mesh_tracking_is_averaging() -> None:
    """Everyone's trackers sum to everyone's changes, so the mean of what is contributed is the mean of the models."""
    draw, peers = torch.Generator().manual_seed(0), [Tracker(torch.zeros(5)) for _ in range(4)]
    everyone = over({(a, b) for a in range(4) for b in range(4) if a != b}, TRACKING)
    for _ in range(6):
        models = [peer.state["model"] + torch.randn(5, generator=draw) for peer in peers]
        mean = torch.stack(models).mean(0)
        result = merged(everyone, "mesh", [p.gives(m).tolist() for p, m in zip(peers, models, strict=True)])
        for peer, row in zip(peers, result, strict=True):
            torch.testing.assert_close(peer.step(torch.tensor(row)), mean, rtol=1e-4, atol=1e-5)


# --- DPFL: the loss is (w - 2)^2


def test_dpfl_adds_the_neighbour_that_helps_most_until_none_does() -> None:
    """Alone at 0 the loss is 4. With 4 the mean is 2, of loss 0; with 10 it is 5, of loss 9. With both it is 14/3:
    worse than with 4 alone. Where nothing helps, or nobody may be chosen, a peer keeps its own."""

    def loss(w: Tensor) -> float:
        return float((w - 2) ** 2)

    def found(rows: list[float], partners: int = 3) -> float:
        return float(greedy(torch.tensor(rows)[:, None], loss, Federation(partners=partners)))

    assert found([0.0, 10.0, 4.0]) == 2.0
    assert found([0.0, 10.0, 4.0], partners=0) == 0.0
    assert found([2.0, 10.0, 4.0]) == 2.0
    assert found([0.0]) == 0.0
    assert found([0.0, float("nan"), 4.0]) == 2.0
    # 3.6 helps more than 3 (a mean of 1.8); with 3 too it is 2.2, no better. With 2 it is 1.87.
    assert found([0.0, 3.6, 3.0], partners=2) == pytest.approx(1.8)
    assert found([0.0, 3.6, 3.0, 2.0], partners=2) == pytest.approx((3.6 + 2.0) / 3)


def test_own_loss_is_that_of_ones_own_examples_and_leaves_the_model_alone() -> None:
    """Two classes, one input: with weights (0, 1) and no bias the logits of x = 1 are (0, 1), of loss log(1 + e) for
    class 0 and log(1 + 1/e) for class 1."""
    model = torch.nn.Linear(1, 2, bias=False)
    before = model.weight.detach().clone()
    examples = Arrays(torch.ones(2, 1), torch.tensor([0, 1]))
    loss = Own("node-0", Federation(), model, examples, lambda x: x, 2, {})
    assert loss(torch.tensor([0.0, 1.0])) == pytest.approx((np.log(1 + np.e) + np.log(1 + 1 / np.e)) / 2)
    assert torch.equal(model.weight, before) and model.training
