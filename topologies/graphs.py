"""Named topologies: one row for each name, with the options that it accepts. Checks that a graph is connected.

The edges come from shapes.py, or from a file (graph_files.py).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import networkx as nx

from p2p_tally.topologies import satellites, shapes
from p2p_tally.topologies.errors import TopologyError
from p2p_tally.topologies.graph_files import read_edges
from p2p_tally.topologies.topology import Edge, Schedule, Topology

LONGEST_NUMBER = 9  # digits; a longer number must be a typing error


@dataclass(frozen=True)
class Request:
    """What a topology is built from. `argument`: the part of the name after the colon."""

    name: str
    argument: str
    members: tuple[str, ...]
    degree: int | None
    seed: int

    @property
    def count(self) -> int:
        return len(self.members)

    def __str__(self) -> str:
        return f"{self.name} of {self.count}"


@dataclass(frozen=True)
class Row:
    plan: Callable[[Request], Schedule]
    summary: str
    argument: str = ""  # the argument as shown to users, if the name has one
    takes_degree: bool = False


def build(name: str, members: Sequence[str], *, degree: int | None = None, seed: int = 0) -> Topology:
    """The topology with this name over these members, given in order of rank.

    `degree` is an option of gossip, gossip-k and small-world. For other names it must be the degree that they have.
    """
    row, argument = _look_up(name)
    request = Request(name, argument, _checked(members), degree, seed)
    if degree is not None and degree < 1:
        raise TopologyError(f"{request}: degree {degree} is too small; it must be 1 or more")
    schedule = row.plan(request)
    if request.count == 1 and row is not ROWS["file"]:
        schedule = Schedule(lambda _: ())  # one member has no edges
    topology = Topology(name, request.members, schedule)
    _check_degree(topology, request, row.takes_degree)
    _check_connected(topology)
    return topology


def _look_up(name: str) -> tuple[Row, str]:
    base, colon, argument = name.partition(":")
    row = ROWS.get(base)
    if row is None or bool(colon) != bool(row.argument) or (colon and not argument):
        raise TopologyError(f"topology {name!r} is unknown; accepted: {', '.join(NAMES)}")
    return row, argument


def _checked(members: Sequence[str]) -> tuple[str, ...]:
    if not members:
        raise TopologyError("a topology needs at least one member")
    seen: set[str] = set()
    for member in members:
        if member in seen:
            raise TopologyError(f"member {member!r} is given twice; names must differ")
        seen.add(member)
    return tuple(members)


def _check_degree(topology: Topology, request: Request, taken: bool) -> None:
    """A name without this option accepts the degree that it has, so that one option serves to compare several names."""
    few, many = min(topology.degrees()), max(topology.degrees())
    if request.degree is None or (taken and request.count > 1) or few == many == request.degree:
        return
    has = f"{few}" if few == many else f"{few} to {many}"
    raise TopologyError(f"{request}: degree {request.degree} contradicts it, a node has {has} neighbours; leave it out")


def _check_connected(topology: Topology) -> None:
    """Connected over one period. Graphs drawn anew without end are by design: gossip-k in each graph, matchings over
    time."""
    if topology.period is None or topology.is_complete():
        return
    first = topology.members[0]
    reached = nx.node_connected_component(topology.union(), first)
    for member in topology.members:
        if member not in reached:
            raise TopologyError(f"{topology.name}: not connected: there is no path from {first!r} to {member!r}")


def _power_of_two(request: Request) -> int:
    """The exponent of N, or a TopologyError."""
    length = request.count.bit_length()
    if request.count.bit_count() != 1:
        below, above = 2 ** (length - 1), 2**length
        raise TopologyError(f"{request}: the number of members must be a power of two, such as {below} or {above}")
    return length - 1


def _degree(request: Request, accepted: range, usual: int) -> int:
    degree = usual if request.degree is None else request.degree
    if degree in accepted:
        return degree
    values = [str(value) for value in accepted]
    spelled = values if len(values) <= 6 else [*values[:3], "...", values[-1]]
    raise TopologyError(f"{request}: degree {degree} is not possible; accepted: {', '.join(spelled)}")


def _gossip(request: Request, epoch: int = 0) -> Iterable[Edge]:
    count = request.count
    if count == 2:
        return shapes.regular(count, _degree(request, range(1, 2), 1), request.seed, epoch)
    # Degrees add up to twice the edges, so an odd number of nodes cannot all have an odd degree.
    accepted = range(2, count, 1 + count % 2)
    usual = (count - 1).bit_length()  # ceil(log2 N)
    degree = _degree(request, accepted, usual if usual in accepted else usual + 1)
    return shapes.regular(count, degree, request.seed, epoch)


def _small_world(request: Request) -> Iterable[Edge]:
    if request.count == 2:
        _degree(request, range(1, 2), 1)
        return shapes.line(2)
    accepted = range(2, request.count, 2)  # as many to the left as to the right
    return shapes.small_world(request.count, _degree(request, accepted, min(4, accepted[-1])), request.seed)


def _hypercube(request: Request) -> Iterable[Edge]:
    _power_of_two(request)
    return shapes.hypercube(request.count)


def _gossip_redrawn(request: Request) -> Schedule:
    written = request.argument
    if not (written.isascii() and written.isdecimal() and len(written) <= LONGEST_NUMBER and int(written)):
        raise TopologyError(f"{request.name}: K, the rounds between redraws, must be a whole number from 1")
    every = int(written)
    return Schedule(lambda epoch: _gossip(request, epoch), hold=every, phases=None)


def _one_peer_exponential(request: Request) -> Schedule:
    return Schedule(lambda dimension: shapes.across(request.count, dimension), phases=_power_of_two(request))


def _matchings(request: Request) -> Schedule:
    return Schedule(lambda epoch: shapes.matching(request.count, request.seed, epoch), phases=None)


def _satellites(request: Request) -> Schedule:
    numbers = request.argument.split("x")
    if len(numbers) != 3 or not all(
        one.isascii() and one.isdecimal() and len(one) <= LONGEST_NUMBER for one in numbers
    ):
        raise TopologyError(
            f"{request.name}: accepted are three whole numbers, PLANESxKMxROUNDS: planes, altitude, rounds in an orbit"
        )
    planes, altitude, rounds = map(int, numbers)
    if not planes or request.count % planes:
        raise TopologyError(f"{request}: the number of members must be a multiple of the planes, {planes}")
    if altitude <= satellites.ATMOSPHERE_KM or not rounds:
        lowest = satellites.ATMOSPHERE_KM
        raise TopologyError(f"{request.name}: the altitude must be above {lowest:g} km, and the rounds from 1")

    def seen(round: int) -> Iterable[Edge]:
        return satellites.in_sight(satellites.positions(request.count, planes, altitude, round / rounds))

    return Schedule(seen, phases=rounds)


def _fixed(draw: Callable[[Request], Iterable[Edge]]) -> Callable[[Request], Schedule]:
    return lambda request: Schedule(lambda _: draw(request))


def _sized(shape: Callable[[int], Iterable[Edge]]) -> Callable[[Request], Schedule]:
    return _fixed(lambda request: shape(request.count))


ROWS: dict[str, Row] = {
    "mesh": Row(_sized(shapes.mesh), "everyone with everyone"),
    "ring": Row(_sized(shapes.ring), "a cycle in rank order"),
    "gossip": Row(_fixed(_gossip), "random, d neighbours each; d is ceil(log2 N) unless given", takes_degree=True),
    "star": Row(_sized(shapes.star), "the first member is the hub of all others"),
    "line": Row(_sized(shapes.line), "a path in rank order"),
    "barbell": Row(_sized(shapes.barbell), "two meshes joined by an edge, or over one node if N is odd"),
    "torus": Row(_sized(shapes.torus), "a grid that wraps, as square as N allows; N not prime"),
    "hypercube": Row(_fixed(_hypercube), "ranks that differ in one bit; N a power of two"),
    "small-world": Row(
        _fixed(_small_world),
        "a ring of k neighbours each (4 unless given), a tenth of it rewired",
        takes_degree=True,
    ),
    "erdos-renyi": Row(
        _fixed(lambda request: shapes.erdos_renyi(request.count, request.seed)),
        "each edge at random with probability 2 ln N / N",
    ),
    "exponential": Row(_sized(shapes.exponential), "neighbours 1, 2, 4, ... hops away, both ways"),
    "file": Row(
        _fixed(lambda request: read_edges(request.argument, request.members)),
        "read from an edge list (.edges, .txt, .csv), .graphml or .json",
        argument="PATH",
    ),
    "gossip-k": Row(_gossip_redrawn, "gossip redrawn every K rounds", argument="K", takes_degree=True),
    "one-peer-exponential": Row(
        _one_peer_exponential,
        "round r: one partner, 2^((r-1) mod log2 N) hops away by XOR; N a power of two",
    ),
    "matchings": Row(_matchings, "random pairs, drawn anew each round"),
    "satellites": Row(
        _satellites,
        "a Walker constellation at KM altitude: who is in sight of whom, around an orbit of ROUNDS rounds",
        argument="PLANESxKMxROUNDS",
    ),
}

# The names as users write them, and what they mean.
NAMES: dict[str, str] = {f"{name}:{row.argument}" if row.argument else name: row.summary for name, row in ROWS.items()}
