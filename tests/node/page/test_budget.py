"""What soft labels and FedAvg would send is what they send."""

from typing import Any

import pytest
from conftest import small

from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.setup import prepare
from p2p_tally.node.page.budget import budget
from p2p_tally.runner.simulation.simulate import simulate

PARAMETERS = 4810


def expected(**options: Any) -> dict[str, Any]:
    """The budget of a run that votes."""
    task = prepare(small(method="tally", **options))
    topology = make_topology(task.federation)
    return budget(task.federation, topology, task.probes.votes_per_round, task.classes, PARAMETERS)


GRAPHS: list[dict[str, Any]] = [
    {"topology": "mesh"},
    {"topology": "ring", "nodes": 5},
    {"topology": "ring", "nodes": 6, "hops": 2},
    {"topology": "star"},
    {"topology": "gossip", "nodes": 6, "degree": 3},
]


@pytest.mark.parametrize("options", GRAPHS, ids=str)
def test_soft_labels(options: dict[str, Any]) -> None:
    run = simulate(small(method="fedmd", merge_every=0, **options))
    asked = expected(merge_every=0, **options)
    assert (8 - asked["warmup"]) * asked["soft_round"] == pytest.approx(run.lines[-1].payload_bytes, rel=1e-12)


@pytest.mark.parametrize("options", GRAPHS, ids=str)
def test_fedavg(options: dict[str, Any]) -> None:
    run = simulate(small(method="fedavg", **options))
    asked = expected(**options)
    assert asked["merge_every"] == 4
    assert 2 * asked["merge"] == pytest.approx(run.lines[-1].payload_bytes, rel=1e-12)


def test_without_merges_fedavg_would_merge_as_it_does_by_default() -> None:
    assert expected(merge_every=0)["merge_every"] == 50
