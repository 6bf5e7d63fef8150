"""FedKD: the losses of a student and its mentor on paper, one local step, and what does not go with it."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import small
from torch import nn

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.by_rows import ByRows
from p2p_tally.learning.exchanges.fedkd import FACTORS, Mentored, adaptive_losses, mutual_gradient
from p2p_tally.learning.exchanges.local_steps import LocalBatch, sporadic_step
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.methods import METHODS
from p2p_tally.learning.schedule import resolve
from p2p_tally.learning.setup import prepare
from p2p_tally.runner.simulation.simulate import simulate
from p2p_tally.runner.stacked.by_method import mixed_by_method
from p2p_tally.topologies import build

LN3 = math.log(3)
TASKS = math.log(4 / 3), math.log(2)  # of the student, which says (1/4, 3/4), and the mentor, which says (1/2, 1/2)
RELIABLE = 1 / sum(TASKS)


def test_both_losses_on_paper() -> None:
    """What one learns from the other is weighed by one over ln 4/3 + ln 2 = ln 8/3."""
    student, mentor = torch.tensor([[[0.0, LN3]]]), torch.zeros(1, 1, 2)
    found = adaptive_losses(student, mentor, torch.tensor([[1]]))
    assert math.log(8 / 3) == pytest.approx(1 / RELIABLE)
    assert found[0].item() == pytest.approx(TASKS[0] + RELIABLE * math.log(4 / 3) / 2)
    assert found[1].item() == pytest.approx(TASKS[1] + RELIABLE * (0.25 * math.log(0.5) + 0.75 * math.log(1.5)))


def test_one_local_step_by_hand() -> None:
    """The student's slope: from the label (1/4, -1/4), from the mentor (1/4 - 1/2, 3/4 - 1/2) times how reliable both
    are. The mentor's: (1/2, -1/2) from the label and (1/4, -1/4) from the student, so its first step of AdamW is lr
    down and lr up. The second peer is sure and right, and so is its mentor: little is to be learned."""
    students = torch.tensor([[0.0, LN3], [0.0, 20.0]])
    kept = Mentored(students, torch.tensor([[0.0, 0.0], [0.0, 20.0]]))
    models = (ByRows(nn.Linear(1, 2, bias=False)), ByRows(nn.Linear(1, 2, bias=False)))
    batch = LocalBatch(lambda: students, torch.ones(2, 1, 1), torch.tensor([[1], [1]]), models)
    settings = Federation(lr=0.1, weight_decay=0.0)
    found = mutual_gradient(batch, students, kept.state, settings)
    slope = 0.25 - 0.25 * RELIABLE
    torch.testing.assert_close(found, torch.tensor([[slope, -slope], [0.0, 0.0]]), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(kept.state["mentor"][0], torch.tensor([-0.1, 0.1]))
    assert kept.state["steps"].tolist() == [[1.0], [1.0]]
    assert students.tolist() == torch.tensor([[0.0, LN3], [0.0, 20.0]]).tolist()


def test_a_merge_moves_the_base_and_leaves_the_mentor_alone() -> None:
    """From 10 to 13 is a change of 3. Of all changes the mean is 2, and 1 of one's own did not travel: the base is 12,
    the student 13, and had it not been trained since, its next change would be that 1."""
    peer = Mentored(torch.tensor([10.0]), torch.tensor([7.0, 7.0]))
    assert FACTORS.gives(peer, torch.tensor([13.0])).tolist() == [3.0]
    assert peer.step(torch.tensor([2.0, 1.0])).tolist() == [13.0]
    assert peer.state["base"].tolist() == [12.0] and peer.state["mentor"].tolist() == [7.0, 7.0]
    assert FACTORS.gives(peer, torch.tensor([13.0])).tolist() == [1.0]


def test_two_peers_whose_changes_have_the_rank_that_travels_come_to_their_mean() -> None:
    """Both move by a matrix of rank 1: along (1, 2, 2) / 3 by (3, 6, 6), and by half of it. Nothing is kept, and both
    have the mean, but for last digits."""
    layout, settings = ((3, 3),), Federation(factor_rank=1, robust_merge="off")
    change = torch.outer(torch.tensor([1.0, 2.0, 2.0]) / 3, torch.tensor([3.0, 6.0, 6.0])).view(-1)
    peers = [Mentored(torch.ones(9), torch.zeros(1)) for _ in range(2)]
    given = torch.stack([FACTORS.gives(peer, 1 + share * change) for peer, share in zip(peers, (1, 0.5), strict=True)])
    graph = build("mesh", ["node-0", "node-1"])
    found = mixed_by_method(given, FACTORS, settings, graph, 1, None, layout)
    assert found is not None and found.shape == (2, 18)
    for peer, row in zip(peers, found, strict=True):
        torch.testing.assert_close(peer.step(row), 1 + 0.75 * change)


def test_who_takes_no_step_keeps_its_mentor_too() -> None:
    """In both engines: a learner does not ask the rule, a block asks it for all rows and keeps those that take none."""
    row = replace(METHODS["fedkd"], name="seldom", takes_step=sporadic_step)
    federation = small(
        nodes=3,
        method=row,
        rounds=6,
        local_steps=3,
        merge_every=2,
        factor_rank=2,
        mentor="mlp:12",
        steps_taken=0.5,
        eval_every=6,
    )
    exact, stacked = (simulate(federation, engine=engine) for engine in ("exact", "stacked"))
    assert stacked.loss[-1].tolist() == pytest.approx(exact.loss[-1].tolist(), abs=1e-5)


def test_a_student_learns_otherwise_beside_another_mentor() -> None:
    """Without merges too, and its number of parameters is its own."""
    one, other = (
        simulate(small(nodes=2, method="fedkd", rounds=4, merge_every=0, mentor=mentor, eval_every=4))
        for mentor in ("mlp:8", "mlp:16x2")
    )
    assert one.parameters_sha256 != other.parameters_sha256
    assert one.provenance.parameters == other.provenance.parameters == 4810


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"join": "node-1@3"}, "--join and --leave: the method fedkd keeps a second model at each peer, which nobody"),
        ({"balance": 0.5}, "--balance 0.5: the method fedkd keeps a second model at each peer, and trains both by a"),
        ({"mentor": "mlp:8,mlp:16"}, "--mentor mlp:8,mlp:16: accepted is one item of --model, without a comma"),
    ],
    ids=str,
)
def test_what_does_not_go_with_it_is_refused_in_one_line(options: dict[str, Any], said: str) -> None:
    federation = Federation.parse({"method": "fedkd", "nodes": 2, **options})
    with pytest.raises(ConfigError) as caught:
        make_topology(federation)
        resolve(federation, labelled=True)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_mentor_that_cannot_be_built_is_named() -> None:
    with pytest.raises(ConfigError, match=r"--mentor tree: accepted is auto, .*mlp.* or package"):
        simulate(small(nodes=2, method="fedkd", mentor="tree"))
    with pytest.raises(ConfigError, match=r"--mentor tinygpt: on inputs .* it fails"):
        simulate(small(nodes=2, method="fedkd", mentor="tinygpt"))
    assert prepare(small(nodes=2, method="fedkd")).federation.mentor == "mlp:128"
