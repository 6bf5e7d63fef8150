"""Staying in step: links that come and go, who is left behind, and when a round is given up."""

from typing import Any

import pytest
from conftest import small

from p2p_tally.errors import ParameterError
from p2p_tally.ids import NodeName
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.setup import prepare
from p2p_tally.node.merges.exchange import Peers, Runs
from p2p_tally.node.node import Node
from p2p_tally.node.step.step import Abandoned
from p2p_tally.protocol.messages import Announce, Hello
from p2p_tally.protocol.peers import Presence
from p2p_tally.runner.simulation.simulate import Exact

A, B = NodeName("node-1"), NodeName("node-2")


def make_node(**options: Any) -> Node:
    federation = small(**{"nodes": 4, "rounds": 40, "warmup": 0, **options})
    return Exact(prepare(federation), make_topology(federation), "cpu").nodes[0]


def hello(*, running: bool, round: int = 0) -> Hello:
    return Hello(1, A, round, running, (0,), (), "", ())


@pytest.mark.parametrize(
    ("playing", "running", "presence", "joined"),
    [
        (False, False, Presence.AWAITED, 0),  # both begin together
        (False, True, Presence.AWAITED, 8),  # what it sent of the round it is in may have gone out before
        (True, True, Presence.AWAITED, 8),
        (True, False, Presence.SILENT, 0),  # it says when it begins
    ],
)
def test_a_link_on_a_graph_that_stays(playing: bool, running: bool, presence: Presence, joined: int) -> None:
    node = make_node()
    if playing:
        node.position.begin_round()
    node.step.link_down(A)
    node.step.link_up(A, hello(running=running, round=7 if running else 0))
    assert node.step.roster[A].presence is presence
    assert node.step.roster[A].joined == joined


def test_a_link_that_the_schedule_made_changes_nothing() -> None:
    """Neither end has missed anything: the peer is awaited in the rounds that it was awaited in before."""
    node = make_node(topology="matchings")
    node.position.begin_round()
    node.step.roster[A].plays_after(3)
    node.step.link_up(A, hello(running=True, round=2))
    assert node.step.roster[A].joined == 3
    node.step.link_up(A, hello(running=True, round=9))
    assert node.step.roster[A].joined == 9
    assert node.step.roster[A].is_there


def test_but_what_it_said_before_is_believed_only_as_far_as_its_hello_goes() -> None:
    """The last link may have been somebody else's: a claim of a late round would keep this peer out until then."""
    node = make_node(topology="matchings")
    node.position.begin_round()
    node.step.roster[A].plays_after(30)
    node.step.roster[A].show_round(35)
    node.step.link_up(A, hello(running=True, round=4))
    peer = node.step.roster[A]
    assert (peer.joined, peer.seen, peer.shown) == (5, 5, 5)


def test_but_one_that_was_lost_has_missed_something() -> None:
    node = make_node(topology="matchings")
    node.position.begin_round()
    node.step.link_down(A)
    node.step.link_up(A, hello(running=True, round=9))
    assert node.step.roster[A].joined == 10 and node.step.roster[A].is_there


def test_a_round_is_given_up_where_both_this_node_and_a_neighbour_were_asked_to_stop() -> None:
    node = make_node(topology="ring")
    node.step.leave_if_others_left(1)
    node.step.roster[A].said_goodbye(finished=False)
    node.step.leave_if_others_left(1)  # others may leave: this node was not asked
    node.position.stop()
    with pytest.raises(Abandoned):
        node.step.leave_if_others_left(1)
    other = make_node(topology="ring")
    other.position.stop()
    other.step.roster[B].said_goodbye(finished=False)  # no neighbour on the ring 0-1-2-3
    other.step.leave_if_others_left(1)


def test_one_that_was_left_behind_goes_on_after_the_round_of_the_others() -> None:
    node = make_node()
    node.step.rejoin(11)
    assert node.position.round == 12
    node.step.rejoin(40)
    assert node.position.round == 40  # there is no later one


def test_nobody_can_be_further_than_the_votes_it_needs_let_it() -> None:
    """To come to its third round of votes from now on a node needs this one's of the first two."""
    node = make_node(topology="line", hops="all", warmup=5)
    votes = node.step.votes
    assert [votes.is_too_far(round) for round in (6, 8, 9)] == [False, False, True]
    node.position.move_to(8)
    assert [votes.is_too_far(round) for round in (11, 12)] == [False, True]


async def test_who_has_broken_the_protocol_too_often_is_not_merged_with() -> None:
    # Where messages may be withheld, a simulation has deadlines, and so scores.
    node, bad, good = make_node(nodes=3, attack="withhold:vote:1"), NodeName("node-1"), NodeName("node-2")

    async def announced(*_: object) -> dict[NodeName, Announce]:
        return {bad: Announce(4, b"\xe0"), good: Announce(4, b"\xe0")}

    step = node.step
    peers = Peers(node.name, step.roster, node.outbox, announced, step.inbox.refuse, merges_with=step.merges_with)
    for _ in range(3):
        step.inbox.refuse(bad, ParameterError("no numbers", reason="not-finite"))
    assert set(await Runs(peers, 4).announce([], Announce(4, b"\xe0"))) == {good}
