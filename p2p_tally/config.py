"""What a run is: Federation (what is learned, and how) and NodeSettings (where one process does it).

Both read and write TOML, as flat keys that are the command line's options. The fields of a federation that
peers must share are marked `agreed`: they make its digest. Nothing here knows torch, sockets or the clock.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import tomli_w
from pydantic import Field, model_validator

from p2p_tally.errors import ConfigError
from p2p_tally.ids import Digest, digest
from p2p_tally.options import Options, option

MethodName = Literal["tally", "local", "no-consensus", "fedavg", "fedprox", "fedmd", "rcfd", "feddf", "diloco"]
Augmentation = Literal["auto", "none", "crop-flip"]
BallotCoding = Literal["byte", "packed", "coded"]
EngineName = Literal["exact", "stacked", "auto"]
SoftPrecision = Literal["float32", "float16", "int8"]
MergePrecision = Literal["float32", "bfloat16", "int8"]
MergeWhen = Literal["clock", "drift"]
MergeOver = Literal["neighbours", "ring"]
TallyWeights = Literal["uniform", "mixing"]

# Two bytes name at most this many classes.
MAX_CLASSES = 65_536


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
    method: MethodName = option(
        "tally",
        "how the peers learn together",
        "one of tally, local, no-consensus, fedavg, fedprox, fedmd, rcfd, feddf, diloco",
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
        "how much the votes of a tally count: all alike, or by the graph's mixing weights",
        "uniform or mixing",
        metavar="HOW",
        agreed=True,
    )
    ballot: BallotCoding = option(
        "byte", "how votes are written", "byte, packed or coded", metavar="CODING", agreed=True
    )

    # What only some methods read
    top_k: int = option(3, "rcfd: classes sent a probe", "a whole number from 1", metavar="K", agreed=True, ge=1)
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
    data: str = option(
        "digits",
        "private data and test set",
        "digits, cifar10, cifar100, stl10, wikitext2, npz:FILE, text:FILE or package.module:function",
        metavar="SOURCE",
        min_length=1,
    )
    probes: str = option(
        "holdout",
        "public probes: held out of the data, or another source (a whole data set gives its inputs without labels)",
        "holdout, cifar10, cifar100, stl10, wikitext2, npz:FILE, text:FILE or package.module:function",
        metavar="SOURCE",
        min_length=1,
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
    model: str = option(
        "auto",
        "the model; several, separated by commas, are dealt out to the nodes by rank; mlp:64x2 has a width and a depth "
        "of its own",
        "auto, mlp, cnn, cnn-half (at half the resolution), resnet18, tinygpt or package.module:function, or several "
        "of these separated by commas; all but resnet18 and functions also with a size, as mlp:WIDTH, mlp:WIDTHxDEPTH",
        metavar="MODEL,...",
        pattern=r"^[^,\s]+(,[^,\s]+)*$",
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
        """The fields that every peer must share, in a fixed order."""
        return {name: getattr(self, name) for name in type(self).model_fields if self.about(name)["agreed"]}

    def digest(self) -> Digest:
        """One value that two peers compare instead of all agreed fields."""
        return digest(json.dumps(self.agreed(), sort_keys=True).encode())


class NodeSettings(Options):
    """What belongs to one process and no peer needs to know."""

    device: str = option(
        "auto",
        "where the model lives",
        "auto, cpu, cuda or cuda:N",
        metavar="DEVICE",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
    )
    out: Path | None = option(
        None, "run folder [default: runs/ and a name made from the run]", "a folder", metavar="FOLDER"
    )
    data_root: Path | None = option(
        None, "folder of the data sets cifar10, cifar100, stl10 and wikitext2", "a folder", metavar="FOLDER"
    )
    download: bool = option(
        False, "fetch such a data set into that folder where it is missing", "given or not given", metavar="FLAG"
    )


class SimulationSettings(NodeSettings):
    """What a whole federation in one process needs besides."""

    engine: EngineName = option(
        "exact",
        "exact: node by node, bit for bit as launched; stacked: all peers as one batched model, equal to about the "
        "last digits; auto: the faster, and says which",
        "exact, stacked or auto",
        metavar="ENGINE",
    )
    checkpoint_seconds: float = option(
        60.0, "least seconds between checkpoints of the run; 0: none", "a number from 0", metavar="S", ge=0
    )


class ServiceSettings(NodeSettings):
    """What a node over real sockets needs besides, alone or launched with others."""

    barrier_timeout: Annotated[float, Field(gt=0)] | Literal["auto"] = option(
        "auto",
        "seconds to wait for a neighbour; auto: follows the waits seen",
        "a positive number of seconds, or auto",
        metavar="S|auto",
    )
    quorum: int | None = option(
        None,
        "least votes, own included, to distill on [default: a majority of the neighbourhood]",
        "a whole number from 1",
        metavar="Q",
        ge=1,
    )
    checkpoint_every: int | None = option(
        None,
        "rounds between checkpoints; 0: none [default: a twentieth of the rounds]",
        "a whole number from 0",
        metavar="ROUNDS",
        ge=0,
    )
    log_format: Literal["text", "json"] = option("text", "form of the log lines", "text or json", metavar="FORM")


class DaemonSettings(ServiceSettings):
    """What one daemon needs besides: who it is, and where it and its peers are."""

    name: str | None = option(
        None, "this node's name, as its peers write it [default: its address]", "a short plain name", metavar="NAME"
    )
    listen: str = option("127.0.0.1:7001", "where peers reach this node", "HOST:PORT", metavar="HOST:PORT")
    peers: str = option(
        "",
        "its neighbours; with --topology all the other members",
        "HOST:PORT or NAME=HOST:PORT, separated by commas",
        metavar="ADDRESS,...",
    )
    rank: int | None = option(
        None,
        "cut --data into --nodes shards and take this one [default: all of --data is this node's own]",
        "a whole number from 0, below --nodes",
        metavar="I",
        ge=0,
    )
    admin: str | None = option(
        None, "where /healthz, /readyz, /status and /metrics are served", "HOST:PORT", metavar="HOST:PORT"
    )
    resume: bool = option(False, "go on from the last checkpoint in --out", "given or not given", metavar="FLAG")
    insecure: bool = option(
        False, "listen beyond this machine without transport security", "given or not given", metavar="FLAG"
    )


def read_options(path: Path, flag: str = "--config") -> dict[str, Any]:
    """The flat keys of a TOML file, hyphens taken for underscores. `flag`: what the operator named it by."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{flag} {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag} {path}: not a TOML file: {error}") from None
    return {key.replace("-", "_"): value for key, value in values.items()}


Settings = TypeVar("Settings", bound=NodeSettings)


def parse_options(
    values: Mapping[str, Any], settings: type[Settings], *, source: str = ""
) -> tuple[Federation, Settings]:
    """Flat keys, as from a file or the command line, as the two option sets they belong to.

    One file serves every command: keys that only another command reads are passed over.
    """
    known = {*Federation.model_fields, *SimulationSettings.model_fields, *DaemonSettings.model_fields}
    unknown = sorted(set(values) - known)
    if unknown:
        where = f"{source}: " if source else ""
        raise ConfigError(f"{where}unknown key {unknown[0]!r}; known keys: {', '.join(sorted(known))}")
    problem = {key: value for key, value in values.items() if key in Federation.model_fields}
    own = {key: value for key, value in values.items() if key in settings.model_fields}
    return Federation.parse(problem, source=source), settings.parse(own, source=source)


def write_options(path: Path, federation: Federation, settings: NodeSettings) -> None:
    """A TOML file that gives the same two option sets back. The run folder itself is not part of it."""
    values = federation.model_dump(exclude_none=True, mode="json")
    values |= settings.model_dump(exclude_none=True, exclude={"out"}, mode="json")
    path.write_text(tomli_w.dumps(values), encoding="utf-8")
