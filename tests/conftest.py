"""What several tests share: small federations, and federations over real sockets in one process."""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from steady_time import SteadyLoop

from p2p_tally import cli
from p2p_tally.config import DaemonSettings, Federation
from p2p_tally.ids import ranked_names
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.node.service.recorder import OnLine
from p2p_tally.runner.simulation.simulate import simulate

# Machines differ in speed and tests share cores: a slow example is no failure, and examples repeat from run to run.
settings.register_profile("project", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")

# A shell starts what it puts into the background with Ctrl-C ignored, and children inherit that; tests send it to them.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"steady": SteadyLoop}


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    yield


@pytest.fixture(autouse=True)
def no_handlers_stay() -> Iterator[None]:
    """A node that was started here writes its log by handlers of its own, which change the records of others."""
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    root.handlers[:] = before


_kept: list[socket.socket] = []


def kept_port() -> int:
    """A port that is free until this test ends, whatever runs beside it: a daemon may take it, and leave it again.

    It is bound, so the system gives it to nobody who asks for any port. It may be bound once more by who names it and
    sets SO_REUSEADDR, as servers do.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    _kept.append(keeper)
    return int(keeper.getsockname()[1])


@pytest.fixture(autouse=True)
def _give_ports_back() -> Iterator[None]:
    yield
    while _kept:
        _kept.pop().close()


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data that may lie beside the project; tests that want it are skipped where it does not."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no folder shared/data beside the project")
    return folder


def small(**options: Any) -> Federation:
    """A federation that runs in a second: few nodes, few rounds, every phase of the method."""
    defaults = {"nodes": 4, "rounds": 8, "warmup": 2, "merge_every": 4, "local_steps": 2, "batch": 8}
    return Federation.parse({**defaults, **options})


def open_listener() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    return listener


def member_options(federation: Federation, out: Path, **options: Any) -> Iterator[tuple[dict[str, Any], socket.socket]]:
    """What each node of a federation in this process is started with, and its listening socket."""
    names = ranked_names(federation.nodes)
    listeners = {name: open_listener() for name in names}
    addresses = {name: f"127.0.0.1:{listener.getsockname()[1]}" for name, listener in listeners.items()}
    for rank, name in enumerate(names):
        peers = ",".join(f"{peer}={addresses[peer]}" for peer in names if peer != name)
        values = {"name": name, "rank": rank, "listen": addresses[name], "peers": peers, "out": out, "device": "cpu"}
        # As in a launch, nobody pauses; tests of the pause say how many members they want.
        yield values | {"barrier_timeout": 20, "least_present": 1, **options}, listeners[name]


def make_daemons(
    federation: Federation,
    out: Path,
    on_line: OnLine | None = None,
    keep_record: bool = False,
    membership: bool = True,
    **options: Any,
) -> list[Daemon]:
    """The daemons of a federation, in this process, each with its own port. `on_line` hears of all their rounds."""
    service: dict[str, Any] = {"on_line": on_line, "keep_record": keep_record, "membership": membership}
    return [
        Daemon(federation, DaemonSettings.parse(values), inherited=listener, **service)
        for values, listener in member_options(federation, out, **options)
    ]


class Killed(Exception):
    pass


def kill_at(daemon: Daemon, round: int) -> None:
    """Let it die before it votes: its links end without a goodbye."""

    def die(played: int, phase: str) -> None:
        if (played, phase) == (round, "vote"):
            raise Killed

    daemon.node.position.listen(die)


async def run_all(daemons: list[Daemon], seconds: float = 120) -> list[dict[str, Any]]:
    async with asyncio.timeout(seconds):
        return await asyncio.gather(*(daemon.run() for daemon in daemons))


async def run_as_simulated(federation: Federation, out: Path) -> list[Daemon]:
    """Daemons over real sockets that must end with the bits of the simulation and have sent its bytes."""
    # A simulation runs an event loop of its own, so it is done in a thread.
    simulated = await asyncio.to_thread(simulate, federation)
    daemons = make_daemons(federation, out)
    results = await run_all(daemons)
    assert [result["parameters_sha256"] for result in results] == simulated.parameters_sha256
    assert sum(result["missed"] for result in results) == 0
    line = simulated.lines[-1]
    assert sum(result["payload_bytes"] for result in results) / len(daemons) == line.payload_bytes
    assert sum(result["framed_bytes"] for result in results) / len(daemons) == line.framed_bytes
    return daemons


def command(*arguments: str) -> list[str]:
    """p2p-tally as a process of its own."""
    return [sys.executable, "-m", "p2p_tally", *arguments]


def in_process(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """p2p-tally in this process, which has loaded torch already: exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", ["p2p-tally", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for what other processes do; fail with `what` where it does not happen."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture
def quiet_environment() -> dict[str, str]:
    """For subprocesses: one thread each, no colours, a plain width."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120"}
