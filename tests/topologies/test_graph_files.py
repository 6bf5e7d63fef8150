"""Graphs from files: each format, names or ranks, and one clear line for each mistake."""

import json
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.topologies import TopologyError, build

MEMBERS = ["ann", "bob", "cy"]


def edges(path: Path, members: list[str] = MEMBERS) -> set[frozenset[str]]:
    return set(map(frozenset, build(f"file:{path}", members).graph().edges()))


PATH_GRAPH = {frozenset({"ann", "bob"}), frozenset({"bob", "cy"})}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("g.edges", "ann bob\nbob cy\n"),
        ("g.txt", "# who talks to whom\n\nbob\tann  # both ways\nann bob\n  cy bob\n"),
        ("g.csv", "ann,bob\r\nbob, cy\r\n"),
        ("g.CSV", "\ufeffann,bob\nbob,cy\n"),
        ("ranks.edges", "0 1\n1 2\n"),
        ("g.json", '{"edges": [["ann", "bob"], ["cy", "bob"]]}'),
        ("ranks.json", '{"edges": [[0, 1], [2, 1]]}'),
        ("g.json", '{"nodes": ["ann", "bob", "cy"], "edges": [["ann", "bob"], ["cy", "bob"]]}'),
        (
            "links.json",
            '{"directed": false, "multigraph": false, "graph": {}, "nodes": ['
            '{"id": "ann"}, {"id": "bob"}, {"id": "cy"}], "links": ['
            '{"source": "ann", "target": "bob"}, {"source": "bob", "target": "cy"}]}',
        ),
    ],
)
def test_formats(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text, encoding="utf-8")
    assert edges(tmp_path / file) == PATH_GRAPH


@pytest.mark.parametrize("directed", [False, True])
def test_what_networkx_writes_is_read(tmp_path: Path, directed: bool) -> None:
    graph = nx.path_graph(MEMBERS, create_using=nx.DiGraph if directed else nx.Graph)
    nx.write_graphml(graph, tmp_path / "g.graphml")
    (tmp_path / "g.json").write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    (tmp_path / "links.json").write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    nx.write_edgelist(graph, tmp_path / "g.edges", data=False)
    for file in ("g.graphml", "g.json", "links.json", "g.edges"):
        assert edges(tmp_path / file) == PATH_GRAPH


def test_graphml_by_ranks(tmp_path: Path) -> None:
    nx.write_graphml(nx.path_graph(3), tmp_path / "g.graphml")
    assert edges(tmp_path / "g.graphml") == PATH_GRAPH


def test_names_that_look_like_ranks_are_names(tmp_path: Path) -> None:
    (tmp_path / "g.edges").write_text("2 1\n1 0\n")
    topology = build(f"file:{tmp_path / 'g.edges'}", ["2", "0", "1"])
    assert topology.neighbours("1") == ("2", "0")
    assert topology.neighbours("0") == ("1",)


def test_a_file_for_a_single_member(tmp_path: Path) -> None:
    (tmp_path / "g.edges").write_text("# nobody else\n")
    assert build(f"file:{tmp_path / 'g.edges'}", ["ann"]).neighbours("ann") == ()


