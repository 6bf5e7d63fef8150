"""What a graph is not fit for, and graphs that cannot be, in one line each."""

import pytest

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.graph import check_graph, make_topology, merge_ring
from p2p_tally.topologies import build


def test_the_graph_of_a_federation() -> None:
    federation = Federation(nodes=12, topology="gossip", degree=3, seed=5)
    assert make_topology(federation).members[:2] == ("node-0", "node-1")
    assert set(make_topology(federation).degrees()) == {3}
    assert make_topology(Federation(nodes=3, topology="ring"), ["a", "b", "c"]).members == ("a", "b", "c")


def test_a_graph_that_cannot_be_is_the_operators_mistake() -> None:
    with pytest.raises(ConfigError, match=r"^gossip of 7: degree 3 is not possible; accepted: 2, 4, 6$"):
        make_topology(Federation(nodes=7, topology="gossip", degree=3))


def test_a_consensus_that_fades_after_an_automatic_warmup_needs_peers_that_open_together() -> None:
    """On a line who opened first fell silent first, and was waited for by its neighbours for ever."""
    names = [f"node-{rank}" for rank in range(8)]
    fading: dict[str, object] = {"warmup": "auto", "kl_decay": 3, "rounds": 30}
    for topology in (build("line", names), build("gossip-k:3", names), None):
        with pytest.raises(ConfigError, match=r"--kl-decay 3 with --warmup auto: .* accepted on --topology mesh"):
            check_graph(Federation.parse(fading), topology)
    with pytest.raises(ConfigError, match="--kl-decay 1 with"):
        check_graph(Federation.parse(fading | {"kl_decay": 1}), build("line", names))
    check_graph(Federation.parse(fading | {"kl_decay": 0}), build("line", names))
    check_graph(Federation.parse(fading), build("mesh", names))
    check_graph(Federation.parse(fading | {"hops": "all"}), build("line", names))
    check_graph(Federation.parse(fading | {"kl_decay": 30}), build("line", names))
    check_graph(Federation.parse(fading | {"alpha": 1.0}), build("line", names))
    check_graph(Federation.parse(fading | {"method": "no-consensus"}), build("line", names))


@pytest.mark.parametrize("options", [{"merge_when": "drift"}, {"merge_top_k": 0.1}])
def test_some_merges_need_a_mesh(options: dict[str, object]) -> None:
    federation = Federation.parse(options)
    names = [f"node-{rank}" for rank in range(8)]
    check_graph(federation, build("mesh", names))
    check_graph(Federation(), build("ring", names))
    for topology in (build("ring", names), build("one-peer-exponential", names), None):
        with pytest.raises(ConfigError, match="accepted on --topology mesh"):
            check_graph(federation, topology)


def test_the_ring_that_merges_go_round() -> None:
    federation = Federation(nodes=6, topology="ring", merge_over="ring")
    assert merge_ring(federation, make_topology(federation)) == tuple(f"node-{rank}" for rank in range(6))
    assert merge_ring(Federation(nodes=6, topology="ring"), make_topology(federation)) is None
    two = Federation(nodes=2, topology="mesh", merge_over="ring")
    assert merge_ring(two, make_topology(two)) == ("node-0", "node-1")
    alone = Federation(nodes=1, topology="mesh", merge_over="ring")
    assert merge_ring(alone, make_topology(alone)) is None
