"""The options --join and --leave: who takes part in which round, and what is refused."""

import pytest

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.learning.graph import check_graph, make_topology
from p2p_tally.learning.member_changes import member_epochs
from p2p_tally.topologies import Epochs


def epochs_of(**options: object) -> list[tuple[int, list[str]]]:
    federation = Federation.parse({"nodes": 4, "rounds": 20, **options})
    return member_epochs(federation, ranked_names(federation.nodes))


def test_without_them_there_is_one_epoch() -> None:
    assert epochs_of() == [(1, ["node-0", "node-1", "node-2", "node-3"])]
    assert not isinstance(make_topology(Federation()), Epochs)


def test_joins_and_leaves_make_epochs() -> None:
    assert epochs_of(join="node-3@5, node-1@9", leave="node-0@9,node-3@12") == [
        (1, ["node-0", "node-2"]),
        (5, ["node-0", "node-2", "node-3"]),
        (9, ["node-1", "node-2", "node-3"]),
        (12, ["node-1", "node-2"]),
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"join": "node-9@5"}, "--join node-9@5: no node has this name; accepted are node-0, node-1, node-2, node-3"),
        ({"join": "node-1"}, "--join node-1: 'node-1' is no NAME@ROUND"),
        ({"join": "node-1@x"}, "--join node-1@x: 'node-1@x' is no NAME@ROUND"),
        ({"join": ""}, "--join : accepted is NAME@ROUND, several separated by commas"),
        ({"join": "node-1@1"}, "--join node-1@1: accepted is a round from 2 to the last, 20"),
        ({"leave": "node-1@21"}, "--leave node-1@21: accepted is a round from 2 to the last, 20"),
        ({"leave": "node-1@3,node-1@5"}, "--leave node-1@3,node-1@5: node-1 is given twice"),
        (
            {"join": "node-1@5", "leave": "node-1@5"},
            "--leave node-1@5: it joins in round 5; accepted is a later round than that",
        ),
        (
            {"nodes": 2, "join": "node-0@2,node-1@3"},
            "--join node-0@2,node-1@3: nobody is left in round 1; accepted is at least one member in each round",
        ),
        (
            {"nodes": 2, "leave": "node-0@7,node-1@4"},
            "--leave node-0@7,node-1@4: nobody is left in round 7; accepted is at least one member in each round",
        ),
        ({"leave": "churn:0.1"}, "--leave churn:0.1: accepted with at least 5 nodes, one of which is away"),
        ({"nodes": 10, "leave": "churn:x"}, "--leave churn:x: accepted is churn:SHARE with a share from 0 to 0.25"),
        ({"nodes": 10, "leave": "churn:0.3"}, "--leave churn:0.3: accepted is churn:SHARE with a share from 0 to 0.25"),
        ({"nodes": 10, "leave": "churn:0.1", "join": "node-1@4"}, "--join node-1@4: accepted without --leave churn:"),
        (
            {"topology": "hypercube", "join": "node-3@5"},
            "hypercube of 3: the number of members must be a power of two, such as 2 or 4",
        ),
        (
            {"topology": "hypercube", "leave": "node-3@5"},
            "from round 5 on, with 3 members: hypercube of 3: the number of members must be a power of two",
        ),
        (
            {"topology": "gossip", "degree": 3, "leave": "node-3@5"},
            "from round 5 on, with 3 members: gossip of 3: degree 3 is not possible; accepted: 2",
        ),
    ],
    ids=str,
)
def test_bad_input_is_refused_in_one_line(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_topology(Federation.parse({"nodes": 4, "rounds": 20, **options}))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_a_node_that_knows_its_neighbours_only_cannot_know_who_comes() -> None:
    with pytest.raises(ConfigError, match="--join and --leave: accepted with --topology"):
        check_graph(Federation.parse({"join": "node-1@4"}), None)


def test_churn_keeps_the_number_of_members_and_changes_the_share() -> None:
    epochs = dict(epochs_of(nodes=100, rounds=50, leave="churn:0.05"))
    assert sorted(epochs) == list(range(1, 51))
    for round in range(2, 51):
        assert len(epochs[round]) == 80
        assert len(set(epochs[round]) - set(epochs[round - 1])) == 4
    seen = set().union(*epochs.values())
    assert len(seen) == 100


def test_a_small_share_changes_somebody_now_and_then() -> None:
    epochs = epochs_of(nodes=100, rounds=101, leave="churn:0.01")
    assert len(epochs) == 1 + 80


def test_churn_of_nothing_leaves_the_same_away() -> None:
    federation = Federation.parse({"nodes": 10, "rounds": 9, "leave": "churn:0"})
    topology = make_topology(federation)
    assert len(topology.members) == 10 and len(topology.members_at(9)) == 8


def test_churn_follows_from_the_seed() -> None:
    options = {"nodes": 20, "leave": "churn:0.1"}
    assert epochs_of(**options) == epochs_of(**options) != epochs_of(**options, seed=1)


def test_what_peers_agree_on_names_changes_only_where_there_are_any() -> None:
    assert not {"join", "leave"} & Federation().agreed().keys()
    assert Federation(join="node-1@4").agreed()["join"] == "node-1@4"
