"""Every method as a row of one table: what is sent for a probe, how peers learn from it, when and how models merge.

A method is data and the names of a few functions. Learner, node and stacked engine read the row and call its functions;
no method has a class or a branch of its own there. A user's own row is found by import path or given as an object.

No torch is imported here: the byte formulas and the launcher need the rows too.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import digest
from p2p_tally.learning.answers import soft_labels, top_k, votes
from p2p_tally.learning.consensus import Answer, histogram, mean_soft_label, mean_top_k
from p2p_tally.learning.exchanges.clusters import CLUSTERED
from p2p_tally.learning.exchanges.dfedcad import ALIGNING, aligned
from p2p_tally.learning.exchanges.dfml import MUTUAL, mutual, peak, peak_answers
from p2p_tally.learning.exchanges.dpfl import CHOOSING, greedy
from p2p_tally.learning.exchanges.dspodfl import SPORADIC
from p2p_tally.learning.exchanges.exchange import Exchange, both_ways, one_way
from p2p_tally.learning.exchanges.fedkd import FACTORS, mentored, mentors_model, mutual_gradient
from p2p_tally.learning.exchanges.fedspd import (
    SOFT_CLUSTERS,
    clusters,
    gradient_of_the_cluster,
    mixture_answers,
    of_the_same_kind,
)
from p2p_tally.learning.exchanges.gflat import flat_gradient, uphill
from p2p_tally.learning.exchanges.local_steps import LocalGradient, TakesStep, every_step, sporadic_step
from p2p_tally.learning.exchanges.low_rank import LOW_RANK
from p2p_tally.learning.exchanges.pame import PARTIAL, of_the_pair
from p2p_tally.learning.exchanges.spod_gt import TRACKING, tracker
from p2p_tally.learning.knowledge.cronus import filtered_mean
from p2p_tally.learning.knowledge.desa import by_name, drawn_to_anchors
from p2p_tally.learning.knowledge.fd import mean_of_holders
from p2p_tally.learning.knowledge.fedproto import centroids, features, pulled_to_centroids
from p2p_tally.learning.merging import MergeStep, outer_nesterov, replace
from p2p_tally.learning.related_targets import majority, mean_of_confident, sharpened
from p2p_tally.own_objects import fingerprint, import_object

if TYPE_CHECKING:
    from torch import Tensor

    from p2p_tally.learning.answering import Answering
    from p2p_tally.learning.own import Own

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")  # it is part of folder names, tables and the hello
_COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")


class Sends(StrEnum):
    """What a node sends for each probe, or for each class. The wire format and the byte formulas follow from it."""

    NOTHING = "nothing"
    VOTES = "votes"  # one class
    TOP_K = "top-k"  # --top-k classes and their probabilities, which sum to 1
    SOFT = "soft"  # the probabilities of all C classes
    SOFT_BY_CLASS = "soft-by-class"  # for each class: how many own examples, and their mean probabilities
    FEATURES_BY_CLASS = "features-by-class"  # for each class: how many own examples, and their mean features

    ANCHORS = "anchors"  # once examples that the peer made, then the probabilities of all C classes for each of them

    @property
    def stackable(self) -> bool:
        """Whether all peers look at as many examples, as the stacked engine needs."""
        return self is not Sends.ANCHORS

    @property
    def by_class(self) -> bool:
        """Whether it is about what a peer has of its own, its classes or its anchors, not about probes: subjects.py."""
        return self in (Sends.SOFT_BY_CLASS, Sends.FEATURES_BY_CLASS, Sends.ANCHORS)

    @property
    def about(self) -> str:
        """What answers are for, as a user reads it."""
        if self is Sends.ANCHORS:
            return "its own examples"
        return "classes" if self.by_class else "probes"

    @property
    def features(self) -> bool:
        """Whether the model must say what goes into its last layer: see exposed.py."""
        return self in (Sends.FEATURES_BY_CLASS, Sends.ANCHORS)


def _shown(default: str) -> Any:
    """A field that people see and nothing is computed from."""
    return field(default=default, metadata={"shown": True})


@dataclass(frozen=True)
class Method:
    """One row."""

    name: str
    summary: str = _shown("")

    # What is sent for a probe, and how peers learn from it
    sends: Sends = Sends.NOTHING
    answer: "Callable[[Tensor, Federation], Answer] | None" = None  # logits [..., P, C] -> what is sent
    target: Callable[..., np.ndarray] | None = None  # (answers, classes, federation, weights) -> [P, C]: consensus.py
    # (outputs [..., P, O], labels [..., P], target rows [..., P, T] or None, weight of labels, weight of the consensus,
    # classes) -> the sum over peers of their mean losses. None: the cross-entropy of objectives.py
    loss: "Callable[..., Tensor] | None" = None
    learns_from_probes: bool = False  # takes a step on the probes of a round, or on what its answers are about
    waits: bool = False  # channel and merges begin after the warm-up
    alpha: float | None = None  # fixed weight of the probes' labels; None: --alpha
    weighs_disagreement: bool = False  # reads --disagreement-weight

    # When models merge, and what becomes of their mean
    merges: bool = True
    merge_every: int = 50  # unless --merge-every is given
    merge_step: "Callable[..., MergeStep]" = replace  # (start [W], federation, second [M] if kept) -> step: merging.py
    distils_merged: bool = False  # the step on the probes comes after the merge, on the merged model
    common_start: bool = False  # all peers must begin with the same parameters
    proximal: bool = False  # local steps are pulled towards the last merged model, by --mu
    exchange: Exchange | None = None  # what neighbours exchange, where it is not the mean: exchanges/exchange.py

    # Models that a peer keeps besides the one that it trains: in the state of the merge step
    second: Callable[[Federation], Federation] | None = None  # what another model, with a start of its own, is built by
    answering: "Answering | None" = None  # with which parameters a peer answers; None: those that it trains

    # Local steps: exchanges/local_steps.py
    takes_step: TakesStep = every_step
    local_gradient: LocalGradient | None = None  # None: the gradient where the model is

    # In figures and tables
    label: str = _shown("")  # "": the name
    colour: str = _shown("#7F7F7F")

    def __post_init__(self) -> None:
        where = f"method {self.name!r}"
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"{where}: accepted is a name of 1 to 40 letters, digits or . _ -")
        if self.name in _BUILT_IN:
            raise ConfigError(f"{where}: a method of p2p-tally has this name; give yours another")
        if not _COLOUR.fullmatch(self.colour):
            raise ConfigError(f"{where}: colour {self.colour!r}: accepted is #RRGGBB")
        if self.sends is not Sends.NOTHING and not (self.answer and self.target and self.learns_from_probes):
            raise ConfigError(f"{where}: a method that sends {self.sends} needs answer, target and learns_from_probes")
        if self.sends.features and self.loss is None:
            raise ConfigError(f"{where}: a method that sends {self.sends} needs a loss")

    def __str__(self) -> str:
        return self.name

    @property
    def shown_as(self) -> str:
        """Its name in figures and tables."""
        return self.label or self.name

    def contributed(self, merge_step: MergeStep, parameters: "Tensor") -> "Tensor":
        """What a peer gives to a merge [..., V W], from its parameters [..., W]."""
        return parameters if self.exchange is None else self.exchange.gives(merge_step, parameters)

    def taken(self, merged: "Tensor", own: "Callable[[], Own]", given: Federation) -> "Tensor":
        """What a peer takes of what a merge gave it: a vector, or what its own data makes of vectors [1 + k, W]."""
        takes = None if self.exchange is None else self.exchange.takes
        return merged if takes is None else takes(merged if merged.dim() > 1 else merged[None], own(), given)

    def step_of_merges(self, start: "Tensor", given: Federation, second: "Tensor | None" = None) -> MergeStep:
        """What a merge does at a peer that begins with these parameters, and keeps `second` beside them."""
        return self.merge_step(start, given) if second is None else self.merge_step(start, given, second)

    def agreed_value(self) -> str:
        """What peers compare: the name, and of a user's own row a digest of what changes a run."""
        if self.name in METHODS:
            return self.name
        declared = [one.name for one in fields(self) if not one.metadata.get("shown")]
        lines = (f"{name} {fingerprint(getattr(self, name))}" for name in declared)
        return f"{self.name} {digest(*(line.encode() for line in lines))[:16]}"


