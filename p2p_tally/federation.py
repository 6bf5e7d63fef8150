"""What is learned, and how: the options of a federation, which its peers must largely share.

Fields marked `agreed` are those that every peer must share. Nothing here knows torch, sockets or the clock.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from p2p_tally.errors import ConfigError
from p2p_tally.option_types import (
    MAX_CLASSES,
    METHOD_NAMES,
    Augmentation,
    BallotCoding,
    MergeOver,
    MergePrecision,
    MergeWhen,
    MethodOption,
    ModelOption,
    SoftPrecision,
    SourceOption,
    TallyWeights,
)
from p2p_tally.options import Options, option
from p2p_tally.own_objects import import_object


class Federation(Options):
    """One learning problem and the way the peers go about it. Values of None follow from the others."""

    # Who takes part
    nodes: int = option(8, "number of nodes", "a whole number from 1", metavar="N", agreed=True, ge=1)
    topology: str = option(
        "mesh",
        "graph of neighbours",
        "mesh, ring, gossip, star, ... (see: p2p-tally topology --help)",
        metavar="NAME",
        agreed=True,
        min_length=1,
    )
    degree: int | None = option(
        None,
        "neighbours a node, for graphs that take a degree",
        "a whole number from 1",
        metavar="D",
        agreed=True,
        ge=1,
    )

    # What they do each round
    method: MethodOption = option(
        "tally",
        "how the peers learn together; package.module:ROW: a row of your own",
        f"one of {', '.join(METHOD_NAMES)} or package.module:ROW (in Python also a Method)",
        metavar="METHOD",
        agreed=True,
    )
    rounds: int = option(300, "rounds R", "a whole number from 1", metavar="R", agreed=True, ge=1)
    local_steps: int = option(
        5, "local optimiser steps K a round", "a whole number from 1", metavar="K", agreed=True, ge=1
    )
    batch: int = option(16, "examples in a local step", "a whole number from 1", metavar="B", ge=1)
    probes_per_round: int = option(
        16, "probes sampled a round", "a whole number from 1", metavar="B", agreed=True, ge=1
    )
    warmup: Annotated[int, Field(ge=0)] | Literal["auto"] | None = option(
        None,
        "rounds before the channel opens; auto: once the peers are right on half of the labelled probes "
        "[default: a tenth of the rounds]",
        "a whole number from 0, or auto",
        metavar="W|auto",
        agreed=True,
    )
    alpha: float | None = option(
        None,
        "weight of the probes' labels in the distillation loss [default: 0.5; 0 where probes have no labels]",
        "a number from 0 to 1",
        metavar="A",
        agreed=True,
        ge=0,
        le=1,
    )
    kl_decay: int = option(
        0,
        "rounds T over which the consensus fades out after the warm-up; 0: it does not",
        "a whole number from 0",
        metavar="T",
        agreed=True,
        ge=0,
    )
    merge_every: int | None = option(
        None,
        "rounds M between parameter merges; 0: never [default: 50; feddf 1; local and no-consensus 0]",
        "a whole number from 0",
        metavar="M",
        agreed=True,
        ge=0,
    )
    merge_when: MergeWhen = option(
        "clock",
        "clock: merge every M rounds; drift: when the peers' votes agree less than --merge-threshold, M rounds after "
        "the last merge at the earliest",
        "clock or drift",
        metavar="WHEN",
        agreed=True,
    )
    merge_threshold: float = option(
        0.9,
        "drift: mean share of the votes that the plurality has, below which peers merge",
        "a number from 0 to 1",
        metavar="SHARE",
        agreed=True,
        ge=0,
        le=1,
    )
    merge_precision: MergePrecision = option(
        "float32",
        "how merged parameters are written; below float32 as the change since the last merge",
        "float32, bfloat16 or int8",
        metavar="PRECISION",
        agreed=True,
    )
    merge_top_k: float = option(
        0.0,
        "share of the change that a merge sends, the largest values; the rest waits for the next; 0: all of it",
        "a number from 0, below 1",
        metavar="SHARE",
        agreed=True,
        ge=0,
        lt=1,
    )
    merge_over: MergeOver = option(
        "neighbours",
        "neighbours: merges mix with the neighbours (on a mesh, the exact mean); ring: the exact mean over all, around "
        "a ring of links",
        "neighbours, or ring on a graph that has a ring of links through all nodes",
        metavar="HOW",
        agreed=True,
    )
    hops: Annotated[int, Field(ge=1)] | Literal["all"] = option(
        1,
        "links that a vote travels, passed on by the nodes between; all: until everybody has it",
        "a whole number from 1, or all",
        metavar="H|all",
        agreed=True,
    )
    tally_weights: TallyWeights = option(
        "uniform",
        "how much the votes of a tally count: all the same, or by the graph's mixing weights",
        "uniform or mixing",
        metavar="HOW",
        agreed=True,
    )
    ballot: BallotCoding = option(
        "byte", "how votes are written", "byte, packed or coded", metavar="CODING", agreed=True
    )

    # What only some methods read
    top_k: int = option(
        3,
        "rcfd, and own methods that send top-k: classes sent a probe",
        "a whole number from 1",
        metavar="K",
        agreed=True,
        ge=1,
    )
    soft_precision: SoftPrecision = option(
        "float32",
        "fedmd, rcfd, feddf: how probabilities are written; all peers, the sender too, learn from what that leaves",
        "float32, float16 or int8",
        metavar="PRECISION",
        agreed=True,
    )
    mu: float = option(
        0.001, "fedprox: weight of the proximal term", "a number from 0", metavar="MU", agreed=True, ge=0
    )
    outer_lr: float = option(0.7, "diloco: outer step size", "a positive number", metavar="LR", agreed=True, gt=0)
    outer_momentum: float = option(
        0.9,
        "diloco: outer Nesterov momentum",
        "a number from 0, below 1",
        metavar="M",
        agreed=True,
        ge=0,
        lt=1,
    )
    disagreement_weight: float = option(
        0.0, "tally: extra KL weight where peers disagree", "a number from 0", metavar="B", agreed=True, ge=0
    )
    inverse_agreement: float = option(
        0.0,
        "tally: share of the peer weights that favours dissenters",
        "a number from 0 to 1",
        metavar="B",
        agreed=True,
        ge=0,
        le=1,
    )

    # What they learn
    data: SourceOption = option(
        "digits",
        "private data and test set",
        "digits, cifar10, cifar100, stl10, wikitext2, npz:FILE, text:FILE, features:IMAGES or package.module:function "
        "(in Python also a Source)",
        metavar="SOURCE",
    )
    probes: SourceOption = option(
        "holdout",
        "public probes: held out of the data, or another source (a whole data set gives its inputs without labels)",
        "holdout, cifar10, cifar100, stl10, wikitext2, npz:FILE, text:FILE, features:IMAGES or package.module:function "
        "(in Python also a Source)",
        metavar="SOURCE",
    )
    probe_count: int | None = option(
        None, "size of the probe pool [default: the source's own]", "a whole number from 1", metavar="P", ge=1
    )
    anchor: int = option(
        0,
        "labelled training examples set apart to stand first among the probes of another source; 0: none",
        "a whole number from 0",
        metavar="P",
        ge=0,
    )
    anchor_per_round: int = option(
        4,
        "probes a round that come from the anchor, where there is one",
        "a whole number from 1",
        metavar="B",
        agreed=True,
        ge=1,
    )
    partition: str = option(
        "dirichlet:0.5",
        "how the private data is cut; resample:K: every node draws K examples from all, with replacement",
        "dirichlet:A, iid, shards:K, chunks or resample:K",
        metavar="HOW",
        min_length=1,
    )
    augment: Augmentation = option(
        "auto",
        "how private images are varied at each step; auto: as is usual for the data set",
        "auto, none or crop-flip",
        metavar="HOW",
    )
    vocabulary: int = option(
        2048,
        "text: tokens of the byte-pair tokenizer",
        f"a whole number from 256 (every byte) to {MAX_CLASSES} (a vote is at most two bytes)",
        metavar="V",
        agreed=True,
        ge=256,
        le=MAX_CLASSES,
    )
    context: int = option(256, "text: tokens in a window", "a whole number from 1", metavar="T", agreed=True, ge=1)
    model: ModelOption = option(
        "auto",
        "the model; several, separated by commas, are dealt out to the nodes by rank; mlp:64x2 has a width and a depth "
        "of its own",
        "auto, mlp, cnn, cnn-half (at half the resolution), resnet18, tinygpt or package.module:function, or several "
        "of these separated by commas; all but resnet18 and functions also with a size, as mlp:WIDTH, mlp:WIDTHxDEPTH",
        metavar="MODEL,...",
    )
    width: int = option(
        0, "width of mlp, cnn and tinygpt; 0: the model's own", "a whole number from 0", metavar="W", ge=0
    )
    depth: int = option(
        0, "depth of mlp, cnn and tinygpt; 0: the model's own", "a whole number from 0", metavar="D", ge=0
    )
    lr: float = option(1e-3, "AdamW step size", "a positive number", metavar="LR", gt=0)
    weight_decay: float = option(5e-4, "AdamW weight decay", "a number from 0", metavar="WD", ge=0)
    clip: float = option(0.0, "clip the gradient's norm to this; 0: do not", "a number from 0", metavar="NORM", ge=0)
    seed: int = option(
        0, "seed of everything random", "a whole number from 0", metavar="S", agreed=True, ge=0, lt=2**63
    )

    # What is measured
    test_count: int | None = option(
        None,
        "test examples that are evaluated, the first ones [default: all]",
        "a whole number from 1",
        metavar="P",
        ge=1,
    )
    eval_every: int | None = option(
        None,
        "rounds between evaluations [default: every round where that is cheap]",
        "a whole number from 1",
        metavar="E",
        ge=1,
    )
    tail: int | None = option(
        None,
        "rounds that the tail accuracy covers [default: a thirtieth of the rounds]",
        "a whole number from 1",
        metavar="ROUNDS",
        ge=1,
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tail is not None and self.tail > self.rounds:
            raise ValueError(f"--tail {self.tail}: accepted is at most the number of rounds, {self.rounds}")
        if self.eval_every is not None and self.eval_every > self.rounds:
            raise ValueError(f"--eval-every {self.eval_every}: accepted is at most the number of rounds, {self.rounds}")
        return self

    def agreed(self) -> dict[str, Any]:
        """The fields that every peer must share, in a fixed order; a user's own method with a digest of its row."""
        values = {name: getattr(self, name) for name in type(self).model_fields if self.about(name)["agreed"]}
        return values | {"method": self._agreed_method()}

    def _agreed_method(self) -> str:
        if self.method in METHOD_NAMES:
            return str(self.method)
        row = self.method
        if isinstance(row, str):
            row = import_object(row, "--method", "ROW")
        return row.agreed_value()

    def check_names(self) -> None:
        """Refuse an object of the user's own that a file or another process could not name."""
        for name in ("method", "model", "data", "probes"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise ConfigError(
                    f"--{name} {getattr(value, '__name__', value)}: an object without an import path cannot be written "
                    "to a file or given to another process; define it in a module and name it as package.module:NAME"
                )

    def model_dump(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As pydantic's; for JSON and TOML, every object must have a name."""
        if kwargs.get("mode") == "json":
            self.check_names()
        return super().model_dump(*args, **kwargs)
