"""Who dials whom, where both may; and nodes that nobody can dial."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from conftest import run_all, small
from secure import LOOPS, make_secure_daemons, run_on

from p2p_tally.ids import NodeName
from p2p_tally.node.links import websocket
from p2p_tally.node.links.addresses import Address
from p2p_tally.node.links.carriage import Carriage
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol.carried import Carried, Step, decode_carried
from p2p_tally.protocol.messages import Stage
from p2p_tally.runner.simulation.simulate import simulate


@LOOPS
@pytest.mark.parametrize("behind", [["node-0"], ["node-2"], ["node-0", "node-2"]], ids=["first", "last", "two"])
def test_nodes_that_nobody_can_dial_play_like_the_others(
    loop: str, behind: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two such, the third carries the edge, votes and merges, and sees no byte of either."""
    federation = small(nodes=3, rounds=8, merge_every=4)
    simulated = simulate(federation)
    carried: list[bytes] = []
    carry = Carriage._carry

    def watch(self: Carriage, origin: NodeName, message: Carried, frame: bytes) -> None:
        carried.append(frame)
        carry(self, origin, message, frame)

    monkeypatch.setattr(Carriage, "_carry", watch)

    async def play() -> None:
        daemons = make_secure_daemons(federation, tmp_path, dial_only=behind, checkpoint_every=0)
        results = await run_all(daemons)
        assert [result["parameters_sha256"] for result in results] == simulated.parameters_sha256
        assert all(result["finished"] and result["missed"] == 0 for result in results)
        assert not any(daemon.transport.refusals for daemon in daemons)
        booked = [daemon.node.ledger.total_sent(Stage.CARRIED).framed for daemon in daemons]
        assert [count > 0 for count in booked] == [False, len(behind) == 2, False]
        vectors = [daemon.learner.parameters.vector.numpy().tobytes() for daemon in daemons]
        _check_opaque(carried, vectors, merges=len(behind) == 2)

    run_on(loop, play())


def _check_opaque(carried: list[bytes], vectors: list[bytes], *, merges: bool) -> None:
    data = b"".join(message.data for message in map(decode_carried, carried) if message.step is Step.DATA)
    assert (len(data) > len(vectors[0])) == merges
    for vector in vectors:
        assert not any(vector[at : at + 8] in data for at in range(0, len(vector) - 8, 64))
    assert b"merge_every" not in data  # of a hello


@LOOPS
def test_another_carrier_takes_over(loop: str, tmp_path: Path) -> None:
    federation = small(nodes=4, rounds=400, merge_every=0, warmup=0, eval_every=400)

    async def play() -> None:
        daemons = make_secure_daemons(federation, tmp_path, dial_only=["node-2", "node-3"], checkpoint_every=0)
        first, _, third, fourth = daemons
        running = [asyncio.create_task(daemon.run()) for daemon in daemons]
        await linked(third, fourth.name)
        assert carrier(third, fourth.name) == first.name
        first.stop()
        await running[0]
        await linked(third, fourth.name, over=NodeName("node-1"))
        for daemon in daemons[1:]:
            daemon.stop()
        await asyncio.gather(*running)

    run_on(loop, play())


def carrier(daemon: Daemon, peer: NodeName) -> NodeName:
    assert daemon.transport._carriage is not None
    return next(via for (end, _), (via, _) in daemon.transport._carriage._tunnels.items() if end == peer)


async def linked(daemon: Daemon, peer: NodeName, over: NodeName | None = None) -> None:
    async with asyncio.timeout(30):
        while peer not in daemon.transport.links or (over is not None and carrier(daemon, peer) != over):
            await asyncio.sleep(0.01)


@LOOPS
def test_of_two_that_dial_at_the_same_moment_one_link_stays(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No link is ever put in the place of another, so nothing that is under way is lost."""
    monkeypatch.setattr(websocket, "GIVE_WAY_SECONDS", 0.0)
    federation = small(nodes=4, rounds=6, merge_every=3)
    simulated = simulate(federation)
    lost: list[Any] = []

    async def play() -> None:
        for turn in range(3):
            daemons = make_secure_daemons(federation, tmp_path / str(turn), checkpoint_every=0)
            for daemon in daemons:
                down = daemon.link_down

                def count(peer: NodeName, daemon: Daemon = daemon, down: Any = down) -> None:
                    if daemon.node.position.playing and daemon.node.position.round < 5:
                        lost.append((daemon.name, peer))
                    down(peer)

                monkeypatch.setattr(daemon, "link_down", count)
            results = await run_all(daemons)
            assert [result["parameters_sha256"] for result in results] == simulated.parameters_sha256
            assert not lost
            assert not any(daemon.transport.refusals for daemon in daemons)

    run_on(loop, play())


@LOOPS
def test_the_larger_name_dials_where_the_smaller_cannot(loop: str, tmp_path: Path) -> None:
    """A firewall before node-1: node-0 has an address for it at which nobody answers."""
    federation = small(nodes=2, rounds=4, warmup=0, merge_every=2)
    simulated = simulate(federation)

    async def play() -> None:
        first, second = make_secure_daemons(federation, tmp_path, checkpoint_every=0)
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # it does not listen
            first.transport.add_peer(second.name, Address(*closed.getsockname()))
            results = await run_all([first, second])
        assert [result["parameters_sha256"] for result in results] == simulated.parameters_sha256
        # The ledger counts the masks of the side that has really dialled.
        messages = second.node.ledger.total_sent().messages
        assert results[1]["framed_bytes"] - results[0]["framed_bytes"] == 4 * messages

    run_on(loop, play())