_BUILT_IN: set[str] = set()  # filled below: no other row may take these names

# Colours are Okabe and Ito's: told apart in print and by colour-blind readers.
METHODS: dict[str, Method] = {
    row.name: row
    for row in (
        Method(
            "tally", "argmax votes tallied into a histogram; merges are the bridge", colour="#0072B2",
            sends=Sends.VOTES, answer=votes, target=histogram,
            learns_from_probes=True, waits=True, weighs_disagreement=True,
        ),
        Method("local", "every peer alone, on its own data", colour="#000000", merges=False, merge_every=0),
        Method(
            "no-consensus", "the probes' labels only (alpha 1): the difference to this is what the consensus adds",
            colour="#7F7F7F", learns_from_probes=True, waits=True, alpha=1.0, merge_every=0,
        ),
        Method("fedavg", "parameters averaged every M rounds", colour="#D55E00"),
        Method("fedprox", "fedavg with a pull towards the last merged model", colour="#CC79A7", proximal=True),
        Method(
            "fedmd", "mean of the peers' soft labels: 4C bytes a probe", colour="#E69F00",
            sends=Sends.SOFT, answer=soft_labels, target=mean_soft_label, learns_from_probes=True, waits=True,
        ),
        Method(
            "rcfd", "mean of the peers' k likeliest classes and their probabilities", colour="#F0E442",
            sends=Sends.TOP_K, answer=top_k, target=mean_top_k, learns_from_probes=True, waits=True,
        ),
        Method(
            "feddf", "merge every round, then distil the merged model towards the peers' mean soft label",
            colour="#56B4E9", sends=Sends.SOFT, answer=soft_labels, target=mean_soft_label,
            learns_from_probes=True, alpha=0.0, merge_every=1, distils_merged=True,
        ),
        Method(
            "fedct", "FedCT: the majority of the votes as a certain label", colour="#332288",
            sends=Sends.VOTES, answer=votes, target=majority, learns_from_probes=True, waits=True, merge_every=0,
        ),
        Method(
            "dsfl", "DS-FL: mean of the peers' soft labels, sharpened", colour="#AA4499",
            sends=Sends.SOFT, answer=soft_labels, target=sharpened, learns_from_probes=True, waits=True, merge_every=0,
        ),
        Method(
            "idkd", "IDKD: mean of the soft labels of those peers that are confident", colour="#999933",
            sends=Sends.SOFT, answer=soft_labels, target=mean_of_confident,
            learns_from_probes=True, waits=True, merge_every=0,
        ),
        Method(
            "cronus", "Cronus: mean of the peers' soft labels without those furthest out", colour="#884411",
            sends=Sends.SOFT, answer=soft_labels, target=filtered_mean,
            learns_from_probes=True, waits=True, merge_every=0,
        ),
        Method(
            "fd", "FD: for each class the mean soft label of the peers' own examples of it", colour="#6699CC",
            sends=Sends.SOFT_BY_CLASS, answer=soft_labels, target=mean_of_holders,
            learns_from_probes=True, waits=True, merge_every=0,
        ),
        Method(
            "fedproto", "FedProto: for each class the mean features of the peers' own examples", colour="#DD77AA",
            sends=Sends.FEATURES_BY_CLASS, answer=features, target=centroids, loss=pulled_to_centroids,
            learns_from_probes=True, waits=True, merge_every=0,
        ),
        Method(
            "desa", "DeSA: peers make examples after their own, and teach each other on them", colour="#44BB99",
            sends=Sends.ANCHORS, answer=soft_labels, target=by_name, loss=drawn_to_anchors,
            learns_from_probes=True, waits=True, merge_every=0,
        ),
        Method(
            "diloco", "the mean parameter change drives an outer Nesterov step", colour="#009E73",
            merge_step=outer_nesterov, common_start=True,
        ),
        Method(
            "gflat", "GFlat: fedavg whose local steps look for flat ground", colour="#117733", merge_every=1,
            merge_step=uphill, local_gradient=flat_gradient,
        ),
        Method(
            "dspodfl", "DSpodFL: local steps and links by chance", colour="#44AA99", merge_every=1,
            takes_step=sporadic_step, exchange=SPORADIC,
        ),
        Method(
            "pame", "PaME: some coordinates, to some neighbours", colour="#88CCEE", merge_every=1, exchange=PARTIAL,
        ),
        Method(
            "spod-gt", "Spod-GT: parameters and a tracker of the mean change, over one-way links", colour="#661100",
            merge_every=1, merge_step=tracker, common_start=True, takes_step=sporadic_step, exchange=TRACKING,
        ),
        Method(
            "dpfl", "DPFL: each peer's mean is of neighbours that its own data chooses", colour="#DDCC77",
            merge_every=1, exchange=CHOOSING,
        ),
        Method(
            "dfml", "DFML: each peer trains its own and its neighbours' models together, on its own data",
            colour="#882255", merge_every=1, merge_step=peak, exchange=MUTUAL, answering=peak_answers,
        ),
        Method(
            "fedkd", "FedKD: low-rank changes of a small student are merged; it and a larger mentor teach each other",
            colour="#A2A9B0", merge_every=1, merge_step=mentored, second=mentors_model, local_gradient=mutual_gradient,
            exchange=FACTORS, common_start=True,
        ),
        Method(
            "fedspd", "FedSPD: a model for each of two clusters of examples, exchanged in turn; their mixture answers",
            colour="#5E4FA2", merge_every=1, merge_step=clusters, second=of_the_same_kind, exchange=SOFT_CLUSTERS,
            local_gradient=gradient_of_the_cluster, answering=mixture_answers,
        ),
        Method(
            "dfedcad", "DFedCAD: clustered models, weighed by the distance of their centroids", colour="#7755AA",
            merge_every=1, exchange=ALIGNING,
        ),
    )
}  # fmt: skip
_BUILT_IN.update(METHODS)


