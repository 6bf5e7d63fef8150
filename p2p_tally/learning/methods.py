"""Every method as a row of one table: what is sent for a probe, how it is learned from, and when models merge.

A method is data. `learner.py` and `node.py` read the row; no method has a class or a branch of its own there.
No torch here: the byte formulas need the rows too.
"""

from dataclasses import dataclass
from enum import StrEnum

from p2p_tally.config import Federation


class Sent(StrEnum):
    """What a node sends for each probe."""

    NOTHING = "nothing"
    VOTES = "votes"  # one class index
    TOP_K = "top-k"  # k class indices and their probabilities
    SOFT = "soft"  # all C probabilities


class MergeRule(StrEnum):
    """What happens to the mean of the peers' parameters."""

    NONE = "none"
    REPLACE = "replace"  # the mean becomes the model
    OUTER_STEP = "outer step"  # the mean is a pseudo-gradient for an outer Nesterov step


@dataclass(frozen=True)
class Method:
    """One row. `waits`: channel and merges begin after the warm-up, as the paper's own tables count them."""

    summary: str
    sent: Sent = Sent.NOTHING
    merge: MergeRule = MergeRule.REPLACE
    merge_every: int = 50  # unless the operator says otherwise
    waits: bool = False
    learns_from_probes: bool = False  # takes a step on the probes of a round
    alpha: float | None = None  # fixed weight of the probes' labels; None: the operator's
    distils_merged: bool = False  # the step on the probes comes after the merge, on the merged model
    proximal: bool = False
    common_start: bool = False  # all peers begin with the same parameters


METHODS: dict[str, Method] = {
    "tally": Method(
        "argmax votes tallied into a histogram; merges are the bridge",
        sent=Sent.VOTES, waits=True, learns_from_probes=True,
    ),
    "local": Method("every peer alone, on its own data", merge=MergeRule.NONE, merge_every=0),
    "no-consensus": Method(
        "the probes' labels only (alpha 1): what the consensus itself adds is the difference to this",
        merge_every=0, waits=True, learns_from_probes=True, alpha=1.0,
    ),
    "fedavg": Method("parameters averaged every M rounds"),
    "fedprox": Method("fedavg with a pull towards the last merged model", proximal=True),
    "fedmd": Method(
        "mean of the peers' soft labels: 4C bytes a probe", sent=Sent.SOFT, waits=True, learns_from_probes=True
    ),
    "rcfd": Method(
        "mean of the peers' k likeliest classes and their probabilities",
        sent=Sent.TOP_K, waits=True, learns_from_probes=True,
    ),
    "feddf": Method(
        "merge every round, then distil the merged model towards the peers' mean soft label",
        sent=Sent.SOFT, merge_every=1, learns_from_probes=True, alpha=0.0, distils_merged=True,
    ),
    "diloco": Method(
        "the mean parameter change drives an outer Nesterov step", merge=MergeRule.OUTER_STEP, common_start=True
    ),
}  # fmt: skip


def method_of(federation: Federation) -> Method:
    """The row of a federation's method."""
    return METHODS[federation.method]
