"""The bytes of a cell before it is run: by the paper's accounting, and as this project sends them.

The paper's accounting is written out here. Two things its tables show: ballots count for every round after the warm-up,
even where the consensus has faded out; and FedDF counts only its merges, because its server holds the models and needs
no ballots. What this project sends is counted by `node/traffic.py`.
"""

from dataclasses import dataclass
from typing import Any

from p2p_tally.errors import ConfigError
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.schedule import merges, resolve, sends_ballots
from p2p_tally.node.formats import ballot_format
from p2p_tally.node.traffic import Traffic, payload
from p2p_tally.runner.experiments.experiment import Cell
from p2p_tally.runner.runs.run import whole


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
    """Both counts for one cell. Probes are taken to be labelled where alpha is not 0."""
    facts = cell.facts
    federation = resolve(
        cell.federation,
        labelled=cell.federation.alpha != 0 and cell.federation.probe_labels == "known",
        classes=facts.classes,
    )
    votes = facts.votes_per_round or federation.probes_per_round
    if method_of(federation).sends.features and not facts.features:
        raise ConfigError(f"cell {cell.name}: the method {federation.method} sends features; facts must say how many")
    exchange = method_of(federation).exchange
    if exchange is not None and exchange.code is not None and not facts.layout:
        raise ConfigError(
            f"cell {cell.name}: the method {federation.method} sends coded tensors; facts must say their shapes: layout"
        )
    ballots = ballot_format(federation, votes, facts.classes, facts.features)
    try:
        topology = make_topology(federation)
    except ConfigError as error:
        raise ConfigError(f"cell {cell.name}: {error}") from None

    warmup = federation.warmup if isinstance(federation.warmup, int) else 0
    ballot = ballots.largest if sends_ballots(federation) else 0
    voted = 0 if method_of(federation).distils_merged else max(0, federation.rounds - warmup)
    merged = sum(merges(federation, r) for r in range(1, federation.rounds + 1))
    others = federation.nodes - 1
    merge = 4 * facts.parameters * (2 if cell.accounting == "star" else others)
    return CellBytes(
        name=cell.name,
        accounting=cell.accounting,
        bytes_per_probe=ballot / votes,
        payload_bytes=others * ballot * voted + merge * merged,
        sent_bytes=whole(
            _sent(Traffic(federation, topology, ballots, facts.parameters, facts.layout)) / federation.nodes
        ),
    )


def _sent(traffic: Traffic) -> int:
    """What all peers together send. Rounds of the same graph that do the same are counted once."""
    known: dict[object, int] = {}
    total = 0
    for r, said, merge in traffic.planned():
        alike = traffic.alike(r), bool(said), merge, traffic.topology.newcomers(r)
        if alike not in known:
            known[alike] = payload(traffic.round(r, said, merge))
        total += known[alike]
    return total
