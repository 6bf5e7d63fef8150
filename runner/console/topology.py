"""The facts of graphs, for the command line: described, with what votes and merges cost in bytes, compared, drawn."""

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.node.traffic import Copies, Traffic, payload
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.messages import Vote
from p2p_tally.runner.console.terminal import Column, print_columns
from p2p_tally.topologies import Hops, Topology, TopologyError, build
from p2p_tally.topologies.facts import describe, mean_reach, plot, surveyed_rounds


def make(name: str, nodes: int, degree: int | None, seed: int) -> Topology:
    """A topology over ranked names, or a ConfigError in one line."""
    if nodes < 1:
        raise ConfigError(f"--nodes {nodes}: accepted is a whole number from 1")
    try:
        return build(name, ranked_names(nodes), degree=degree, seed=seed)
    except TopologyError as error:
        raise ConfigError(str(error)) from None


def facts(
    name: str, nodes: int, degree: int | None, seed: int, hops: Hops, probes: int, classes: int, parameters: int
) -> dict[str, Any]:
    topology = make(name, nodes, degree, seed)
    found = describe(topology)
    return {
        "name": name,
        "nodes": found.nodes,
        "edges": found.edges,
        "degree": list(found.degree),
        "diameter": found.diameter,
        "spectral_gap": found.spectral_gap,
        "rounds_to_tenfold": found.rounds_to_tenfold,
        "hops": hops,
        "reach": mean_reach(topology, hops),
        "vote_bytes": vote_bytes(topology, hops, probes, classes),
        "merge_bytes": merge_bytes(topology, parameters),
        "mesh_cheaper_until": mesh_cheaper_until(classes),
    }


def vote_bytes(topology: Topology, hops: Hops, probes: int, classes: int) -> float:
    """Bytes of votes, a class index each, that a peer sends in a round on average, what it passes on included."""
    ballots = BallotFormat("byte", probes, classes)
    traffic = Traffic(Federation(hops=hops), topology, ballots, parameters=0)
    one_byte = [(Vote(1, bytes(1)), traffic.everyone)]
    return _copies(topology, (traffic.round(r, one_byte) for r in surveyed_rounds(topology)), 1) * ballots.largest


def merge_bytes(topology: Topology, parameters: int) -> float:
    """Bytes of float32 parameters that a peer sends in a merge on average.

    Over a complete graph these are 2 (N - 1) / N of the parameters, elsewhere all of them to each neighbour.
    """
    plain = ChangeFormat()
    size = plain.size(parameters)
    traffic = Traffic(Federation(robust_merge="off"), topology, BallotFormat("byte", 1, 2), parameters)
    rounds = (traffic.round(r, merge=plain) for r in surveyed_rounds(topology))
    return _copies(topology, rounds, size) * size if size else 0.0


def _copies(topology: Topology, rounds: Iterable[Iterable[Copies]], size: int) -> float:
    """How many copies of something of this size a peer sends in a round, on average."""
    return fmean(payload(sent) / (len(topology.members) * size) for sent in rounds)


def mesh_cheaper_until(classes: int) -> int:
    """The N up to which a mesh of votes, N - 1 bytes a probe, costs no more than a star of soft labels, 4 bytes a
    class."""
    return 4 * classes + 1


COLUMNS = (
    Column("graph", words=True),
    Column("nodes", least_useful=3),
    Column("edges", least_useful=2),
    Column("degree"),
    Column("diameter", least_useful=1),
    Column("gap"),
    Column("rounds/10x"),
    Column("vote B"),
    Column("merge B"),
)


def compare(rows: list[dict[str, Any]], classes: int) -> None:
    """A table, a graph a row."""
    print_columns(COLUMNS, [_cells(row) for row in rows])
    console = Console()
    console.print(
        "gap: the spectral gap of the mixing weights; rounds/10x: merges until the peers disagree a tenth as much; "
        f"vote and merge: bytes a peer sends a round{_over(rows[0]['hops'])}. "
        f"A mesh of votes is cheaper than a star of soft labels up to N = 4C + 1 = {mesh_cheaper_until(classes)}.",
        highlight=False,
        soft_wrap=not console.is_terminal,
    )


def _cells(row: dict[str, Any]) -> list[str]:
    low, high = row["degree"]
    return [
        row["name"],
        str(row["nodes"]),
        str(row["edges"]),
        str(low) if low == high else f"{low}-{high}",
        str(row["diameter"]),
        f"{row['spectral_gap']:.4f}",
        str(row["rounds_to_tenfold"]),
        f"{row['vote_bytes']:,.0f}",
        f"{row['merge_bytes']:,.0f}",
    ]


def _over(hops: Hops) -> str:
    return "" if hops == 1 else f", votes over {hops} hops"


def draw(names: list[str], nodes: int, degree: int | None, seed: int, path: Path) -> None:
    if len(names) != 1:
        raise ConfigError("--plot: accepted with one graph at a time")
    try:
        plot(make(names[0], nodes, degree, seed), path)
    except (OSError, TopologyError) as error:
        raise ConfigError(f"--plot {path}: {error}") from None
