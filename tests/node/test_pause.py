"""A round is worth waiting for: with too few members a node pauses, and goes on with them. Over real sockets."""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from conftest import Killed, kill_at, make_daemons, small
from prometheus_client import generate_latest

from p2p_tally.node.links.websocket import WebSocketTransport
from p2p_tally.node.page.feed import NodeFeed
from p2p_tally.node.service.admin import status
from p2p_tally.node.service.daemon import Daemon

GUARD = 60  # seconds; tests wait for events, this is for those that never come


class Watched:
    """A daemon, the rounds that it has played, and moments to wait for."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.voters: dict[int, int] = {}  # by round, how many votes it had
        self.pauses: list[int] = []  # after which rounds it paused
        self._moments: list[tuple[Callable[[], bool], asyncio.Event]] = []
        daemon.recorder.listen(lambda report, _: self.voters.update({report.round: len(report.voters)}))
        daemon.node.position.listen(self._look)

    @property
    def round(self) -> int:
        return self.daemon.node.position.round

    @property
    def phase(self) -> str:
        return self.daemon.node.position.phase

    def _look(self, round: int, phase: str) -> None:
        if phase == "paused":
            self.pauses.append(round)
        for condition, event in self._moments:
            if condition():
                event.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until this holds at the begin of a phase, or holds now."""
        event = asyncio.Event()
        self._moments.append((condition, event))
        if not condition():
            await event.wait()

    async def paused(self) -> None:
        await self.until(lambda: self.phase == "paused")


def watched(daemons: list[Daemon]) -> list[Watched]:
    return [Watched(daemon) for daemon in daemons]


class Cut:
    """A network that can be cut into two halves: links between them end, and cannot be made."""

    def __init__(self, daemons: list[Daemon], one: Collection[str], patch: pytest.MonkeyPatch) -> None:
        self._transports = [daemon.transport for daemon in daemons]
        self._one = set(one)
        self.apart = False
        for transport in self._transports:
            patch.setattr(transport._connector, "open", self._open_if_whole(transport))

    def _open_if_whole(self, transport: WebSocketTransport) -> Any:
        connect = transport._connector.open

        async def open_if_whole(peer: Any, state: Any) -> Any:
            if self.apart and self._crosses(transport, peer):
                raise ConnectionRefusedError("cut")
            return await connect(peer, state)

        return open_if_whole

    def _crosses(self, transport: WebSocketTransport, peer: str) -> bool:
        return (transport.name in self._one) != (peer in self._one)

    def cut(self) -> None:
        self.apart = True
        for transport in self._transports:
            for peer, link in list(transport.links.items()):
                if self._crosses(transport, peer):
                    link.abort()

    def heal(self) -> None:
        self.apart = False
        for transport in self._transports:
            for state in transport.peers.values():
                state.nudge()  # dial now, and not after a delay


def again(daemon: Daemon, listener: socket.socket) -> Daemon:
    """The same node, started again from its checkpoint."""
    settings = daemon.settings.model_copy(update={"resume": True})
    federation = daemon.node.federation
    if not daemon.membership:
        federation = federation.model_copy(update={"topology": "mesh"})  # which is not given
    return Daemon(federation, settings, membership=daemon.membership, inherited=listener)


