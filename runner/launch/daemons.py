"""Where the daemons of a launch run: processes of this machine here, on other machines likewise (ray_daemons.py).

Each daemon is a process of its own with one torch thread. It tells of its rounds on its standard output, a line of
JSON each; its standard input is its lifeline, on which it hears which others are gone, and which closes when whoever
started it is, however that went.
"""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from p2p_tally.ids import NodeName
from p2p_tally.runner import processes


class DaemonProcess(Protocol):
    """A daemon's process, wherever it is."""

    @property
    def returncode(self) -> int | None: ...

    def lines(self) -> AsyncIterator[str]:
        """What it says, until it has ended."""
        ...

    def tell(self, line: str) -> None:
        """A line to its standard input; for a process that is gone it goes nowhere."""
        ...

    def send_signal(self, number: signal.Signals) -> None: ...

    async def wait(self) -> object: ...


@dataclass
class Child:
    """One daemon, and what it has said."""

    name: NodeName
    process: DaemonProcess
    log: Path
    lines: dict[int, dict[str, Any]] = field(default_factory=dict)
    last: int = 0
    parameters: int | None = None  # of its model, once it has told
    final: dict[str, Any] | None = None

    @property
    def alive(self) -> bool:
        return self.process.returncode is None


@dataclass(frozen=True)
class Plan:
    """What is to be launched: the nodes in order of rank, the run folder, and the round to go on after, if any."""

    names: list[NodeName]
    out: Path
    resume_round: int | None

    def arguments(self, rank: int, addresses: dict[NodeName, str], descriptor: int, config: str, out: str) -> list[str]:
        """Of p2p-tally, for one node; the paths and the listening socket are its own machine's."""
        name = self.names[rank]
        peers = ",".join(f"{peer}={address}" for peer, address in addresses.items() if peer != name)
        options = {"config": config, "name": name, "rank": rank, "listen": addresses[name], "peers": peers, "out": out}
        arguments = ["node", "--report", *(f"--{key}={value}" for key, value in options.items())]
        arguments.append(f"--listen-fd={descriptor}")
        if self.resume_round is not None:
            arguments += ["--resume", f"--resume-round={self.resume_round}"]
        return arguments


class Daemons(Protocol):
    """A place for daemons; entered for as long as any of them may run."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: Any) -> None: ...

    async def spawn(self, plan: Plan, children: list[Child]) -> None:
        """Start every node; those that are started are in `children`, even if the rest never is."""
        ...

    async def close(self) -> None:
        """Give back what the ended daemons had."""
        ...


class LocalProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def lines(self) -> AsyncIterator[str]:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield line.decode()
        await self._process.wait()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        return await self._process.wait()


class LocalDaemons:
    """Processes of this machine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        """The launcher has ended them all."""

    async def spawn(self, plan: Plan, children: list[Child]) -> None:
        listeners = [_listener() for _ in plan.names]
        try:
            addresses = {
                name: f"127.0.0.1:{listener.getsockname()[1]}"
                for name, listener in zip(plan.names, listeners, strict=True)
            }
            for rank, listener in enumerate(listeners):
                children.append(await self._start(plan, rank, addresses, listener.fileno()))
        finally:
            for listener in listeners:
                listener.close()

    async def _start(self, plan: Plan, rank: int, addresses: dict[NodeName, str], descriptor: int) -> Child:
        name = plan.names[rank]
        arguments = plan.arguments(rank, addresses, descriptor, str(plan.out / "config.toml"), str(plan.out))
        path = plan.out / f"{name}.log"
        with path.open("ab") as log:
            # A session of its own: a Ctrl-C at the terminal reaches the launcher alone, which then stops every daemon.
            process = await processes.start(arguments, log=log, descriptors=[descriptor], own_session=True)
        (plan.out / f"{name}.pid").write_text(f"{process.pid}\n", encoding="utf-8")
        return Child(name, LocalProcess(process), path)

    async def close(self) -> None:
        """Nothing is held besides the processes."""


def _listener() -> socket.socket:
    """A listening socket on a free port. It is handed to the daemon, so nobody can take the port in between."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener
