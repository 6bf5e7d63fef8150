"""Members that join and leave: the stacked engine agrees with the exact one, and absent peers do nothing."""

from typing import Any

import numpy as np
import pytest
from conftest import small
from test_stacked import assert_agree

from p2p_tally.runner.simulation.simulate import simulate

CHANGES = {"nodes": 6, "rounds": 12, "eval_every": 1, "join": "node-4@5,node-0@7", "leave": "node-1@9"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"merge_every": 0},
        {"topology": "ring"},
        {"topology": "matchings"},
        {"topology": "line", "hops": "all", "tally_weights": "mixing"},
        {"topology": "ring", "merge_over": "ring"},
        {"method": "fedavg"},
        {"method": "fedprox", "topology": "ring"},
        {"method": "diloco"},
        {"method": "feddf"},
        {"method": "fedmd", "topology": "gossip", "degree": 2},
        {"method": "local"},
        {"merge_precision": "int8", "merge_every": 2},
        {"merge_precision": "int8", "merge_top_k": 0.1, "method": "diloco", "merge_every": 2},
        {"merge_precision": "bfloat16", "topology": "ring"},
        {"merge_precision": "int8", "merge_every": 2, "nodes": 2, "join": "node-1@6", "leave": None},
        {"tally_weights": "reliability"},
        {"tally_weights": "reliability", "topology": "ring"},
        {"consensus_weight": "agreement", "topology": "ring"},
        {"warmup": "auto", "rounds": 20, "merge_every": 0, "topology": "ring"},
        {"merge_when": "drift", "merge_threshold": 0.99, "merge_every": 2},
        {"calibrate": 0.5, "balance": 0.5, "abstain": 0.5},
        {"model": "mlp:16,mlp:24x2", "merge_every": 0},
        {"join": None, "leave": "churn:0.2", "nodes": 12},
        {"join": None, "leave": "churn:0.2", "nodes": 12, "method": "diloco", "topology": "ring"},
    ],
    ids=str,
)
def test_both_engines_agree(options: dict[str, Any]) -> None:
    assert_agree(small(**{**CHANGES, **options}))


@pytest.mark.parametrize("engine", ["exact", "stacked"])
def test_a_line_is_of_those_who_are_there(engine: Any) -> None:
    run = simulate(small(**CHANGES, tail=2), engine=engine)
    there = np.isfinite(run.accuracy)
    assert there.sum(1).tolist() == [4, 4, 4, 4, 5, 5, 6, 6, 5, 5, 5, 5]
    assert not there[:6, 0].any() and there[6:, 0].all()
    assert there[:8, 1].all() and not there[8:, 1].any()
    assert run.summary()["tail_accuracy"] == pytest.approx(np.nanmean(run.accuracy[-2:]))


@pytest.mark.parametrize("engine", ["exact", "stacked"])
def test_who_has_left_keeps_its_model(engine: Any) -> None:
    """It does not train, hear or merge any more: what comes after it has left does not change its parameters."""
    options = {"nodes": 5, "warmup": 1, "merge_every": 3, "rounds": 9, "leave": "node-1@5"}
    one, other = (simulate(small(**options, join=join), engine=engine) for join in ("node-4@6", "node-4@8"))
    assert one.parameters_sha256[1] == other.parameters_sha256[1]
    assert one.parameters_sha256[0] != other.parameters_sha256[0]


@pytest.mark.parametrize("engine", ["exact", "stacked"])
def test_who_joins_has_not_trained_before(engine: Any) -> None:
    """Without an exchange a newcomer of round 6 of 9 ends as a node that has played four rounds."""
    alone = {"method": "local", "warmup": 1, "tail": 1}
    joined = simulate(small(**alone, rounds=9, join="node-3@6"), engine=engine)
    short = simulate(small(**alone, rounds=4), engine=engine)
    assert joined.parameters_sha256[3] == short.parameters_sha256[3]
    assert joined.parameters_sha256[2] != short.parameters_sha256[2]
