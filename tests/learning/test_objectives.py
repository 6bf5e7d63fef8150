"""The fused loss against the literal formula alpha CE + lambda (1 - alpha) KL(H || f): value and gradient."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from p2p_tally.learning.consensus import NO_LABEL
from p2p_tally.learning.objectives import blended_target, distillation_loss, one_hot

torch.set_num_threads(1)

LN2, LN3 = math.log(2), math.log(3)

# Two probes, two classes. f = (1/2, 1/2) and (3/4, 1/4); H = (1, 0) and (1/2, 1/2); labels 0 and 1.
LOGITS = [[0.0, 0.0], [LN3, 0.0]]
CONSENSUS = [[1.0, 0.0], [0.5, 0.5]]
LABELS = [0, 1]


def literal(
    logits: Tensor, labels: Tensor | None, consensus: Tensor | None, alpha: float, weight: float, b: float = 0.0
) -> Tensor:
    """The formula as the paper prints it, term by term, in the precision of the logits."""
    logs = logits.log_softmax(-1)
    loss = logits.new_zeros(())
    if alpha:
        assert labels is not None
        present = labels != NO_LABEL
        if present.any():
            loss = loss - alpha * logs[present, labels[present]].mean()
    if weight:
        assert consensus is not None
        divergence = (torch.special.xlogy(consensus, consensus) - consensus * logs).sum(-1)  # [P]
        loss = loss + weight * (divergence * (1 + b * (1 - consensus.amax(-1)))).mean()
    return loss


def gradient(loss_of: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(loss_of, logits)[0]


def fused(logits: Tensor, labels: Tensor | None, consensus: Tensor | None, alpha: float, weight: float, b: float = 0.0):
    return distillation_loss(
        logits, labels, consensus, label_weight=alpha, consensus_weight=weight, disagreement_weight=b
    )


def value(loss: Tensor) -> float:
    return float(loss.detach())


def hand_case() -> tuple[Tensor, Tensor, Tensor]:
    return torch.tensor(LOGITS, requires_grad=True), torch.tensor(LABELS), torch.tensor(CONSENSUS)


def test_value_by_hand() -> None:
    # CE = (ln 2 + ln 4) / 2 = 3/2 ln 2
    # cross-entropy to H: row 0 is ln 2; row 1 is -1/2 ln 3/4 - 1/2 ln 1/4 = 2 ln 2 - 1/2 ln 3
    # KL(H || f) is that less H's entropy, 0 and ln 2: rows ln 2 and ln 2 - 1/2 ln 3
    logits, labels, consensus = hand_case()
    cross_entropy = 1.5 * LN2
    divergence = (LN2 + LN2 - 0.5 * LN3) / 2
    entropy = (0 + LN2) / 2
    paper = 0.5 * cross_entropy + 0.5 * divergence
    assert value(literal(logits.double(), labels, consensus.double(), 0.5, 0.5)) == pytest.approx(paper)
    # The fused loss leaves out -0.5 x entropy(H), which no parameter changes.
    assert value(fused(logits, labels, consensus, 0.5, 0.5)) == pytest.approx(paper + 0.5 * entropy, rel=1e-6)


def test_gradient_by_hand() -> None:
    # (softmax x sum(t) - t) / P, with t = y/2 + H/2:
    #   row 0: f = (1/2, 1/2), t = (1, 0)     -> (-1/2, 1/2) / 2
    #   row 1: f = (3/4, 1/4), t = (1/4, 3/4) -> ( 1/2, -1/2) / 2
    logits, labels, consensus = hand_case()
    expected = torch.tensor([[-0.25, 0.25], [0.25, -0.25]])
    torch.testing.assert_close(gradient(fused(logits, labels, consensus, 0.5, 0.5), logits), expected)


def test_gradient_of_pure_kl_is_softmax_less_consensus() -> None:
    logits, _, consensus = hand_case()
    found = gradient(fused(logits, None, consensus, 0.0, 1.0), logits)
    # ((1/2 - 1, 1/2) and (3/4 - 1/2, 1/4 - 1/2)) / 2
    torch.testing.assert_close(found, torch.tensor([[-0.25, 0.25], [0.125, -0.125]]))


def test_gradient_with_disagreement_weights_by_hand() -> None:
    # b = 2: row 0 has max H = 1 and factor 1; row 1 has max H = 1/2 and factor 1 + 2 x 1/2 = 2.
    # Row 1's gradient of the pure KL doubles: (1/4, -1/4) x 2 / 2.
    logits, _, consensus = hand_case()
    found = gradient(fused(logits, None, consensus, 0.0, 1.0, b=2.0), logits)
    torch.testing.assert_close(found, torch.tensor([[-0.25, 0.25], [0.25, -0.25]]))


def test_missing_labels_by_hand() -> None:
    # Only probe 1 has a label: the mean over labelled probes is ln 4, and row 0 feels the consensus alone.
    #   row 0: (f - H) / 2 x 1/2 = (-1/8, 1/8)
    #   row 1: 1/2 (f - y) + 1/2 (f - H) / 2 = 1/2 (3/4, -3/4) + 1/4 (1/4, -1/4) = (7/16, -7/16)
    logits, _, consensus = hand_case()
    labels = torch.tensor([NO_LABEL, 1])
    loss = fused(logits, labels, consensus, 0.5, 0.5)
    torch.testing.assert_close(gradient(loss, logits), torch.tensor([[-0.125, 0.125], [0.4375, -0.4375]]))
    assert value(fused(logits, labels, None, 1.0, 0.0)) == pytest.approx(2 * LN2)


def test_no_label_at_all_leaves_the_label_term_out() -> None:
    # torch's own mean over no examples would be NaN.
    logits, _, consensus = hand_case()
    nothing = torch.full((2,), NO_LABEL)
    assert value(fused(logits, nothing, None, 1.0, 0.0)) == 0.0
    both = gradient(fused(logits, nothing, consensus, 0.5, 0.5), logits)
    torch.testing.assert_close(both, gradient(fused(logits, None, consensus, 0.0, 0.5), logits))


@pytest.mark.parametrize(
    ("alpha", "weight", "b", "missing"),
    [
        (0.5, 0.5, 0.0, False),
        (0.3, 0.7 * 0.25, 0.0, False),  # a faded consensus: the rows of the target do not sum to 1
        (0.5, 0.5, 2.0, False),
        (0.5, 0.5, 0.0, True),
        (0.3, 0.2, 3.0, True),
        (1.0, 0.0, 0.0, False),
        (1.0, 0.0, 2.0, True),
        (0.0, 1.0, 0.0, False),
        (0.0, 0.125, 1.0, False),
    ],
)
def test_gradient_is_that_of_the_literal_formula(alpha: float, weight: float, b: float, missing: bool) -> None:
    random = torch.Generator().manual_seed(7)
    probes, classes, voters = 9, 5, 8  # shares of eight are exact: each row of H sums to 1
    logits = (torch.randn(probes, classes, generator=random) * 3).requires_grad_()
    votes = torch.randint(classes, (voters, probes), generator=random)
    consensus = F.one_hot(votes, classes).float().mean(0)  # [P, C], with zeros as real tallies have
    labels = torch.randint(classes, (probes,), generator=random)
    if missing:
        labels[::2] = NO_LABEL
    found = gradient(fused(logits, labels, consensus, alpha, weight, b), logits)

    exact = logits.detach().double().requires_grad_()
    expected = gradient(literal(exact, labels, consensus.double(), alpha, weight, b), exact)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-7)

    # And by hand: each row pulls towards its target with the weight of that row.
    f = exact.detach().softmax(-1)
    by_hand = weight * (1 + b * (1 - consensus.double().amax(-1, keepdim=True))) * (f - consensus) / probes
    present = labels != NO_LABEL
    by_hand[present] += alpha * (f - F.one_hot(labels.clamp(min=0), classes))[present] / present.sum()
    torch.testing.assert_close(expected, by_hand, rtol=1e-9, atol=1e-12)


def test_value_differs_from_the_literal_formula_by_the_consensus_entropy_only() -> None:
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(6, 4, generator=random)
    consensus = torch.rand(6, 4, generator=random).softmax(-1)
    labels = torch.randint(4, (6,), generator=random)
    entropy = torch.special.entr(consensus).sum(-1).mean()
    difference = fused(logits, labels, consensus, 0.4, 0.3) - literal(logits, labels, consensus, 0.4, 0.3)
    torch.testing.assert_close(difference, 0.3 * entropy, rtol=1e-5, atol=1e-6)


def test_a_term_of_weight_zero_is_never_looked_at() -> None:
    logits, labels, consensus = hand_case()
    poison = torch.full((2, 2), math.nan)
    assert value(fused(logits, labels, poison, 1.0, 0.0)) == pytest.approx(1.5 * LN2)
    unusable = torch.tensor([99, 99])  # no such class
    expected = (LN2 + 2 * LN2 - 0.5 * LN3) / 2
    assert value(fused(logits, unusable, consensus, 0.0, 1.0)) == pytest.approx(expected, rel=1e-6)


def test_the_consensus_is_not_written_to() -> None:
    # Peers of a simulation may be handed the same tensor.
    _, labels, consensus = hand_case()
    for b in (0.0, 2.0):
        blended_target(2, labels, consensus, 0.5, 1.0, b)
        assert consensus.tolist() == CONSENSUS


def test_blended_target_by_hand() -> None:
    _, labels, consensus = hand_case()
    assert blended_target(2, labels, consensus, 0.5, 0.25).tolist() == [[0.75, 0.0], [0.125, 0.625]]
    by_margin = blended_target(2, labels, consensus, 0.5, 0.25, by_margin=True)
    spread = consensus.sort(-1).values.diff(dim=-1)
    torch.testing.assert_close(by_margin, one_hot(labels, 2, 0.5) + 0.25 * consensus * spread)
    assert blended_target(2, labels, consensus, 0.5, 0.25, 2.0).tolist() == [[0.75, 0.0], [0.25, 0.75]]


def test_one_hot_keeps_the_total_where_labels_are_missing() -> None:
    assert one_hot(torch.tensor([2, 0]), 3, 0.5).tolist() == [[0, 0, 0.5], [0.5, 0, 0]]
    # Four rows of weight 1/2 make 2; two labelled rows carry 1 each.
    labels = torch.tensor([NO_LABEL, 1, NO_LABEL, 0])
    assert one_hot(labels, 2, 0.5).tolist() == [[0, 0], [0, 1], [0, 0], [1, 0]]
