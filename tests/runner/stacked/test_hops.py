"""Votes over several hops: what is tallied, what it costs, and that every engine says the same."""

from pathlib import Path
from typing import Any

import pytest
from conftest import run_as_simulated, small
from test_stacked import assert_agree, fifty

from p2p_tally.protocol.messages import Stage
from p2p_tally.runner.simulation.simulate import simulate
from p2p_tally.topologies import build


@pytest.mark.parametrize("graph", ["ring", "line", "star", "torus", "gossip", "barbell"])
@pytest.mark.parametrize("ballot", ["byte", "coded"])
def test_at_the_diameter_a_sparse_graph_is_a_mesh_to_the_bit(graph: str, ballot: str) -> None:
    options: dict[str, Any] = {"nodes": 6, "merge_every": 0, "ballot": ballot, "rounds": 5, "eval_every": 5}
    mesh = simulate(small(topology="mesh", **options))
    diameter = int(build(graph, [str(rank) for rank in range(6)]).reach(1, "all").furthest)
    for hops in (diameter, "all", diameter + 3):
        assert simulate(small(topology=graph, hops=hops, **options)).parameters_sha256 == mesh.parameters_sha256
    if diameter > 2:
        fewer = simulate(small(topology=graph, hops=diameter - 1, **options))
        assert fewer.parameters_sha256 != mesh.parameters_sha256


@pytest.mark.parametrize(
    "options",
    [
        {"topology": "ring", "nodes": 7, "hops": 2},
        {"topology": "ring", "nodes": 7, "hops": "all", "method": "fedmd"},
        {"topology": "gossip", "nodes": 6, "hops": 2, "ballot": "coded"},
        {"topology": "line", "nodes": 7, "hops": 3, "warmup": "auto", "lr": 0.003, "eval_every": 1},
        {"topology": "gossip-k:2", "nodes": 8, "hops": 2, "method": "rcfd"},
        {"topology": "matchings", "nodes": 8, "hops": 2},
        {"topology": "ring", "nodes": 7, "hops": 2, "tally_weights": "mixing", "inverse_agreement": 0.5},
        {"topology": "star", "nodes": 7, "hops": "all", "tally_weights": "mixing", "method": "fedmd"},
        {"topology": "barbell", "nodes": 6, "tally_weights": "mixing", "method": "rcfd"},
        {"topology": "mesh", "nodes": 4, "hops": 3, "tally_weights": "mixing"},
    ],
    ids=str,
)
def test_both_engines_tally_alike_and_send_the_same_bytes(options: dict[str, Any]) -> None:
    assert_agree(fifty(**{"rounds": 14, "eval_every": 3, **options}))


@pytest.mark.parametrize(
    "options",
    [
        {"topology": "ring", "hops": 2},
        {"topology": "line", "hops": "all", "ballot": "coded", "tally_weights": "mixing"},
        {"topology": "gossip", "degree": 4, "hops": 2, "method": "fedmd"},
        {"topology": "star", "hops": 2, "warmup": "auto"},
    ],
    ids=str,
)
async def test_over_sockets_the_same_bits_and_bytes(options: dict[str, Any], tmp_path: Path) -> None:
    federation = small(nodes=6, eval_every=8, **options)
    daemons = await run_as_simulated(federation, tmp_path)
    for stage in (Stage.VOTE, Stage.READY):  # what was sent has come
        sent = sum(daemon.node.ledger.total_sent(stage).framed for daemon in daemons)
        assert sent == sum(daemon.node.ledger.total_received(stage).framed for daemon in daemons)
