"""When a node takes itself to be behind."""

import pytest
from conftest import small

from p2p_tally.ids import NodeName
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.setup import prepare
from p2p_tally.node.step.step import LeftBehind
from p2p_tally.runner.simulation.simulate import Exact


def test_the_first_of_two_neighbours_to_speak_is_no_majority() -> None:
    """After a warm-up in which nobody speaks, one message of a round far ahead made a node skip its training."""
    federation = small(nodes=3, rounds=40)
    node = Exact(prepare(federation), make_topology(federation), "cpu").nodes[0]
    node.step.roster[NodeName("node-1")].note_round(30)
    node.step.check(3)
    node.step.roster[NodeName("node-2")].note_round(31)
    with pytest.raises(LeftBehind) as behind:
        node.step.check(3)
    assert behind.value.theirs == 30


def test_who_is_gone_does_not_hold_back_a_node_that_was_left_behind() -> None:
    federation = small(nodes=3, rounds=40)
    node = Exact(prepare(federation), make_topology(federation), "cpu").nodes[0]
    node.step.roster[NodeName("node-1")].note_round(30)
    node.step.link_down(NodeName("node-2"))
    with pytest.raises(LeftBehind):
        node.step.check(3)