@pytest.mark.parametrize("method", ["tally", "fedavg"])
async def test_the_other_of_two_pauses_in_the_round_it_was_left_and_both_finish_all(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = small(nodes=2, rounds=40, warmup=2, merge_every=4, method=method)
    daemons = make_daemons(federation, tmp_path, least_present=None, checkpoint_every=4)
    left, died = watched(daemons)
    listener = daemons[1].transport.inherited.dup()
    caplog.set_level(logging.INFO)
    if method == "tally":
        kill_at(died.daemon, 11)
    else:  # which does not vote: it dies with its eleventh evaluation
        kill_in(died.daemon, 11, "evaluate")
    async with asyncio.timeout(GUARD):
        waiting = asyncio.create_task(left.daemon.run())
        with pytest.raises(Killed):
            await died.daemon.run()
        await left.paused()
        assert left.daemon.node.position.playing
        shown = status(left.daemon.node, left.daemon.transport, left.daemon.metrics)
        assert (shown["phase"], shown["missing"]) == ("paused", ["node-1"])
        assert b"p2p_tally_paused 1.0" in generate_latest(left.daemon.metrics.registry)
        page = NodeFeed(left.daemon.node, lambda: shown)
        page.refresh()
        assert page.book.state_of("node-0")["state"] == "paused"
        [resumed] = watched([again(daemons[1], listener)])
        results = await asyncio.gather(waiting, resumed.daemon.run())
    assert all(result["finished"] for result in results)
    assert list(left.voters) == list(range(1, 41))
    assert list(resumed.voters) == list(range(9, 41))  # from its checkpoint on, and none is skipped
    assert len(left.pauses) == 1 and left.pauses[0] <= 12
    if method == "tally":
        assert all(left.voters[round] == 2 for round in range(left.pauses[0] + 1, 41))
    assert results[0]["parameters_sha256"] == results[1]["parameters_sha256"]
    events = [getattr(record, "event", "") for record in caplog.records]
    assert events.count("paused") == events.count("goes-on") == 1
    assert "catch-up" not in events


def kill_in(daemon: Daemon, round: int, phase: str) -> None:
    def die(played: int, begun: str) -> None:
        if (played, begun) == (round, phase):
            raise Killed

    daemon.node.position.listen(die)


@pytest.mark.parametrize(
    "options",
    [{"topology": "ring", "hops": "all"}, {"topology": "ring"}, {"topology": "one-peer-exponential"}, {"known": True}],
    ids=["relayed", "sparse", "changing", "neighbours"],
)
async def test_half_of_the_members_die_and_come_back_on_any_graph(options: dict[str, Any], tmp_path: Path) -> None:
    known = options.pop("known", False)
    federation = small(nodes=4, rounds=40, warmup=2, merge_every=0, eval_every=40, **options)
    # Relayed votes that come before a node knows its own round are lost, and cost it half a deadline.
    options = {"least_present": None, "checkpoint_every": 2, "barrier_timeout": 6}
    daemons = make_daemons(federation, tmp_path, membership=not known, **options)
    listeners = [daemon.transport.inherited.dup() for daemon in daemons[2:]]
    nodes = watched(daemons)
    for daemon in daemons[2:]:
        kill_at(daemon, 11)
    async with asyncio.timeout(GUARD):
        waiting = asyncio.gather(*(node.daemon.run() for node in nodes[:2]))
        died = await asyncio.gather(*(node.daemon.run() for node in nodes[2:]), return_exceptions=True)
        assert {type(error) for error in died} == {Killed}
        await asyncio.gather(*(node.paused() for node in nodes[:2]))
        resumed = watched([again(*pair) for pair in zip(daemons[2:], listeners, strict=True)])
        results = await asyncio.gather(waiting, *(node.daemon.run() for node in resumed))
    assert all(result["finished"] for result in (*results[0], *results[1:]))
    assert all(max(node.voters) == 40 and node.pauses[0] <= 13 for node in nodes[:2])


async def test_a_paused_node_that_is_asked_to_stop_ends_with_a_checkpoint(tmp_path: Path) -> None:
    daemons = make_daemons(small(nodes=2, rounds=40, warmup=0), tmp_path, least_present=2, checkpoint_every=30)
    left, died = watched(daemons)
    kill_at(died.daemon, 5)
    async with asyncio.timeout(GUARD):
        waiting = asyncio.create_task(left.daemon.run())
        with pytest.raises(Killed):
            await died.daemon.run()
        await left.paused()
        left.daemon.stop()
        result = await waiting
    assert not result["finished"] and result["resumable"]
    assert left.pauses == left.daemon.checkpoints.rounds() == [result["round"]]


async def test_alone_it_goes_on(tmp_path: Path) -> None:
    daemons = make_daemons(small(nodes=2, rounds=12, warmup=0), tmp_path, least_present=None, alone=True)
    kill_at(daemons[1], 5)
    async with asyncio.timeout(GUARD):
        waiting = asyncio.create_task(daemons[0].run())
        with pytest.raises(Killed):
            await daemons[1].run()
        assert (await waiting)["finished"]


@pytest.mark.parametrize("topology", ["mesh", "ring"])
@pytest.mark.parametrize("half", [3, 4])
@pytest.mark.parametrize("method", ["tally", "diloco"])
async def test_of_two_halves_at_most_one_plays_on_and_afterwards_there_is_one_model(
    half: int, topology: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = "ring" if topology == "ring" else "neighbours"
    federation = small(
        nodes=8,
        rounds=60,
        warmup=2,
        merge_every=5,
        eval_every=60,
        topology=topology,
        merge_over=over,
        local_steps=1,
        method=method,
    )
    daemons = make_daemons(federation, tmp_path, least_present=None, checkpoint_every=0)
    nodes = watched(daemons)
    few, many = nodes[:half], nodes[half:]
    network = Cut(daemons, [node.daemon.name for node in few], monkeypatch)
    async with asyncio.timeout(GUARD):
        running = asyncio.gather(*(node.daemon.run() for node in nodes))
        await nodes[0].until(lambda: nodes[0].round == 8)
        network.cut()
        stopped = nodes if half == 4 else few
        await asyncio.gather(*(node.paused() for node in stopped))
        if half < 4:
            await many[0].until(lambda: many[0].round >= 20)
        assert {node.phase for node in stopped} == {"paused"}
        latest = 10 if method == "tally" else 15  # without votes nodes drift apart, as far as the next merge
        assert max(node.round for node in stopped) <= latest
        network.heal()
        results = await running
    assert all(result["finished"] for result in results)
    assert len({result["parameters_sha256"] for result in results}) == 1
    if half < 4:
        assert all(not node.pauses for node in many)
        assert all(list(node.voters) == list(range(1, 61)) for node in many)