@settings(max_examples=20, deadline=None)
@given(st.integers(min_value=2, max_value=12), st.integers(min_value=0, max_value=99))
def test_any_graph_survives_the_file(tmp_path_factory: pytest.TempPathFactory, count: int, seed: int) -> None:
    members = [f"node-{rank}" for rank in range(count)]
    graph = build("erdos-renyi", members, seed=seed).graph()
    folder = tmp_path_factory.mktemp("graphs")
    nx.write_graphml(graph, folder / "g.graphml")
    nx.write_edgelist(graph, folder / "g.txt", data=False)
    for file in ("g.graphml", "g.txt"):
        assert edges(folder / file, members) == set(map(frozenset, graph.edges()))


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("g.edges", "ann bob\nbob dan\n", ["'dan' is not among the members", "ranks 0 to 2"]),
        ("g.edges", "a b\nc d\ne f\n", ["'a', 'b', 'c' and 3 more are not among"]),
        ("g.edges", "0 1\n1 3\n", ["'3' is not among the members"]),
        ("g.edges", "0 1\n1 dan\n", [": 'dan' is not among the members"]),
        ("g.edges", "ann bob\nbob 2\n", [": '2' is not among the members", "all member names, or all ranks"]),
        ("g.edges", "ann bob\n", ["'cy' is missing"]),
        ("g.edges", "", ["'ann', 'bob', 'cy' are missing"]),
        ("g.edges", "ann bob\nbob cy\ncy cy\n", ["'cy' has an edge to itself"]),
        ("g.edges", "ann bob\nbob cy 0.5\n", ["line 2 has 3 words"]),
        ("g.edges", "ann\n", ["line 1 has 1 words"]),
        ("g.json", "{", ["not a graph"]),
        ("g.json", "[]", ['list "edges" or "links"']),
        ("g.json", '{"edges": 3}', ['list "edges" or "links"']),
        ("g.json", '{"edges": [["ann", "bob", "cy"]]}', ["['ann', 'bob', 'cy']", "neither"]),
        ("g.json", '{"edges": [{"source": "ann"}]}', ["None is neither a name nor a rank"]),
        ("g.json", '{"edges": [[true, 1.5]]}', ["True is neither a name nor a rank"]),
        ("g.json", '{"nodes": 3, "edges": []}', ['"nodes" is not a list']),
        ("g.json", '{"nodes": ["ann", "bob", "cy"], "edges": [["ann", "bob"]]}', ["from 'ann' to 'cy'"]),
        ("g.json", '{"nodes": [{"name": "ann"}], "edges": []}', ["node None is neither a name nor a rank"]),
        ("g.json", "[" * 10**5, ["not a graph"]),
        ("g.graphml", "<graphml", ["not a graph"]),
        ("g.graphml", "<html/>", ["not a graph"]),
        ("g.gml", "graph []", [".edges, .txt, .csv, .graphml, .json"]),
        ("g", "", ["must end in one of"]),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, file: str, text: str, says: list[str]) -> None:
    (tmp_path / file).write_text(text)
    check_refused(tmp_path / file, MEMBERS, says)


def test_disconnected(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("ann,bob\ncy,dan\n")
    check_refused(tmp_path / "g.csv", [*MEMBERS, "dan"], ["not connected", "from 'ann' to 'cy'"])


def test_unreadable(tmp_path: Path) -> None:
    check_refused(tmp_path / "none.edges", MEMBERS, ["cannot be read", "No such file"])
    (tmp_path / "folder.edges").mkdir()
    check_refused(tmp_path / "folder.edges", MEMBERS, ["cannot be read"])
    (tmp_path / "g.txt").write_bytes(b"\xff\xfe\x00\x80")
    check_refused(tmp_path / "g.txt", MEMBERS, ["not a graph"])
    check_refused(Path("~nobody-of-that-name/g.txt"), MEMBERS, ["home directory"])


@pytest.mark.filterwarnings("error")
def test_what_graphml_says_besides_is_not_our_affair(tmp_path: Path) -> None:
    """networkx warns of a key without a type, on lines of its own."""
    text = '<graphml><key id="k" for="edge" attr.name="w"/><graph edgedefault="undirected"><node id="ann"/>'
    (tmp_path / "g.graphml").write_text(text + '<node id="bob"/><edge source="ann" target="bob"/></graph></graphml>')
    assert edges(tmp_path / "g.graphml", ["ann", "bob"]) == {frozenset({"ann", "bob"})}


def check_refused(path: Path, members: list[str], says: list[str]) -> None:
    with pytest.raises(TopologyError) as refusal:
        build(f"file:{path}", members)
    assert "\n" not in str(refusal.value)
    for words in [f"file:{path}", *says]:
        assert words in str(refusal.value)
