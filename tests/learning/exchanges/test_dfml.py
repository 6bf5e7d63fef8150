"""DFML: the losses of two and three models on paper, the cycle, the peak model, one merge; what answers in a run."""

import math

import pytest
import torch
from conftest import small
from torch import Tensor, nn

from p2p_tally.config import Federation
from p2p_tally.learning.by_rows import ByRows
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.exchanges.dfml import Peak, mutual, mutual_losses, peak_answers, weight_of_others
from p2p_tally.learning.own import Own
from p2p_tally.learning.saved.file import read_model
from p2p_tally.learning.setup import prepare
from p2p_tally.runner.simulation.simulate import simulate

LN3 = math.log(3)
EVEN = torch.log(torch.tensor([0.5, 0.5]))
SAID = torch.tensor([[[0.0, LN3]], [[0.0, 0.0]]])  # two models, one example, two classes: (1/4, 3/4) and (1/2, 1/2)
LABEL = torch.tensor([1])


def losses(others: float, said: Tensor = SAID, shares: Tensor = EVEN) -> list[float]:
    found: list[float] = mutual_losses(said, LABEL, shares, others).tolist()
    return found


def test_two_models_on_paper() -> None:
    """From the label: ln 4/3 and ln 2. The first from the second: (ln 1/2:1/4 + ln 1/2:3/4) / 2 = ln(4/3) / 2. The
    second from the first: (1/4) ln(1/2) + (3/4) ln(3/2)."""
    assert losses(0.0) == pytest.approx([math.log(4 / 3), math.log(2)])
    back = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert losses(1.0) == pytest.approx([math.log(4 / 3) / 2, back])
    assert losses(0.25) == pytest.approx(
        [0.75 * math.log(4 / 3) + 0.25 * math.log(4 / 3) / 2, 0.75 * math.log(2) + 0.25 * back]
    )


def test_a_class_that_the_peer_has_seldom_is_asked_for_seldom() -> None:
    """With shares 1/4 and 3/4 the first model's 1 : 3 counts as 1 : 9, so its loss is ln 10/9, and the second's 1 : 1
    as 1 : 3. Where a peer has one class only, its labels teach nothing."""
    seldom = torch.log(torch.tensor([0.25, 0.75]))
    assert losses(0.0, shares=seldom) == pytest.approx([math.log(10 / 9), math.log(4 / 3)])
    assert losses(0.0, shares=torch.log(torch.tensor([0.0, 1.0]))) == pytest.approx([0.0, 0.0])


def test_of_three_each_learns_from_the_mean_of_the_two_others_and_pulls_nobody() -> None:
    """The slope of a divergence at one's own logits is one's own distribution less what it learns from: for the first
    (1/4, 3/4) less the mean of (1/2, 1/2) and (3/4, 1/4), so -3/8 and 3/8."""
    said = torch.tensor([[[0.0, LN3]], [[0.0, 0.0]], [[LN3, 0.0]]], requires_grad=True)
    total = mutual_losses(said, LABEL, EVEN, 1.0)
    pairs = [0.5 * math.log(4 / 3), 0.25 * math.log(1 / 3) + 0.75 * math.log(3)]  # of the first from each other
    assert total[0].item() == pytest.approx((pairs[0] + abs(pairs[1])) / 2)
    total.sum().backward()
    assert said.grad is not None
    torch.testing.assert_close(said.grad[:, 0], torch.tensor([[-0.375, 0.375], [0.0, 0.0], [0.375, -0.375]]))


def test_the_cycle_and_its_peak() -> None:
    """In a cycle of four merges others weigh 1/2, 1, 1/2, 0. After the second and the sixth the peak model is taken."""
    assert [weight_of_others(merge, 4) for merge in range(1, 6)] == pytest.approx([0.5, 1.0, 0.5, 0.0, 0.5])
    step, settings, answered = Peak(torch.zeros(1), 4), Federation(mutual_cycle=4), []
    for model in (10.0, 20.0, 30.0, 40.0, 50.0, 60.0):
        assert step.step(torch.tensor([model])).tolist() == [model]
        answered.append(float(peak_answers(torch.tensor([[model + 1]]), step.state, settings)))
    assert answered == [11.0, 20.0, 20.0, 20.0, 20.0, 60.0]


def own(classes: list[int], merges: float = 0.0, **options: object) -> Own:
    """Of a peer whose model gives its two parameters as logits, for every example."""
    model = nn.Linear(1, 2, bias=False)
    examples = Arrays(torch.ones(len(classes), 1), torch.tensor(classes))
    settings = Federation.parse({"lr": 0.1, "weight_decay": 0.0, "local_steps": 1, **options})
    return Own("node-0", settings, model, examples, lambda x: x, 2, {"merges": torch.tensor([merges])})


def test_one_merge_by_hand() -> None:
    """At the top of a cycle only the other teaches: (1/4, 3/4) learns from (1/2, 1/2), so its first logit rises and its
    second falls, by the step that AdamW begins with: lr. At the bottom only the label does, here class 1."""
    gathered, settings = (
        torch.tensor([[0.0, LN3], [0.0, 0.0]]),
        Federation(mutual_cycle=2, lr=0.1, weight_decay=0.0, local_steps=1),
    )
    top = mutual(gathered, own([1, 0]), settings)
    torch.testing.assert_close(top, torch.tensor([0.1, LN3 - 0.1]))
    bottom = mutual(gathered, own([1, 1, 0, 1], merges=1.0, batch=4096), settings)
    torch.testing.assert_close(bottom, torch.tensor([0.1, LN3 - 0.1]))  # 9 : 1 is more than the 3 : 1 of its labels
    assert gathered.tolist() == torch.tensor([[0.0, LN3], [0.0, 0.0]]).tolist()


def test_a_peer_alone_or_beside_what_is_no_model_keeps_its_own() -> None:
    mine = torch.tensor([[0.0, LN3]])
    assert torch.equal(mutual(mine, own([1]), Federation()), mine[0])
    broken = torch.tensor([[0.0, LN3], [float("inf"), 0.0]])
    assert torch.equal(mutual(broken, own([1]), Federation()), mine[0])


def test_rows_of_parameters_are_models_side_by_side() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    models, x = ByRows(model), torch.randn(5, 3)
    rows = torch.randn(3, sum(p.numel() for p in model.parameters()))
    found = models(rows, x.expand(3, 5, 3))
    for row, logits in zip(rows, found, strict=True):
        nn.utils.vector_to_parameters(row, model.parameters())
        torch.testing.assert_close(logits, model(x))


@pytest.mark.parametrize("engine", ["exact", "stacked"])
def test_the_peak_model_answers_and_is_the_one_that_is_saved(engine: str) -> None:
    """Merges in rounds 2, 4, 6, 8; in a cycle of 4 the peak is that of round 4: from there on nothing changes what
    answers, though training goes on."""
    run = simulate(
        small(nodes=2, method="dfml", rounds=8, eval_every=1, merge_every=2, mutual_cycle=4, local_steps=4),
        engine=engine,  # type: ignore[arg-type]
    )
    loss = run.loss.tolist()
    assert loss[3] == loss[4] == loss[6] != loss[2] and loss[0] != loss[1] != loss[2]
    test, model = prepare(run.federation).test, nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU())
    model.append(nn.Linear(64, 10))
    x, y = test.take(torch.arange(len(test)))
    assert y is not None
    for saved, reported in zip(run.model_files, loss[7], strict=True):
        tensors, _ = read_model(saved, "a model")
        model.load_state_dict(tensors)
        assert nn.functional.cross_entropy(model(x), y).item() == pytest.approx(reported, abs=1e-4)
