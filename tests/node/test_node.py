"""When a node takes itself to be behind."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import Killed, kill_at, make_daemons, small

from p2p_tally.ids import NodeName
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.setup import prepare
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.node.step.step import LeftBehind
from p2p_tally.protocol import frames
from p2p_tally.protocol.messages import Here, Message, Stage, Waiting
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
    node.step.roster[NodeName("node-1")].show_round(30)
    node.step.roster[NodeName("node-2")].show_round(31)
    node.step.link_down(NodeName("node-2"))  # and what it sent counts no longer
    node.step.check(3)
    with pytest.raises(LeftBehind) as behind:
        node.step.check(4)
    assert behind.value.theirs == 30


def test_words_of_the_only_neighbour_that_is_there_do_not_move_a_node() -> None:
    federation = small(nodes=3, rounds=40)
    node = Exact(prepare(federation), make_topology(federation), "cpu").nodes[0]
    node.step.roster[NodeName("node-1")].note_round(30)
    node.step.link_down(NodeName("node-2"))
    for round in range(3, 9):
        node.step.check(round)


@pytest.mark.parametrize("message", [Waiting(30, Stage.VOTE), Here(30)])
def test_those_who_wait_show_where_they_are(message: Message) -> None:
    """Their votes may have gone out before there was a link. A node that came back did not know where they were, and
    they waited for it, up to ten deadlines long."""
    federation = small(nodes=4, rounds=40)
    step = Exact(prepare(federation), make_topology(federation), "cpu").nodes[0].step

    async def hear(peer: str) -> None:
        assert step.deliver(NodeName(peer), frames.encode(message))

    for peer in ("node-1", "node-2"):
        step.check(3)
        asyncio.run(hear(peer))
    with pytest.raises(LeftBehind) as behind:
        step.check(3)
    assert behind.value.theirs == 30


async def test_one_that_is_killed_and_comes_back_stops_nobody_for_a_deadline(tmp_path: Path) -> None:
    federation = small(nodes=4, rounds=500, warmup=0, eval_every=500, merge_every=0)
    daemons = make_daemons(federation, tmp_path, barrier_timeout=8, checkpoint_every=20)
    first, others = daemons[2], [*daemons[:2], daemons[3]]
    resumed = first.settings.model_copy(update={"resume": True})
    began: list[float] = []
    clock = asyncio.get_running_loop().time
    others[0].node.position.listen(lambda _round, phase: began.append(clock()) if phase == "train" else None)
    kill_at(first, 60)

    async def twice() -> tuple[Daemon, dict[str, Any]]:
        listener = first.transport.inherited.dup()
        with pytest.raises(Killed):
            await first.run()
        second = Daemon(federation, resumed, membership=True, inherited=listener)
        return second, await second.run()

    async with asyncio.timeout(120):
        (second, result), *results = await asyncio.gather(twice(), *(daemon.run() for daemon in others))
    assert all(one["finished"] for one in (result, *results))
    assert second.node.ledger.total_sent(Stage.VOTE).messages > 0  # it was in step again before the end
    assert max(after - before for before, after in pairwise(began)) < 8
    assert all(one["missed"] == 0 for one in results)
