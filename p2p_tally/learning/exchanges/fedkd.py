"""FedKD: what is merged is a small student's change, of low rank; each peer keeps a larger mentor of its own, and the
two teach each other.

Wu, Wu, Lyu, Huang and Xie, "Communication-efficient federated learning via knowledge distillation", Nature
Communications 13, 2022 (arXiv 2108.13323), sections "Adaptive mutual distillation" and "Dynamic gradient
approximation"; summaries of it and the authors'
code were at hand, not its full text. On a private batch the loss of each is its cross-entropy, plus its divergence from
the other over the sum of both cross-entropies: what is not reliable is learned from less. Simplifications:
docs/methods.md.

The student is the peer's model. Its change since the base of all merges travels as two factors a matrix, and what they
leave out is part of the next change. The mentor is kept in the state of the merge step, which a merge leaves alone: its
parameters [M], and AdamW's state for them. Vectors as here, or with a leading axis of many nodes at once.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from p2p_tally.config import Federation
from p2p_tally.learning.exchanges.changes import Changes, change
from p2p_tally.learning.exchanges.dpfl import every_link
from p2p_tally.learning.exchanges.dspodfl import of_the_whole_graph
from p2p_tally.learning.exchanges.exchange import Exchange
from p2p_tally.learning.exchanges.low_rank import LOW_RANK

if TYPE_CHECKING:
    from torch import Tensor

    from p2p_tally.learning.exchanges.local_steps import LocalBatch


# The least sum of cross-entropies that counts: two models that are sure and right would divide by nothing.
SURE = 1e-3


class Mentored(Changes):
    """The base of the students, and the mentor beside it."""

    def __init__(self, start: "Tensor", mentor: "Tensor") -> None:
        super().__init__(start)
        self._mentor = {
            "mentor": mentor.clone(),
            "mean": mentor.new_zeros(mentor.shape),
            "square": mentor.new_zeros(mentor.shape),
            "steps": mentor.new_zeros(*mentor.shape[:-1], 1),
        }

    @property
    def state(self) -> dict[str, "Tensor"]:
        return {**super().state, **self._mentor}


def mentored(start: "Tensor", _federation: Federation, mentor: "Tensor") -> Mentored:
    return Mentored(start, mentor)


def mentors_model(federation: Federation) -> Federation:
    """What a mentor is built by."""
    return federation.model_copy(update={"model": federation.mentor})


def adaptive_losses(student: "Tensor", mentor: "Tensor", labels: "Tensor") -> "tuple[Tensor, Tensor]":
    """Of each peer's student and mentor [n], from their logits [n, B, C]. Neither is pulled by the other's loss."""
    own, other = student.log_softmax(-1), mentor.log_softmax(-1)
    tasks = [-logs.gather(-1, labels[..., None]).mean((1, 2)) for logs in (own, other)]
    reliable = 1.0 / (tasks[0] + tasks[1]).detach().clamp_min(SURE)

    def divergence(learning: "Tensor", taught_by: "Tensor") -> "Tensor":
        given = taught_by.detach()
        return (given.exp() * (given - learning)).sum(-1).mean(1)

    return tasks[0] + reliable * divergence(own, other), tasks[1] + reliable * divergence(other, own)


def mutual_gradient(
    batch: "LocalBatch", parameters: "Tensor", state: "Mapping[str, Tensor]", federation: Federation
) -> "Tensor":
    """The gradient of the student; the mentor takes its step here."""
    import torch  # noqa: PLC0415 - rows are read without it

    from p2p_tally.learning.optimiser import adamw_by_rows  # noqa: PLC0415

    kept = {key: tensor.view(len(parameters), -1) for key, tensor in state.items()}
    student, mentor = parameters.detach().clone().requires_grad_(), kept["mentor"].clone().requires_grad_()
    with torch.enable_grad():
        losses = adaptive_losses(batch.logits(student), batch.logits(mentor, second=True), batch.labels)
        along, mentors = torch.autograd.grad(sum(losses, torch.zeros_like(losses[0])).sum(), (student, mentor))
    adamw_by_rows(kept["mentor"], mentors, kept, federation.lr, federation.weight_decay)
    return along


FACTORS = Exchange(links=every_link, weights=of_the_whole_graph, gives=change, code=LOW_RANK, returns_kept=True)
