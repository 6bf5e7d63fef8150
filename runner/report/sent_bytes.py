"""What runs sent, by kind of message, beside what their votes would have taken in each coding. For `payload --run`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from p2p_tally.config import BallotCoding, Federation
from p2p_tally.node.formats import ballot_form
from p2p_tally.runner.experiments.experiment import ByteFacts, Cell
from p2p_tally.runner.experiments.payload import cell_bytes
from p2p_tally.runner.report.results import CellResults, collect
from p2p_tally.runner.runs.run import predicts_tokens


@dataclass(frozen=True)
class MeasuredBytes:
    """Of one cell, a peer's mean over peers and seeds."""

    name: str
    ballot: str
    as_byte: float | None  # closed forms of the same run's payload with other ballots; None where it sends no votes
    as_packed: float | None
    payload: float
    framed: float
    wire: float | None
    kinds: dict[str, dict[str, float]]  # payload and framed; the kernel knows links, not kinds

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ballot": self.ballot,
            "byte_bytes": self.as_byte,
            "packed_bytes": self.as_packed,
            "payload_bytes": self.payload,
            "framed_bytes": self.framed,
            "wire_bytes": self.wire,
            "kinds": self.kinds,
        }


def measure_runs(paths: Sequence[Path]) -> list[MeasuredBytes]:
    return [_measure(cell) for results in collect(paths) for cell in results.cells]


def _measure(cell: CellResults) -> MeasuredBytes:
    kinds: dict[str, dict[str, float]] = {}
    for run in cell.runs:
        for line in run.lines:
            for kind, counts in line.sent.items():
                into = kinds.setdefault(kind, {"payload": 0.0, "framed": 0.0})
                for accounting, count in counts.items():
                    into[accounting] += count / len(cell.runs)
    wire = [run.wire_bytes for run in cell.runs if run.wire_bytes is not None]
    votes = ballot_form(cell.federation) in get_args(BallotCoding)
    return MeasuredBytes(
        name=cell.name,
        ballot=_ballot(cell.federation),
        as_byte=_closed_form(cell, "byte") if votes else None,
        as_packed=_closed_form(cell, "packed") if votes else None,
        payload=fmean(run.lines[-1].payload_bytes for run in cell.runs),
        framed=fmean(run.lines[-1].framed_bytes for run in cell.runs),
        wire=fmean(wire) if wire else None,
        kinds=dict(sorted(kinds.items())),
    )


def _ballot(federation: Federation) -> str:
    """How a ballot of this run is written."""
    match ballot_form(federation):
        case None:
            return "–"
        case "top-k":
            return f"top {federation.top_k}, {federation.soft_precision}"
        case "soft":
            return f"soft, {federation.soft_precision}"
        case coding:
            return coding


def _closed_form(cell: CellResults, ballot: BallotCoding) -> float | None:
    made = cell.runs[0].provenance
    classes, parameters = cell.classes or made.classes, made.parameters or cell.parameters
    if classes is None or parameters is None:
        return None
    if isinstance(parameters, list):  # peers with different models do not merge: no parameters are sent
        parameters = max(parameters)
    federation = cell.federation
    windows = federation.probes_per_round * federation.context if predicts_tokens(federation) else None
    other = federation.model_copy(update={"ballot": ballot})
    return float(cell_bytes(Cell(cell.name, other, ByteFacts(classes, parameters, windows), "star")).sent_bytes)
