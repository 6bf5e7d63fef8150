"""A daemon inside somebody else's asyncio program; docs/embedding.md is run as it stands."""

import asyncio
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import kept_port, member_options, open_listener, small
from torch import nn

import p2p_tally
from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.runner.simulation.simulate import simulate

PAGE = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text(encoding="utf-8")


def members(federation: Federation, out: Path, **options: Any) -> list[p2p_tally.Daemon]:
    """One embedded daemon for each node of a federation, on free ports."""
    return [
        p2p_tally.Daemon(federation, socket=listener, **values)
        for values, listener in member_options(federation, out, **options)
    ]


async def play(daemon: p2p_tally.Daemon) -> tuple[dict[str, Any], nn.Module]:
    async with daemon:
        return await daemon.finished(), await daemon.model()


async def play_all(daemons: list[p2p_tally.Daemon]) -> list[tuple[dict[str, Any], nn.Module]]:
    async with asyncio.timeout(120):
        return await asyncio.gather(*(play(daemon) for daemon in daemons))


async def test_several_in_one_loop_are_the_simulated_federation(tmp_path: Path) -> None:
    federation = small(nodes=3, topology="mesh")
    simulated = await asyncio.to_thread(simulate, federation)
    lines: list[dict[str, Any]] = []
    daemons = members(federation, tmp_path, on_line=lines.append)
    ended = await play_all(daemons)
    assert [result["parameters_sha256"] for result, _ in ended] == simulated.parameters_sha256
    assert all(result["finished"] for result, _ in ended)
    assert [daemon.accuracy for daemon in daemons] == simulated.lines[-1].accuracy
    assert [daemon.round for daemon in daemons] == [federation.rounds] * 3
    assert {line["name"] for line in lines} == {"node-0", "node-1", "node-2"}
    x = torch.rand(5, 64)
    for rank, (_, model) in enumerate(ended):
        assert torch.equal(model(x), simulated.models[rank](x))
        assert torch.equal(p2p_tally.load(tmp_path / f"node-{rank}.safetensors")(x), model(x))
        assert (tmp_path / f"node-{rank}.jsonl").read_text().count("\n") == len(simulated.lines)


async def test_the_programs_own_torch_threads_stay_and_the_loop_is_not_held_up(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(turn())
    [daemon] = members(small(nodes=1, topology="mesh"), tmp_path)
    async with daemon:
        assert turns > 0  # while the data was loaded
        await daemon.finished()
        assert torch.get_num_threads() == 2
    other.cancel()


def leave_early(daemon: p2p_tally.Daemon) -> None:
    """Nothing: the end of the block is what stops it."""


@pytest.mark.parametrize("ask", [p2p_tally.Daemon.stop, leave_early])
async def test_a_stop_keeps_a_checkpoint_that_another_goes_on_from(tmp_path: Path, ask: Any) -> None:
    federation = small(nodes=1, topology="mesh", rounds=2000, merge_every=0, eval_every=1)
    reached = asyncio.Event()
    [daemon] = members(federation, tmp_path, on_line=lambda line: reached.set())
    async with daemon:
        await reached.wait()
        assert daemon.status()["phase"] != "waiting" and daemon.accuracy is not None
        early = await daemon.model()  # in the middle of training
        ask(daemon)
    result = await daemon.finished()
    assert not result["finished"] and result["resumable"] and 0 < result["round"] < 2000
    assert early(torch.rand(1, 64)).shape == (1, 10)
    lines: list[dict[str, Any]] = []
    [again] = members(federation, tmp_path, resume=True, on_line=lines.append)
    async with again:
        while not lines:
            await asyncio.sleep(0.01)
    assert lines[0]["round"] == result["round"] + 1


async def test_leaving_while_it_waits_for_peers_ends_at_once(tmp_path: Path) -> None:
    first, _ = members(small(nodes=2, topology="mesh"), tmp_path)
    async with asyncio.timeout(60), first:
        assert first.status()["phase"] == "waiting" and first.round == 0 and first.accuracy is None


async def test_an_error_of_the_program_is_the_one_that_is_raised(tmp_path: Path) -> None:
    [daemon] = members(small(nodes=1, topology="mesh", rounds=500), tmp_path)
    with pytest.raises(KeyError):
        async with daemon:
            raise KeyError
    assert not (await daemon.finished())["finished"]


async def test_a_cancelled_program_leaves_no_open_socket(tmp_path: Path) -> None:
    [daemon] = members(small(nodes=1, topology="mesh", rounds=500), tmp_path)
    entered = asyncio.Event()

    async def program() -> None:
        async with daemon:
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(program())
    await entered.wait()
    listens = daemon._running().transport.listen
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((listens.host, listens.port))


async def test_a_fault_of_the_node_is_raised_where_it_is_waited_for(tmp_path: Path) -> None:
    def fail(line: dict[str, Any]) -> None:
        raise ZeroDivisionError

    [daemon] = members(small(nodes=1, topology="mesh"), tmp_path, on_line=fail)
    with pytest.raises(ZeroDivisionError):
        async with daemon:
            await daemon.finished()
    [daemon] = members(small(nodes=1, topology="mesh"), tmp_path / "other", on_line=fail)
    with pytest.raises(ZeroDivisionError):
        async with daemon:
            await asyncio.wait({daemon._play})


async def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--rank -1: accepted is a whole number"):
        p2p_tally.Daemon(small(), rank=-1)
    with open_listener() as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        daemon = p2p_tally.Daemon(small(nodes=1, topology="mesh"), listen=address, rank=0, out=tmp_path)
        with pytest.raises(ConfigError, match=rf"^--listen {address}: "):
            async with daemon:
                pass
    with pytest.raises(RuntimeError, match="async with"):
        _ = p2p_tally.Daemon(small()).round


async def test_peers_without_a_topology_are_the_neighbours(tmp_path: Path) -> None:
    """As for `p2p-tally node`: each knows its neighbours only, and the graph is theirs."""
    daemons = members(small(nodes=2), tmp_path)
    assert all(result["finished"] for result, _ in await play_all(daemons))
    assert all(daemon._running().membership is False for daemon in daemons)


async def test_a_function_of_the_programs_own_is_enough(tmp_path: Path) -> None:
    def net(input_shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(input_shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))

    [(result, model)] = await play_all(members(small(nodes=1, topology="mesh", model=net), tmp_path))
    assert result["finished"] and model(torch.rand(1, 64)).shape == (1, 10)


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    [script] = re.findall(r"^```python\n# embedded.py\n(.*?)^```$", PAGE, flags=re.M | re.S)
    for port in ("7001", "7002"):
        script = script.replace(port, str(kept_port()))
    monkeypatch.chdir(tmp_path)
    exec(compile(script, "embedded.py", "exec"), {})
    said = sorted(capsys.readouterr().out.splitlines())
    assert [line.rpartition(" ")[0] for line in said] == [
        f"{name}: round 30, finished True, an empty image is a" for name in "ab"
    ]
