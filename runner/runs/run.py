"""What a run was: one line for each evaluated round, and the summary of them all.

The figures are the paper's: tail and peak accuracy, cross-peer spread, bytes per peer. Arrays in, JSON out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p2p_tally.attacks.kinds import liars
from p2p_tally.config import Federation
from p2p_tally.learning.architectures import holders
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.schedule import in_tail
from p2p_tally.runner.runs.provenance import Provenance
from p2p_tally.runner.runs.time_axis import time_figures

if TYPE_CHECKING:
    from p2p_tally.runner.runs.models import RunModels


@dataclass(frozen=True)
class RoundLine:
    """One evaluated round of a whole federation: a line of rounds.jsonl."""

    round: int
    accuracy: list[float]  # per cent, per node in name order
    loss: list[float]  # mean cross-entropy on the test set, per node
    merged: bool
    plurality_right: float | None  # shares over the probes that are looked at, all peers' votes
    agreement: float | None
    margin: float | None
    pairwise_kl: float | None  # Lemma 1's disagreement, mean over ordered pairs
    payload_bytes: float  # sent so far, mean over peers
    framed_bytes: float
    sent: dict[str, dict[str, float]]  # since the last line, by stage: payload and framed, mean over peers
    seconds: dict[str, float]  # since the last line, by phase, mean over nodes
    # By the virtual clock of --link, since the run began.
    hours: float | None = None
    idle: float | None = None  # the share of them in which a node does not compute, mean over nodes
    own_accuracy: list[float] | None = None  # per cent, on data distributed like each node's own; of old runs unknown

    def as_json(self) -> dict[str, Any]:
        """Without what was not measured."""
        left_out = ("hours", "idle", "own_accuracy")
        return {key: value for key, value in asdict(self).items() if value is not None or key not in left_out}


def of_each(reports: Sequence[Mapping[str, Any] | None], key: str) -> list[float]:
    """A figure of each node's own line, where it has one; NaN otherwise."""
    found = (None if line is None else line.get(key) for line in reports)
    return [math.nan if value is None else value for value in found]


