"""Closed forms for the bytes of a cell: the paper's accounting, and what this project sends.

Two things the paper's tables show and this follows: its ballots count for every round after the warm-up, faded out or
not; and FedDF counts only its merges (its server holds the models and needs no ballots).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.learning.methods import Sends, method_of
from p2p_tally.learning.schedule import channel, merges, resolve
from p2p_tally.protocol.ballots import BallotFormat, Form
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.segments import runs, segments
from p2p_tally.runner.experiments.experiment import Cell
from p2p_tally.runner.runs.run import whole
from p2p_tally.topologies import Topology, TopologyError, build
from p2p_tally.topologies.facts import mean_reach


@dataclass(frozen=True)
class CellBytes:
    name: str
    accounting: str
    bytes_per_probe: float
    payload_bytes: int  # the paper's
    sent_bytes: int | float  # ours, mean over peers

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "accounting": self.accounting,
            "bytes_per_probe": self.bytes_per_probe,
            "payload_bytes": self.payload_bytes,
            "sent_bytes": self.sent_bytes,
        }


def cell_bytes(cell: Cell) -> CellBytes:
    """Both closed forms for one cell. Probes are taken to be labelled where alpha is not 0."""
    facts = cell.facts
    federation = resolve(cell.federation, labelled=cell.federation.alpha != 0)
    votes = facts.votes_per_round or federation.probes_per_round
    method = method_of(federation)
    rounds = range(1, federation.rounds + 1)
    warmup = federation.warmup if isinstance(federation.warmup, int) else 0
    merging = [r for r in rounds if merges(federation, r)]
    spoken = sum(channel(federation, r, warmup).speaks for r in rounds)

    form: dict[Sends, Form] = {Sends.VOTES: federation.ballot, Sends.TOP_K: "top-k", Sends.SOFT: "soft"}
    ballot = 0
    counted = 0
    if method.sends is not Sends.NOTHING and federation.alpha != 1:
        kind = form[method.sends]
        ballot = BallotFormat(kind, votes, facts.classes, federation.top_k, federation.soft_precision).largest
        counted = 0 if method.distils_merged else max(0, federation.rounds - warmup)
    others = federation.nodes - 1
    merge = 4 * facts.parameters * (2 if cell.accounting == "star" else others)
    try:
        names = ranked_names(federation.nodes)
        topology = build(federation.topology, names, degree=federation.degree, seed=federation.seed)
    except TopologyError as error:
        raise ConfigError(f"cell {cell.name}: {error}") from None
    hearers = mean_reach(topology, federation.hops, rounds if topology.varies else range(1, 2))
    return CellBytes(
        name=cell.name,
        accounting=cell.accounting,
        bytes_per_probe=ballot / votes,
        payload_bytes=others * ballot * counted + merge * len(merging),
        sent_bytes=whole(
            (
                round(federation.nodes * hearers * ballot * spoken)
                + sum(
                    merge_bytes(federation, topology, facts.parameters, r, coding)
                    for r, coding in zip(merging, _codings(federation), strict=False)
                )
            )
            / federation.nodes
        ),
    )


def merge_bytes(federation: Federation, topology: Topology, parameters: int, round: int, coding: ChangeFormat) -> int:
    """What all peers together send of parameters in the merge of a round."""
    if federation.merge_over == "ring":
        return 2 * (federation.nodes - 1) * coding.size(parameters)  # each segment goes round twice
    if not topology.is_complete(round):
        coding = coding.dense
        return sum(topology.degrees(round)) * sum(coding.size(_length(run)) for run in runs(slice(0, parameters)))
    cut = segments(parameters, federation.nodes)
    # Every segment goes from all others to the one that sums it, and from there to all others.
    return 2 * (federation.nodes - 1) * sum(coding.size(_length(run)) for segment in cut for run in runs(segment))


def _codings(federation: Federation) -> Iterator[ChangeFormat]:
    """That of each merge: all of the first one is sent, unless peers begin with a model in common."""
    coding = ChangeFormat(federation.merge_precision, federation.merge_top_k)
    if not method_of(federation).common_start:
        yield coding.dense
    yield from repeat(coding)


def _length(run: slice) -> int:
    length: int = run.stop - run.start
    return length
