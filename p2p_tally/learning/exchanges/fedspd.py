"""FedSPD: a model for each of two soft clusters of examples; peers exchange one of them at a time, and each is judged
by its own mixture of the two.

Lin, Yagan and Joe-Wong, "FedSPD: A Soft-clustering Approach for Personalized Decentralized Federated Learning", UAI
2025 (PMLR 286; arXiv 2410.18862; its abstract, summaries and the code of its authors were at hand, not its text): an
example belongs to the cluster whose model has the lower loss on it. Each round a peer chooses a cluster, the more often
the more of its examples belong to it, trains its model on these examples, and averages it with the neighbours that
chose the same. Its personal model is the sum of both by its mixture. Simplifications: docs/methods.md.

The model of the chosen cluster is the one that the peer trains and contributes, with the number of the cluster behind
it: W + 1 values. Vectors as here, or with a leading axis of many nodes at once.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from p2p_tally.config import Federation
from p2p_tally.learning.exchanges.dpfl import every_link
from p2p_tally.learning.exchanges.exchange import Exchange
from p2p_tally.learning.exchanges.pame import all_alike

if TYPE_CHECKING:
    from torch import Tensor

    from p2p_tally.learning.exchanges.local_steps import LocalBatch
    from p2p_tally.learning.own import Own

# How far the second model begins from the first, on the way to a start of its own: near enough for the two to be added.
APART = 0.1
# The chosen model learns from at least one example in so many, so that none is given up.
AT_LEAST = 10


class Clusters:
    """The models of both clusters, the chosen one as it last merged; which that is; how many examples of local steps
    belonged to each; the mixture; and what each cluster has to its credit until it is chosen."""

    def __init__(self, start: "Tensor", second: "Tensor") -> None:
        none = start.new_zeros(*start.shape[:-1], 2)
        self._state = {
            "first": start.clone(),
            "second": start + APART * (second - start),
            "chosen": start.new_zeros(*start.shape[:-1], 1),
            "counts": none.clone(),
            "mixture": none + 0.5,
            "credit": none.clone(),
            "merges": start.new_zeros(*start.shape[:-1], 1),
        }

    def step(self, average: "Tensor") -> "Tensor":
        """From the merged model of the chosen cluster to the model of the next."""
        s = self._state
        s["merges"] += 1
        chosen = s["chosen"] > 0
        s["first"].copy_(s["first"].where(chosen, average))
        s["second"].copy_(average.where(chosen, s["second"]))
        seen = s["counts"].sum(-1, keepdim=True)
        s["mixture"].copy_((s["counts"] / seen.clamp_min(1)).where(seen > 0, s["mixture"]))
        s["counts"].zero_()
        s["credit"] += s["mixture"].clamp_min(1 / AT_LEAST)
        s["chosen"].copy_(s["credit"][..., 1:] > s["credit"][..., :1])
        s["credit"][..., 1:] -= s["chosen"]
        s["credit"][..., :1] -= 1 - s["chosen"]
        return s["second"].where(s["chosen"] > 0, s["first"])

    @property
    def state(self) -> dict[str, "Tensor"]:
        return self._state


def clusters(start: "Tensor", _federation: Federation, second: "Tensor") -> Clusters:
    return Clusters(start, second)


def of_the_same_kind(federation: Federation) -> Federation:
    return federation


def with_its_number(merge_step: Clusters, parameters: "Tensor") -> "Tensor":
    """What is contributed [..., W + 1]."""
    chosen = merge_step.state["chosen"]
    both = parameters.new_empty(*parameters.shape[:-1], parameters.shape[-1] + 1)
    both[..., :-1], both[..., -1:] = parameters, chosen
    return both


def mean_of_the_cluster(gathered: "Tensor", _own: "Own | None", _federation: Federation) -> "Tensor":
    """Of [1 + k, W + 1], the mean of one's own model and those of neighbours that chose the same cluster [W]."""
    return gathered[gathered[:, -1] == gathered[0, -1], :-1].mean(0)


def belonging(losses: "Tensor", others: "Tensor") -> "Tensor":
    """Which examples [n, B] belong to a cluster, from their losses by its model and by the other: those that it does
    not do worse, and never less than one in ten."""
    gain = others - losses
    least = gain.topk(-(-gain.shape[1] // AT_LEAST), 1).values[:, -1:]
    return gain >= least.clamp_max(0)


def gradient_of_the_cluster(
    batch: "LocalBatch", parameters: "Tensor", state: "Mapping[str, Tensor]", _federation: Federation
) -> "Tensor":
    """The gradient of the chosen model on the examples of its cluster. Until both have been chosen once: on all."""
    import torch  # noqa: PLC0415 - rows are read without it

    rows = len(parameters)
    chosen = state["chosen"].view(rows, 1)
    waiting = state["first"].view_as(parameters).where(chosen > 0, state["second"].view_as(parameters))

    def losses(models: "Tensor") -> "Tensor":
        return -batch.logits(models).log_softmax(-1).gather(-1, batch.labels[..., None])[..., 0]  # [n, B]

    leaf = parameters.detach().clone().requires_grad_()
    with torch.no_grad():
        by_other = losses(waiting)
    with torch.enable_grad():
        own = losses(leaf)
        mine = belonging(own.detach(), by_other).where(state["merges"].view(rows, 1) >= 2, torch.ones_like(own) > 0)
        mean = (own * mine).sum(1) / mine.sum(1)
        (gradient,) = torch.autograd.grad(mean.sum(), leaf)
    lower = (own.detach() <= by_other).sum(1, keepdim=True).to(parameters.dtype)
    shares = torch.cat([lower, own.shape[1] - lower], 1)
    state["counts"].view(rows, 2).add_(shares.where(chosen == 0, shares.flip(1)))
    return gradient


def mixture_answers(parameters: "Tensor", state: "Mapping[str, Tensor]", _federation: Federation) -> "Tensor":
    """Both models by the peer's mixture; the chosen one as it is now."""
    chosen = state["chosen"].view(-1, 1) > 0
    first = state["first"].view_as(parameters).where(chosen, parameters)
    second = parameters.where(chosen, state["second"].view_as(parameters))
    mixture = state["mixture"].view(-1, 2)
    return mixture[:, :1] * first + mixture[:, 1:] * second


SOFT_CLUSTERS = Exchange(
    links=every_link, weights=all_alike, gives=with_its_number, extra=1, takes=mean_of_the_cluster, bounds=False
)
