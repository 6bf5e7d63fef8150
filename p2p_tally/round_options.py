"""Who takes part in a federation, and what its peers do each round: the first part of a federation's options."""

from typing import Annotated, Literal

from pydantic import Field

from p2p_tally.option_types import (
    METHOD_NAMES,
    BallotCoding,
    MergeOver,
    MergePrecision,
    MergeWhen,
    MethodOption,
    SoftPrecision,
    Start,
    TallyWeights,
)
from p2p_tally.options import Options, option


class RoundOptions(Options):
    """The graph, the method, and when peers vote and merge."""

    # Who takes part
    nodes: int = option(8, "number of nodes", "a whole number from 1", metavar="N", agreed=True, ge=1)
    topology: str = option(
        "mesh",
        "graph of neighbours",
        "a graph that p2p-tally topology --help lists",
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
    join: str | None = option(
        None,
        "nodes that are not there from the beginning, and the first round that each plays; --nodes counts them too",
        "NAME@ROUND, several separated by commas",
        metavar="NAME@ROUND,...",
        group="Members",
        agreed=True,
        min_length=1,
    )
    leave: str | None = option(
        None,
        "nodes that leave for good, and the first round that each does not play; churn:SHARE: a fifth of the nodes is "
        "away, and in each round this share of the members changes places with them",
        "NAME@ROUND, several separated by commas, or churn:SHARE",
        metavar="NAME@ROUND,...",
        group="Members",
        agreed=True,
        min_length=1,
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
    batch: int = option(16, "examples in a local step", "a whole number from 1", metavar="B", group="Model", ge=1)
    probes_per_round: int = option(
        16, "probes sampled a round", "a whole number from 1", metavar="B", group="Votes", agreed=True, ge=1
    )
    warmup: Annotated[int, Field(ge=0)] | Literal["auto"] | None = option(
        None,
        "rounds before the channel opens; auto: once the peers are right on half of the labelled probes "
        "[default: a tenth of the rounds]",
        "a whole number from 0, or auto",
        metavar="W|auto",
        group="Votes",
        agreed=True,
    )
    alpha: float | None = option(
        None,
        "weight of the probes' labels in the distillation loss [default: 0.5; 0 where probes have no labels]",
        "a number from 0 to 1",
        metavar="A",
        group="Votes",
        agreed=True,
        ge=0,
        le=1,
    )
    kl_decay: int = option(
        0,
        "rounds T over which the consensus fades out after the warm-up; 0: it does not",
        "a whole number from 0",
        metavar="T",
        group="Votes",
        agreed=True,
        ge=0,
    )
    merge_every: int | None = option(
        None,
        "rounds M between parameter merges; 0: never [default: 50; feddf, gflat, dspodfl, pame, spod-gt, dpfl and "
        "dfedcad 1; local and no-consensus 0]",
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
        group="Merges",
        agreed=True,
    )
    merge_threshold: float = option(
        0.9,
        "drift: mean share of the votes that the plurality has, below which peers merge",
        "a number from 0 to 1",
        metavar="SHARE",
        group="Merges",
        agreed=True,
        ge=0,
        le=1,
    )
    merge_precision: MergePrecision = option(
        "float32",
        "how merged parameters are written; below float32 as the change since the last merge",
        "float32, bfloat16 or int8",
        metavar="PRECISION",
        group="Merges",
        agreed=True,
    )
    merge_top_k: float = option(
        0.0,
        "share of the change that a merge sends, the largest values; the rest waits for the next; 0: all of it",
        "a number from 0, below 1",
        metavar="SHARE",
        group="Merges",
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
        group="Merges",
        agreed=True,
    )
    robust_merge: str = option(
        "auto",
        "the mean that a merge takes, so that members that lie cannot spoil it: without the F smallest and F largest "
        "values, the median, or others; with neighbours, how far each can pull is limited; off: the plain mean; auto: "
        "trim:F for one liar in five members, and off with at most four members",
        "off, auto, median, clip, trim:F or nnm-trim:F, where F liars are borne; a whole number from 1",
        metavar="RULE",
        group="Merges",
        agreed=True,
        pattern=r"^(off|auto|median|clip|(nnm-)?trim:[1-9][0-9]{0,4})$",
    )
    start: Start = option(
        "auto",
        "parameters that the peers begin with: own: each its own; common: all the same; auto: common where peers "
        "merge, because a mean of unrelated models is worse than any of them",
        "auto, own or common",
        metavar="HOW",
        group="Merges",
        agreed=True,
    )
    hops: Annotated[int, Field(ge=1)] | Literal["all"] = option(
        1,
        "links that a vote travels, passed on by the nodes between; all: until everybody has it",
        "a whole number from 1, or all",
        metavar="H|all",
        group="Votes",
        agreed=True,
    )
    tally_weights: TallyWeights = option(
        "auto",
        "how much the votes of a tally count: all the same, by the graph's mixing weights, or by how reliable the "
        "voter was so far, class by class: by labels, and without them by what all votes say; auto: by reliability "
        "where tally learns from votes of five or more members that all hear, and not from labels; otherwise all the "
        "same",
        "auto, uniform, mixing or reliability",
        metavar="HOW",
        group="Votes",
        agreed=True,
    )
    ballot: BallotCoding = option(
        "byte", "how votes are written", "byte, packed or coded", metavar="CODING", group="Votes", agreed=True
    )

    overlap: bool = option(
        False,
        "do not wait for the network: the votes of a round are used in the next one, and a merge goes on while the "
        "next round's local steps are computed, and is then applied as the change that it makes",
        "given or not given",
        metavar="FLAG",
        group="Votes",
        agreed=True,
    )

    # What only some methods read
    top_k: int = option(
        3,
        "rcfd, and own methods that send top-k: classes sent a probe",
        "a whole number from 1",
        metavar="K",
        group="Some methods",
        agreed=True,
        ge=1,
    )
    soft_precision: SoftPrecision = option(
        "float32",
        "fedmd, rcfd, feddf: how probabilities are written; all peers, the sender too, learn from what that leaves",
        "float32, float16 or int8",
        metavar="PRECISION",
        group="Some methods",
        agreed=True,
    )
    mu: float = option(
        0.001,
        "fedprox: weight of the proximal term",
        "a number from 0",
        metavar="MU",
        group="Some methods",
        agreed=True,
        ge=0,
    )
    outer_lr: float = option(
        0.7, "diloco: outer step size", "a positive number", metavar="LR", group="Some methods", agreed=True, gt=0
    )
    outer_momentum: float = option(
        0.9,
        "diloco: outer Nesterov momentum",
        "a number from 0, below 1",
        metavar="M",
        group="Some methods",
        agreed=True,
        ge=0,
        lt=1,
    )
    rho: float = option(
        0.05,
        "gflat: distance at which a local step takes its gradient",
        "a number from 0",
        metavar="RHO",
        group="Some methods",
        agreed=True,
        ge=0,
    )
    steps_taken: float = option(
        0.5,
        "dspodfl, spod-gt: chance that a node takes a local step",
        "a number above 0, at most 1",
        metavar="SHARE",
        group="Some methods",
        agreed=True,
        gt=0,
        le=1,
    )
    links_used: float = option(
        0.5,
        "dspodfl, pame, spod-gt: chance that a merge uses a link; spod-gt: each direction of it",
        "a number above 0, at most 1",
        metavar="SHARE",
        group="Some methods",
        agreed=True,
        gt=0,
        le=1,
    )
    coordinates_sent: float = option(
        0.1,
        "pame: share of the parameters that travels over a link that is used",
        "a number above 0, at most 1",
        metavar="SHARE",
        group="Some methods",
        agreed=True,
        gt=0,
        le=1,
    )
    partners: int = option(
        3,
        "dpfl: most neighbours whose models a node takes into its mean",
        "a whole number from 0",
        metavar="B",
        group="Some methods",
        agreed=True,
        ge=0,
    )
    mutual_cycle: int = option(
        10, "dfml: merges in which what models learn from each other goes from no weight to all, and back",
        "a whole number from 2", metavar="T", group="Some methods", agreed=True, ge=2,
    )  # fmt: skip
    mentor: str = option(
        "mlp:128", "fedkd: the model that a node keeps beside the one that is merged",
        "one item of --model", metavar="MODEL", group="Some methods", agreed=True,
    )  # fmt: skip
    clusters: int = option(
        16,
        "dfedcad: clusters of each tensor's values; an index has as many bits as this needs",
        "a whole number from 2 to 256",
        metavar="K",
        group="Some methods",
        agreed=True,
        ge=2,
        le=256,
    )
    factor_rank: int = option(
        4, "fedkd: columns of the two factors that a matrix travels as", "a whole number from 1",
        metavar="R", group="Some methods", agreed=True, ge=1,
    )  # fmt: skip
    align: float = option(
        0.1, "dfedcad: share by which a value is drawn to its soft centroid after a merge", "a number from 0 to 1",
        metavar="SHARE", group="Some methods", agreed=True, ge=0, le=1,
    )  # fmt: skip
    disagreement_weight: float = option(
        0.0,
        "tally: extra KL weight where peers disagree",
        "a number from 0",
        metavar="B",
        group="Some methods",
        agreed=True,
        ge=0,
    )
    inverse_agreement: float = option(
        0.0,
        "tally: share of the peer weights that favours dissenters",
        "a number from 0 to 1",
        metavar="B",
        group="Some methods",
        agreed=True,
        ge=0,
        le=1,
    )
