"""What is learned, and how: the options of a federation, which its peers must largely share.

Fields marked `agreed` are those that every peer must share. Nothing here knows torch, sockets or the clock.
"""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, model_validator

from p2p_tally.defence_options import DefenceOptions
from p2p_tally.errors import ConfigError
from p2p_tally.ids import digest
from p2p_tally.option_types import MAX_CLASSES, METHOD_NAMES, Augmentation, ModelOption, ProbeLabels, SourceOption
from p2p_tally.options import option
from p2p_tally.own_objects import import_object
from p2p_tally.thin_links import COMPUTE, LINK, check_compute, check_links

# Peers show each other values up to this length; of a longer one its digest.
SHOWN = 200


class Federation(DefenceOptions):
    """One learning problem and the way the peers go about it. Values of None follow from the others."""

    # What they learn
    data: SourceOption = option(
        "digits",
        "private data and test set",
        "a source that p2p-tally simulate --help lists, or package.module:function (in Python also a Source)",
        metavar="SOURCE",
    )
    probes: SourceOption = option(
        "holdout",
        "public probes: held out of the data, or another source (a whole data set gives its inputs without labels)",
        "holdout, a source that p2p-tally simulate --help lists, or package.module:function (in Python also a Source)",
        metavar="SOURCE",
    )
    probe_count: int | None = option(
        None,
        "size of the probe pool [default: the source's own]",
        "a whole number from 1",
        metavar="P",
        group="Data",
        ge=1,
    )
    probe_labels: ProbeLabels = option(
        "known",
        "hidden: the probes' labels, where there are any, are not used by anybody",
        "known or hidden",
        metavar="HOW",
        group="Data",
        agreed=True,
    )
    anchor: int = option(
        0,
        "labelled training examples set apart to stand first among the probes of another source; 0: none",
        "a whole number from 0",
        metavar="P",
        group="Data",
        ge=0,
    )
    anchor_per_round: int = option(
        4,
        "probes a round that come from the anchor, where there is one",
        "a whole number from 1",
        metavar="B",
        group="Data",
        agreed=True,
        ge=1,
    )
    partition: str = option(
        "dirichlet:0.5",
        "how the private data is cut; resample:K: every node draws K examples from all, with replacement; where the "
        "default is not possible, text is cut into chunks, and more peers than there are examples for take resample:40",
        "dirichlet:A, iid, shards:K, chunks or resample:K",
        metavar="HOW",
        min_length=1,
    )
    augment: Augmentation = option(
        "auto",
        "how private images are varied at each step; auto: as is usual for the data set",
        "auto, none or crop-flip",
        metavar="HOW",
        group="Data",
    )
    vocabulary: int = option(
        2048,
        "text: tokens of the byte-pair tokenizer",
        f"a whole number from 256 (every byte) to {MAX_CLASSES} (a vote is at most three bytes)",
        metavar="V",
        group="Data",
        agreed=True,
        ge=256,
        le=MAX_CLASSES,
    )
    context: int = option(
        256, "text: tokens in a window", "a whole number from 1", metavar="T", group="Data", agreed=True, ge=1
    )
    model: ModelOption = option(
        "auto",
        "the model; several, separated by commas, are dealt out to the nodes by rank; mlp:64x2 has a width and a depth "
        "of its own",
        "a model that p2p-tally simulate --help lists, mlp:WIDTH or mlp:WIDTHxDEPTH, package.module:function, or "
        "several of these separated by commas",
        metavar="MODEL,...",
    )
    width: int = option(
        0,
        "width of mlp, cnn and tinygpt; 0: the model's own",
        "a whole number from 0",
        metavar="W",
        group="Model",
        ge=0,
    )
    depth: int = option(
        0,
        "depth of mlp, cnn and tinygpt; 0: the model's own",
        "a whole number from 0",
        metavar="D",
        group="Model",
        ge=0,
    )
    init: Path | None = option(
        None,
        "parameters to begin with: a file of an earlier run, or any that fits; a run's folder gives each node its own",
        "a safetensors file, or the folder of a run",
        metavar="FILE",
        group="Model",
    )
    train: str = option(
        "all",
        "parameters that train; the rest is neither sent nor merged; head: those of the last layer",
        "all, head, or patterns of parameter names such as 'layer4.*,fc.*'",
        metavar="all|head|PATTERN,...",
        group="Model",
        pattern=r"^[^,\s]+(,[^,\s]+)*$",
    )
    lr: float = option(1e-3, "AdamW step size", "a positive number", metavar="LR", gt=0)
    weight_decay: float = option(5e-4, "AdamW weight decay", "a number from 0", metavar="WD", group="Model", ge=0)
    clip: float = option(
        0.0, "clip the gradient's norm to this; 0: do not", "a number from 0", metavar="NORM", group="Model", ge=0
    )
    seed: int = option(
        0, "seed of everything random", "a whole number from 0", metavar="S", agreed=True, ge=0, lt=2**63
    )

    # What is measured
    test_count: int | None = option(
        None,
        "test examples that are evaluated, the first ones [default: all]",
        "a whole number from 1",
        metavar="P",
        group="Measuring",
        ge=1,
    )
    eval_every: int | None = option(
        None,
        "rounds between evaluations [default: every round where that is cheap]",
        "a whole number from 1",
        metavar="E",
        group="Measuring",
        ge=1,
    )
    tail: int | None = option(
        None,
        "rounds that the tail accuracy covers [default: a thirtieth of the rounds]",
        "a whole number from 1",
        metavar="ROUNDS",
        group="Measuring",
        ge=1,
    )
    link: Annotated[str, AfterValidator(check_links)] | None = option(
        None,
        "simulate: the nodes' links, for a virtual clock that says what the rounds would take over them; may be "
        "repeated; 1mbit/10mbit,100ms,1%: up, down, latency one way, loss; node-3=64kbit,600ms: of one node",
        LINK,
        metavar="LINK ...",
        group="Measuring",
    )
    compute: Annotated[str, AfterValidator(check_compute)] | None = option(
        None,
        "simulate: how long a node computes in a round, for the virtual clock; may be repeated; node-3=10s: of one "
        "node [default: as measured]",
        COMPUTE,
        metavar="TIME ...",
        group="Measuring",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tail is not None and self.tail > self.rounds:
            raise ValueError(f"--tail {self.tail}: accepted is at most the number of rounds, {self.rounds}")
        if self.eval_every is not None and self.eval_every > self.rounds:
            raise ValueError(f"--eval-every {self.eval_every}: accepted is at most the number of rounds, {self.rounds}")
        return self

    def agreed(self) -> dict[str, Any]:
        """The fields that every peer must share, in a fixed order; a user's own method with a digest of its row.

        Of options that came later, as members that change, nothing is said where they are not used; a long list of
        changes is told by its digest."""
        values = {name: getattr(self, name) for name in type(self).model_fields if self.about(name)["agreed"]}
        for name in ("join", "leave", "robust_soft"):
            given = values.pop(name)
            if given is not None:
                values[name] = given if len(given) <= SHOWN else digest(given.encode())[:16]
        if not self.overlap:
            del values["overlap"]
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
