"""Daemons that were started one by one, each with a model of its own: they vote together, and refuse to merge."""

import asyncio
import logging
from pathlib import Path

import pytest
from conftest import make_daemons, open_listener, run_all, small

from p2p_tally.config import DaemonSettings
from p2p_tally.errors import ConfigError
from p2p_tally.node.service.daemon import Daemon


def pair(tmp_path: Path, merge_every: int) -> list[Daemon]:
    """alice with one model and bob with another; each knows the other as its neighbour."""
    listeners = {name: open_listener() for name in ("alice", "bob")}
    addresses = {name: f"127.0.0.1:{listener.getsockname()[1]}" for name, listener in listeners.items()}
    daemons = []
    for rank, (name, peer, model) in enumerate([("alice", "bob", "mlp:8"), ("bob", "alice", "cnn:4x2")]):
        values = {"name": name, "rank": rank, "listen": addresses[name], "peers": f"{peer}={addresses[peer]}"}
        settings = DaemonSettings.parse({**values, "out": tmp_path / name, "device": "cpu"})
        federation = small(nodes=2, merge_every=merge_every, eval_every=7, model=model)
        daemons.append(Daemon(federation, settings, membership=False, inherited=listeners[name]))
    return daemons


async def test_they_vote_together(tmp_path: Path) -> None:
    daemons = pair(tmp_path, 0)
    results = await run_all(daemons)
    assert [result["finished"] for result in results] == [True, True]
    assert [result["payload_bytes"] for result in results] == [16 * 6] * 2  # a byte a probe in six open rounds
    assert sum(result["missed"] for result in results) == 0


async def test_they_refuse_to_merge_and_say_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    daemons = pair(tmp_path, 4)
    alice, bob = (dict(daemon.fields)["parameters"] for daemon in daemons)
    assert (alice.split()[0], bob.split()[0]) == ("610", "438")
    with caplog.at_level(logging.WARNING):
        running = [asyncio.create_task(daemon.run()) for daemon in daemons]
        async with asyncio.timeout(20):
            # alice dials, and both look at the other's hello.
            while not any(daemon.transport.refusals for daemon in daemons):
                await asyncio.wait(running, timeout=0.02)
        for daemon in daemons:
            daemon.stop()
        results = await asyncio.gather(*running)
    assert f"parameters is {bob} here, {alice} there" in caplog.text or (
        f"parameters is {alice} here, {bob} there" in caplog.text
    )
    assert [result["round"] for result in results] == [0, 0]


def test_a_list_needs_a_rank_to_choose_by(tmp_path: Path) -> None:
    settings = DaemonSettings.parse({"listen": "127.0.0.1:0", "peers": "bob=127.0.0.1:9", "out": tmp_path})
    with pytest.raises(ConfigError, match=r"^--model mlp,cnn: a node holds one model; accepted is one, or with --rank"):
        Daemon(small(model="mlp,cnn", merge_every=0), settings, membership=False)


async def test_a_checkpoint_of_another_model_is_refused_in_one_line(tmp_path: Path) -> None:
    federation = small(nodes=1, merge_every=0)
    await run_all(make_daemons(federation, tmp_path, checkpoint_every=4))
    with pytest.raises(
        ConfigError, match=r"--resume: .* fits: it is of another model \(--model\): of 4810 parameters .* here 610 "
    ):
        make_daemons(federation.model_copy(update={"model": "mlp:8"}), tmp_path, checkpoint_every=4, resume=True)


def forget_the_last(checkpoints: Path) -> None:
    """As if all had been stopped after round 4."""
    for last in checkpoints.glob("*/checkpoint-00000008.safetensors"):
        last.unlink()


async def test_going_on_from_a_checkpoint_ends_in_the_same_bits(tmp_path: Path) -> None:
    federation = small(nodes=3, merge_every=0, model="mlp:8,cnn:4x2,mlp", eval_every=7)
    straight = await run_all(make_daemons(federation, tmp_path, checkpoint_every=4))
    forget_the_last(tmp_path / "checkpoints")
    resumed = await run_all(make_daemons(federation, tmp_path, checkpoint_every=4, resume=True))
    for field in ("parameters_sha256", "payload_bytes", "round"):
        assert [one[field] for one in resumed] == [one[field] for one in straight]
    assert len({one["parameters_sha256"] for one in resumed}) == 3
