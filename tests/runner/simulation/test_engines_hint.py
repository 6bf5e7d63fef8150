"""Many nodes on the exact engine: a hint towards the other one."""

import logging

import pytest

from p2p_tally import Federation
from p2p_tally.learning.setup import prepare
from p2p_tally.runner.simulation.simulate import MANY_NODES, _choose_engine


@pytest.mark.parametrize(("nodes", "hints"), [(4, 0), (MANY_NODES, 1)])
def test_many_nodes_on_the_exact_engine_are_told_of_the_other(
    nodes: int, hints: int, caplog: pytest.LogCaptureFixture
) -> None:
    task = prepare(Federation(nodes=nodes, topology="ring", partition="resample:8", rounds=1))
    with caplog.at_level(logging.WARNING):
        assert _choose_engine("exact", task, "cpu") == "exact"
    said = [record for record in caplog.records if "--engine auto" in record.getMessage()]
    assert len(said) == hints