@dataclass
class Run:
    """The results of a run, as arrays where they are arrays: [E] evaluated rounds, [N] nodes."""

    federation: Federation  # every default filled in
    names: list[str]
    lines: list[RoundLine] = field(default_factory=list)
    parameters_sha256: list[str] = field(default_factory=list)
    seconds: float = 0.0
    folder: Path | None = None
    provenance: Provenance = field(default_factory=Provenance)
    wire_bytes: float | None = None  # with TCP and IP headers, mean over peers; None where nothing crossed a network
    distrusted: list[str] | None = None  # voters that most honest nodes distrust at the end; None: nobody judges
    model_files: list[bytes] = field(default_factory=list, repr=False)  # of a run without a folder, where they would be

    @property
    def models(self) -> "RunModels":
        """The trained models, by rank, ready for use."""
        from p2p_tally.runner.runs.models import RunModels  # noqa: PLC0415 - torch, which a launcher does without

        folder = self.folder
        if folder is None:
            return RunModels(self.federation, self.model_files)
        return RunModels(self.federation, [folder / f"{name}.safetensors" for name in self.names])

    @property
    def rounds(self) -> np.ndarray:
        return np.array([line.round for line in self.lines])  # [E]

    @property
    def accuracy(self) -> np.ndarray:
        """Per cent, [E, N]."""
        return np.array([line.accuracy for line in self.lines])

    @property
    def loss(self) -> np.ndarray:
        return np.array([line.loss for line in self.lines])  # [E, N]

    @property
    def own_accuracy(self) -> np.ndarray:
        """Per cent, on data distributed like each node's own, [E, N]; NaN where it is not known."""
        unknown = [np.nan] * len(self.names)
        return np.array([unknown if line.own_accuracy is None else line.own_accuracy for line in self.lines])

    @property
    def honest(self) -> int:
        """How many members do not lie: the first ones."""
        return len(self.names) - liars(self.federation)

    @property
    def liars(self) -> list[str]:
        return self.names[self.honest :]

    @property
    def hours(self) -> np.ndarray:
        """By the virtual clock of --link, [E]; NaN without one."""
        return np.array([np.nan if line.hours is None else line.hours for line in self.lines])

    @property
    def merge_rounds(self) -> list[int]:
        """Evaluated rounds that ended with a merge."""
        return [line.round for line in self.lines if line.merged]

    @property
    def tail(self) -> np.ndarray:
        """Which evaluated rounds make the tail, [E]."""
        return np.array([in_tail(self.federation, line.round) for line in self.lines])

    def summary(self) -> dict[str, Any]:
        """The one line of JSON that a run prints."""
        federation, last = self.federation, self.lines[-1]
        accuracy = self.accuracy[:, : self.honest]
        tail = accuracy[self.tail]  # [tail, n]
        return {
            "method": method_of(federation).name,
            "nodes": federation.nodes,
            "topology": federation.topology,
            "rounds": federation.rounds,
            "seed": federation.seed,
            "tail_accuracy": float(np.nanmean(tail)),
            **self._own_tail(),
            "peak_accuracy": float(np.nanmean(accuracy, 1).max()),
            "cross_peer_std": float(np.nanstd(tail, 1).mean()),
            **self._lies(),
            **self._perplexity(),
            **self._by_model(tail),
            "accuracy": last.accuracy,
            "payload_bytes": whole(last.payload_bytes),
            "framed_bytes": whole(last.framed_bytes),
            **({} if self.wire_bytes is None else {"wire_bytes": whole(self.wire_bytes)}),
            "parameters_sha256": self.parameters_sha256,
            "seconds": self.seconds,
            **time_figures(last.round, np.nanmean(accuracy, 1), self.hours, last.idle or 0.0),
            "run": str(self.folder) if self.folder else None,
        }

    def _own_tail(self) -> dict[str, float]:
        """Tail accuracy on data distributed like each node's own, where it was measured."""
        tail = self.own_accuracy[self.tail, : self.honest]
        return {} if np.isnan(tail).all() else {"own_tail_accuracy": float(np.nanmean(tail))}

    def _lies(self) -> dict[str, Any]:
        """Where members lie: how, and who; accuracies are then those of the honest. And whom most do not trust."""
        lies = {} if self.honest == len(self.names) else {"attack": self.federation.attack, "liars": self.liars}
        return lies if self.distrusted is None else {**lies, "distrusted": self.distrusted}

    def _by_model(self, tail: np.ndarray) -> dict[str, Any]:
        """Where the peers hold different models: tail accuracy of each, and the parameters of each peer's."""
        held = holders(self.federation)
        if len(held) == 1:
            return {}
        honest = {model: [rank for rank in ranks if rank < self.honest] for model, ranks in held.items()}
        tails = {model: float(np.nanmean(tail[:, ranks])) for model, ranks in honest.items() if ranks}
        return {"tail_by_model": tails, "parameters": self.provenance.parameters}

    def _perplexity(self) -> dict[str, float]:
        """Of language models also the exponential of the tail's mean loss."""
        if not predicts_tokens(self.federation):
            return {}
        with np.errstate(over="ignore"):
            return {"tail_perplexity": float(np.exp(np.nanmean(self.loss[self.tail, : self.honest])))}


def predicts_tokens(federation: Federation) -> bool:
    data = federation.data
    return isinstance(data, str) and (data == "wikitext2" or data.startswith("text:"))


def cell_name(federation: Federation) -> str:
    """A federation's method as the tables spell it: tally+fa50, fedavg-fa50, local."""
    method = method_of(federation)
    if not federation.merge_every or not method.merges or method.distils_merged:
        return method.shown_as
    joint = "+" if method.learns_from_probes else "-"
    return f"{method.shown_as}{joint}fa{federation.merge_every}"


def whole(value: float) -> int | float:
    """A mean over peers that happens to be a whole number, as one."""
    return int(value) if value == int(value) else value
