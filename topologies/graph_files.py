"""Reads a graph from a file: an edge list, GraphML or JSON.

Checks the format and the names; graphs.py checks that the graph is connected.
"""

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import networkx as nx

from p2p_tally.topologies.errors import TopologyError

Pair = tuple[str, str]
# The list of nodes in a file (an edge list has none), and its edges.
Content = tuple[list[str], list[Pair]]


def read_edges(path: str, members: Sequence[str]) -> list[tuple[int, int]]:
    """The edges of the file as ranks. The nodes in the file are all member names, or all ranks from 0."""
    reader = READERS.get(Path(path).suffix.lower())
    if reader is None:
        raise TopologyError(f"file:{path}: the name must end in one of {', '.join(READERS)}")
    try:
        listed, pairs = reader(Path(path).expanduser())
    except OSError as error:
        raise TopologyError(f"file:{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RuntimeError, ParseError, nx.NetworkXException) as error:
        # The message of the parser, on one line.
        raise TopologyError(f"file:{path}: not a graph: {' '.join(str(error).split())}") from None
    rank = _ranks(path, {*listed, *(end for pair in pairs for end in pair)}, members)
    for one, other in pairs:
        if one == other:
            raise TopologyError(f"file:{path}: {one!r} has an edge to itself; an edge joins two members")
    return [(rank[one], rank[other]) for one, other in pairs]


def _ranks(path: str, nodes: set[str], members: Sequence[str]) -> dict[str, int]:
    """The rank of each node of the file. The nodes must be exactly the members."""
    rank = {member: place for place, member in enumerate(members)}
    ranks = {str(place): place for place in range(len(members))}
    if not nodes <= rank.keys() and all(node.isdecimal() for node in nodes):
        rank = ranks
    unknown = nodes - rank.keys()
    if unknown:
        # If ranks and other names are mixed, show those that are not ranks.
        wrong = sorted(unknown - ranks.keys()) or sorted(unknown)
        raise TopologyError(
            f"file:{path}: {_some(wrong)} not among the members; "
            f"nodes are all member names, or all ranks 0 to {len(members) - 1}"
        )
    # A single member has no edge, so it is in no edge list.
    missing = [node for node in rank if node not in nodes] if len(members) > 1 else []
    if missing:
        raise TopologyError(f"file:{path}: {_some(missing)} missing; every member needs an edge")
    return rank


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{shown}{rest} {'is' if len(names) == 1 else 'are'}"


def _edge_list(path: Path) -> Content:
    """Two names on a line, separated by spaces or a comma; # starts a comment."""
    pairs: list[Pair] = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        names = line.partition("#")[0].replace(",", " ").split()
        if not names:
            continue
        if len(names) != 2:
            raise ValueError(f"line {number} has {len(names)} words; an edge is two names")
        pairs.append((names[0], names[1]))
    return [], pairs


def _graphml(path: Path) -> Content:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about attributes that it does not know; edges are not affected
        graph = nx.read_graphml(path)
    return [str(node) for node in graph], [(str(one), str(other)) for one, other in graph.edges()]


def _json(path: Path) -> Content:
    """Node-link data as networkx writes it, or {"edges": [[a, b], ...]}."""
    content = json.loads(path.read_text(encoding="utf-8-sig"))
    edges = content.get("edges", content.get("links")) if isinstance(content, dict) else None
    if not isinstance(edges, list):
        raise ValueError('an object with a list "edges" or "links" is expected')
    nodes = _list(content.get("nodes", []), '"nodes"')
    return [_identity(node.get("id") if isinstance(node, dict) else node) for node in nodes], [
        _pair(edge) for edge in edges
    ]


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{what} is not a list")
    return value


def _pair(edge: Any) -> Pair:
    ends = [edge.get("source"), edge.get("target")] if isinstance(edge, dict) else edge
    if not isinstance(ends, list) or len(ends) != 2:
        raise ValueError(f"edge {edge!r} is neither [a, b] nor an object with source and target")
    return _identity(ends[0]), _identity(ends[1])


def _identity(node: Any) -> str:
    if isinstance(node, bool) or not isinstance(node, str | int):
        raise ValueError(f"node {node!r} is neither a name nor a rank")
    return str(node)


READERS: dict[str, Callable[[Path], Content]] = {
    ".edges": _edge_list,
    ".txt": _edge_list,
    ".csv": _edge_list,
    ".graphml": _graphml,
    ".json": _json,
}
