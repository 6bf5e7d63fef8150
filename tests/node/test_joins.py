"""Members that join and leave at given rounds, over real sockets: the bits and the bytes of the simulation."""

from pathlib import Path
from typing import Any

import pytest
from conftest import run_as_simulated, small

from p2p_tally.protocol.messages import Stage

CHANGES = {"nodes": 6, "rounds": 12, "eval_every": 1, "join": "node-4@5,node-0@7", "leave": "node-1@9"}


@pytest.mark.parametrize("merge_every", [0, 4])
@pytest.mark.parametrize("graph", [{"topology": "mesh"}, {"topology": "ring"}, {"topology": "matchings"}], ids=str)
@pytest.mark.parametrize("method", ["tally", "diloco"])
async def test_same_bits_and_same_bytes(method: str, graph: dict[str, Any], merge_every: int, tmp_path: Path) -> None:
    daemons = await run_as_simulated(small(**CHANGES, method=method, merge_every=merge_every, **graph), tmp_path)
    assert [daemon.node.position.phase for daemon in daemons] == ["done"] * 6
    assert [daemon.node.position.round for daemon in daemons] == [12, 8, 12, 12, 12, 12]


@pytest.mark.parametrize(
    "options",
    [
        {"method": "fedprox"},
        {"method": "feddf"},
        {"method": "local"},
        {"method": "fedmd", "topology": "gossip", "degree": 2},
        {"merge_precision": "int8", "merge_every": 2},
        {"merge_precision": "int8", "merge_top_k": 0.1, "method": "diloco", "merge_every": 2},
        {"merge_precision": "bfloat16", "topology": "ring"},
        {"topology": "ring", "merge_over": "ring"},
        {"topology": "ring", "hops": 2},
        {"topology": "line", "hops": "all", "tally_weights": "mixing"},
        {"tally_weights": "reliability"},
        {"merge_when": "drift", "merge_threshold": 0.99, "merge_every": 2},
        {"warmup": "auto", "rounds": 20, "merge_every": 0},
        {"warmup": 10},
        {"join": "node-4@2,node-0@2", "leave": "node-5@2"},
        {"join": None, "leave": "churn:0.2"},
    ],
    ids=str,
)
async def test_options_that_change_a_round(options: dict[str, Any], tmp_path: Path) -> None:
    await run_as_simulated(small(**{**CHANGES, **options}), tmp_path)


async def test_a_hand_over_has_a_stage_of_its_own(tmp_path: Path) -> None:
    daemons = await run_as_simulated(small(**CHANGES, method="diloco"), tmp_path)
    given = [daemon.node.ledger.total_sent(Stage.HANDOVER) for daemon in daemons]
    size = 4 * len(daemons[0].learner.parameters)
    # The first neighbour in order of name gives: node-1 to node-4, and to node-0.
    assert [count.payload for count in given] == [0, 2 * 3 * size, 0, 0, 0, 0]  # parameters, anchor and momentum