def method_of(federation: Federation) -> Method:
    """The row of a federation's method: one of the table, a user's own by import path, or the object itself."""
    given = federation.method
    if isinstance(given, str) and given in METHODS:
        return METHODS[given]
    row = import_object(given, "--method", "ROW") if isinstance(given, str) else given
    if not isinstance(row, Method):
        raise ConfigError(f"--method {given}: accepted is a p2p_tally Method, not {type(row).__name__}")
    return row


# Options that only some methods read, and whether one does.
READERS: dict[str, Callable[[Method], bool]] = {
    "top_k": lambda method: method.sends is Sends.TOP_K,
    "mu": lambda method: method.proximal,
    "outer_lr": lambda method: method.merge_step is outer_nesterov,
    "outer_momentum": lambda method: method.merge_step is outer_nesterov,
    "disagreement_weight": lambda method: method.weighs_disagreement,
    "rho": lambda method: method.local_gradient is flat_gradient,
    "steps_taken": lambda method: method.takes_step is sporadic_step,
    "links_used": lambda method: method.exchange is not None and method.exchange.links in (both_ways, one_way),
    "mutual_cycle": lambda method: method.exchange is not None and method.exchange.takes is mutual,
    "mentor": lambda method: method.second is mentors_model,
    "partners": lambda method: method.exchange is not None and method.exchange.takes is greedy,
    "coordinates_sent": lambda method: method.exchange is not None and method.exchange.places is of_the_pair,
    "clusters": lambda method: method.exchange is not None and method.exchange.code is CLUSTERED,
    "factor_rank": lambda method: method.exchange is not None and method.exchange.code is LOW_RANK,
    "align": lambda method: method.exchange is not None and method.exchange.takes is aligned,
    "robust_soft": lambda method: method.sends in (Sends.SOFT, Sends.TOP_K),
    "exam": lambda method: method.sends is not Sends.NOTHING,  # by class it is refused
    "inverse_agreement": lambda method: method.target is histogram,
}


def unread_options(federation: Federation) -> list[str]:
    """Options that were changed and that the method does not read. A user's own row may read any."""
    method = method_of(federation)
    if method.name not in METHODS:
        return []
    changed = [name for name in READERS if getattr(federation, name) != federation.about(name)["default"]]
    return [name for name in changed if not READERS[name](method)]
