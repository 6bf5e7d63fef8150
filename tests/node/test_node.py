"""What a node refuses before its first round, and when it takes itself to be behind."""

from types import SimpleNamespace
from typing import Any

import pytest
from conftest import small

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.setup import prepare
from p2p_tally.node.ballot_format import ballot_format
from p2p_tally.node.node import LeftBehind
from p2p_tally.runner.simulation.simulate import Exact


def learner(rounds: int, votes: int) -> Any:
    return SimpleNamespace(
        federation=Federation(method="tally", rounds=rounds), probes=SimpleNamespace(votes_per_round=votes), classes=10
    )


@pytest.mark.parametrize(("rounds", "votes"), [(65_535, 65_536), (65_536, 65_535)])
def test_long_ballots_or_many_rounds(rounds: int, votes: int) -> None:
    assert ballot_format(learner(rounds, votes)).largest == votes


def test_long_ballots_and_many_rounds_are_refused() -> None:
    """Their votes would cost more than 24 bytes over the ballot."""
    with pytest.raises(ConfigError) as refusal:
        ballot_format(learner(65_536, 65_536))
    assert str(refusal.value) == (
        "--rounds 65536: accepted is at most 65535 where ballots are longer than 65535 bytes; here they are up to 65536"
    )


def test_the_first_of_two_neighbours_to_speak_is_no_majority() -> None:
    """After a warm-up in which nobody speaks, one message of a round far ahead made a node skip its training."""
    federation = small(nodes=3, rounds=40)
    node = Exact(prepare(federation), make_topology(federation), "cpu").nodes[0]
    node.mailbox.seen[NodeName("node-1")] = 30
    node._check_in_step(3)
    node.mailbox.seen[NodeName("node-2")] = 31
    with pytest.raises(LeftBehind) as behind:
        node._check_in_step(3)
    assert behind.value.theirs == 30


def test_who_is_gone_does_not_hold_back_a_node_that_was_left_behind() -> None:
    federation = small(nodes=3, rounds=40)
    node = Exact(prepare(federation), make_topology(federation), "cpu").nodes[0]
    node.mailbox.seen[NodeName("node-1")] = 30
    node.link_down(NodeName("node-2"))
    with pytest.raises(LeftBehind):
        node._check_in_step(3)
