"""What is said and shown of a topology: its size, how fast it mixes, how many hear a vote, its picture.

All of it follows from the graph; no node needs it to run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import Any

from p2p_tally.topologies.errors import TopologyError
from p2p_tally.topologies.mixing import expected_gap, metropolis_hastings, rounds_to_contract, spectral_gap
from p2p_tally.topologies.topology import Hops, Topology

# How many graphs are surveyed where they are redrawn without end. Each is random, and their facts differ little.
SURVEY = 8
# The picture: rounds shown of a graph that varies, and members up to which names are legible.
SHOWN = 8
NAMED = 48
PICTURES = (".svg", ".png", ".pdf")


@dataclass(frozen=True)
class Facts:
    name: str
    nodes: int
    edges: int  # in a round; of round 1 where it varies
    degree: tuple[int, int]  # fewest and most neighbours a node has, over the rounds looked at
    diameter: int  # rounds until a message of every node has reached all others, passed on once a round
    spectral_gap: float  # 1 - the factor by which a round of mixing shrinks disagreement
    rounds_to_tenfold: int  # rounds of mixing until disagreement is a tenth, in whole periods
    complete: bool
    varies: bool
    period: int | None  # rounds after which the graphs repeat; None if never


def describe(topology: Topology) -> Facts:
    """The facts of a topology. Its gap is the worst case, or the expected if redrawn without end."""
    nodes = len(topology.members)
    rounds = surveyed_rounds(topology)
    degrees = [degree for round in rounds for degree in topology.degrees(round)]
    complete = all(topology.is_complete(round) for round in rounds)
    gap = 1.0 if complete else _gap(topology, rounds)
    period = topology.period or 1
    per_period = gap if period == 1 else 1.0 - (1.0 - gap) ** period
    return Facts(
        name=topology.name,
        nodes=nodes,
        edges=sum(topology.degrees()) // 2,
        degree=(min(degrees), max(degrees)),
        diameter=_diameter(topology),
        spectral_gap=gap,
        rounds_to_tenfold=0 if nodes == 1 else period * rounds_to_contract(per_period),
        complete=complete,
        varies=topology.varies,
        period=topology.period,
    )


def surveyed_rounds(topology: Topology) -> range:
    """The rounds that stand for all rounds: one period; where there is none, one round of each of the first graphs."""
    if topology.period is not None:
        return range(1, topology.period + 1)
    return range(1, SURVEY * topology.hold + 1, topology.hold)


def mean_reach(topology: Topology, hops: Hops = 1) -> float:
    """How many others hear a peer's vote, on average."""
    rounds = surveyed_rounds(topology)
    if hops == 1:
        return fmean(fmean(topology.degrees(round)) for round in rounds)
    return fmean(
        len(topology.members) - 1 if topology.is_complete(round) else fmean(topology.reach(round, hops).sizes.tolist())
        for round in rounds
    )


def plot(topology: Topology, path: str | PathLike[str]) -> None:
    """Draw the members on a circle in rank order (a star's hub within) to an SVG, PNG or PDF file.

    Where it varies, round 1 is dark and the other edges of its first rounds light.
    """
    # matplotlib is slow to load and only wanted here; pyplot, with its global state and windows, never.
    from matplotlib.collections import LineCollection  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    target = Path(path)
    if target.suffix.lower() not in PICTURES:
        raise TopologyError(f"picture {str(target)!r}: the name must end in one of {', '.join(PICTURES)}")
    nodes = len(topology.members)
    places = _places(topology)
    figure = Figure(figsize=(7, 7), layout="constrained")
    axes = figure.add_subplot()
    now = topology.graph()
    later = topology.union(min(topology.period or SHOWN, SHOWN))
    crowd = max(1.0, later.number_of_edges() / 200)  # many lines must be thin and pale to be told apart
    layers = [(later, "#aab2bf", 1), (now, "#3b5b8c", 2)] if topology.varies else [(now, "#3b5b8c", 2)]
    for graph, colour, order in layers:
        segments = [(places[one], places[other]) for one, other in graph.edges()]
        axes.add_collection(
            LineCollection(
                segments,
                colors=colour,
                linewidths=max(0.25, 1.4 / crowd**0.5),
                alpha=max(0.03, 0.9 / crowd**0.6),
            ),
            autolim=False,
        ).set_zorder(order)
    across, up = zip(*places.values(), strict=True)
    axes.scatter(across, up, s=max(6.0, min(160.0, 2500.0 / nodes)), c="#d1603d", zorder=3)
    if nodes <= NAMED:
        _write_names(axes, places)
    facts = f"{nodes} nodes, {now.number_of_edges()} edges"
    axes.set_title(f"{topology.name}: {facts}" + (" in round 1 (dark)" if topology.varies else ""))
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.15, 1.15), aspect="equal")
    axes.set_axis_off()
    try:
        figure.savefig(target, dpi=150)
    except OSError as error:
        raise TopologyError(f"picture {str(target)!r}: cannot be written: {error.strerror or error}") from None


def _gap(topology: Topology, rounds: Sequence[int]) -> float:
    matrices = [metropolis_hastings(topology.graph(round)) for round in rounds]
    return expected_gap(matrices, topology.hold) if topology.period is None else spectral_gap(*matrices)


def _diameter(topology: Topology) -> int:
    """Rounds of flooding from round 1. Of a graph that stays, that is its diameter.

    What a node has heard of is one integer with a bit a member: a round costs O(edges) such integers.
    """
    heard = {member: 1 << rank for rank, member in enumerate(topology.members)}
    everyone = (1 << len(heard)) - 1
    round = 0
    while any(known != everyone for known in heard.values()):
        round += 1
        if topology.is_complete(round):  # a mesh of thousands: not worth walking its edges
            return round
        before = heard
        heard = {}
        for member, known in before.items():
            for neighbour in topology.neighbours(member, round):
                known |= before[neighbour]  # noqa: PLW2901
            heard[member] = known
    return round


def _places(topology: Topology) -> dict[str, tuple[float, float]]:
    """From the top, clockwise. A lone hub joined to all others stands in the middle."""
    members = list(topology.members)
    degrees = topology.degrees()
    hub = len(members) > 2 and degrees[0] == len(members) - 1 and max(degrees[1:]) == 1
    places = {members.pop(0): (0.0, 0.0)} if hub or len(members) == 1 else {}
    for place, member in enumerate(members):
        angle = pi / 2 - 2 * pi * place / len(members)
        places[member] = (cos(angle), sin(angle))
    return places


def _write_names(axes: Any, places: dict[str, tuple[float, float]]) -> None:
    size = 11 if len(places) <= 16 else 7
    for member, (x, y) in places.items():
        inside = x == y == 0.0
        axes.text(
            *((0.06, 0.06) if inside else (1.08 * x, 1.08 * y)),
            member,
            fontsize=size,
            ha="left" if inside or x > 0.1 else "right" if x < -0.1 else "center",
            va="bottom" if inside or y > 0.1 else "top" if y < -0.1 else "center",
            zorder=4,
        )
