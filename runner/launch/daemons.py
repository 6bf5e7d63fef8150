"""Where the daemons of a launch run: as processes of this machine (here), or of a Ray cluster (ray/daemons.py).

A daemon reports each round on its standard output, one line of JSON each. Its standard input is a pipe from its parent:
the parent writes there which daemons have died, and the daemon ends when the pipe closes, however the parent ended.
"""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, Self

from p2p_tally.ids import NodeName
from p2p_tally.runner import processes
from p2p_tally.runner.launch.forks import ForkedProcess, Nursery, can_fork


class DaemonProcess(Protocol):
    """A daemon's process, wherever it is."""

    @property
    def returncode(self) -> int | None: ...

    def lines(self) -> AsyncIterator[str]:
        """The lines of its standard output, until it has ended."""
        ...

    def send_line(self, line: str) -> None:
        """Write a line to its standard input; where the process has ended, nothing happens."""
        ...

    def send_signal(self, number: signal.Signals) -> None: ...

    async def wait(self) -> object: ...


@dataclass
class LaunchedNode:
    """One daemon, and what it has reported."""

    name: NodeName
    process: DaemonProcess
    log: Path
    lines: dict[int, dict[str, Any]] = field(default_factory=dict)  # by round, until the launcher has taken them
    last: int = 0  # the last round that it reported
    newest: dict[str, Any] = field(default_factory=lambda: {"payload_bytes": 0, "framed_bytes": 0})  # its last report
    parameters: int | None = None  # of its model, once it is known
    final: dict[str, Any] | None = None

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    def receive(self, report: dict[str, Any]) -> None:
        """Keep a report: the first has the sizes, the last the result, those between are of one round each."""
        if "sizes" in report:
            self.parameters = report["sizes"]["parameters"]
        elif "final" in report:
            self.final = self.newest = report
        else:
            self.last = report["round"]
            self.lines[self.last] = self.newest = report


@dataclass(frozen=True)
class LaunchPlan:
    """What to launch: the nodes in order of rank, the run folder, and the round after which to resume, if any.

    `admin`: each node serves an admin address on a free port of its machine."""

    names: list[NodeName]
    out: Path
    resume_round: int | None
    admin: bool = False

    def arguments(self, rank: int, addresses: dict[NodeName, str], descriptor: int, config: str, out: str) -> list[str]:
        """The arguments of p2p-tally for one node; paths and descriptor are those of the machine where it runs."""
        name = self.names[rank]
        peers = ",".join(f"{peer}={address}" for peer, address in addresses.items() if peer != name)
        options = {"config": config, "name": name, "rank": rank, "listen": addresses[name], "peers": peers, "out": out}
        arguments = ["node", "--report", *(f"--{key}={value}" for key, value in options.items())]
        arguments.append(f"--listen-fd={descriptor}")
        if self.admin:
            arguments.append("--admin=127.0.0.1:0")
        if self.resume_round is not None:
            arguments += ["--resume", f"--resume-round={self.resume_round}"]
        return arguments


class Daemons(Protocol):
    """Starts daemons somewhere; a context that lasts for as long as any of them may run."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: Any) -> None: ...

    async def spawn(self, plan: LaunchPlan, launched: list[LaunchedNode]) -> None:
        """Start every node and append it to `launched` at once, so that the caller can end those of a failed start."""
        ...

    async def close(self) -> None:
        """Release what the daemons used, once they have ended."""
        ...


class LocalProcess:
    """A daemon's process on this machine."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def lines(self) -> AsyncIterator[str]:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield line.decode()
        await self._process.wait()

    def send_line(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        return await self._process.wait()


class LocalDaemons:
    """Processes of this machine: forked from one that has loaded everything, where the platform can."""

    def __init__(self, *, forked: bool | None = None) -> None:
        """`forked`: None: if it is possible."""
        self._nursery = Nursery() if (can_fork() if forked is None else forked) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        """Nothing to do: the launcher has ended all processes."""

    async def spawn(self, plan: LaunchPlan, launched: list[LaunchedNode]) -> None:
        if self._nursery is not None:
            await self._nursery.open()
        listeners = [_listener() for _ in plan.names]
        try:
            addresses = {
                name: f"127.0.0.1:{listener.getsockname()[1]}"
                for name, listener in zip(plan.names, listeners, strict=True)
            }
            for rank, listener in enumerate(listeners):
                launched.append(await self._start(plan, rank, addresses, listener.fileno()))
        finally:
            for listener in listeners:
                listener.close()

    async def _start(
        self, plan: LaunchPlan, rank: int, addresses: dict[NodeName, str], descriptor: int
    ) -> LaunchedNode:
        name = plan.names[rank]
        arguments = plan.arguments(rank, addresses, descriptor, str(plan.out / "config.toml"), str(plan.out))
        path = plan.out / f"{name}.log"
        with path.open("ab") as log:
            process = await self._start_process(arguments, log, descriptor)
        (plan.out / f"{name}.pid").write_text(f"{process.pid}\n", encoding="utf-8")
        return LaunchedNode(name, process, path)

    async def _start_process(
        self, arguments: list[str], log: IO[bytes], descriptor: int
    ) -> LocalProcess | ForkedProcess:
        if self._nursery is not None:
            return await self._nursery.start(arguments, log, descriptor)
        # A session of its own: a Ctrl-C at the terminal reaches the launcher alone, which then stops every daemon.
        return LocalProcess(await processes.start(arguments, log=log, descriptors=[descriptor], own_session=True))

    async def close(self) -> None:
        if self._nursery is not None:
            await self._nursery.close()


def _listener() -> socket.socket:
    """A listening socket on a free port. The daemon inherits it, so no other process can take the port in between."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener
