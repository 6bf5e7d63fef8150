"""One process of p2p-tally on a machine that another machine has a say over: a folder, a socket, a command, its words.

Knows nothing of who asks, nor how: the Ray engine makes an actor of it. Everything it needs comes as bytes, and what
comes of it leaves as bytes, so the machines need no disk in common.
"""

import asyncio
import contextlib
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from p2p_tally.runner import processes

# Below the outpost's folder: what the process says of itself, and the run folder.
LOG, RUN = "log", "run"
# What is sent on as soon as it is there, so that an interrupted run can go on elsewhere.
SENT_AT_ONCE = (f"{RUN}/config.toml", f"{RUN}/checkpoints/**/*.safetensors")


@dataclass(frozen=True)
class Order:
    """What to run: arguments of p2p-tally, files to begin with (by path below the folder), and where."""

    arguments: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    directory: str = ""  # taken where it exists: relative paths of the operator's mean the same
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Told:
    """A line that the process said, with files that were new by then; at the end its exit code and all that is new."""

    line: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    code: int | None = None
    present: frozenset[str] | None = None  # at the end: all files that there are


class Outpost:
    """Runs one process."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="p2p-tally-"))
        self._listener: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._unsaid: list[str] = []  # lines for a process that is not started yet
        self._sent: dict[Path, int] = {}

    async def where(self) -> str:
        """The folder, as a path of this machine."""
        return str(self.folder)

    async def listen(self, host: str) -> tuple[int, int]:
        """Open a socket for the process to inherit: its port, and its descriptor."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=128)
        return self._listener.getsockname()[1], self._listener.fileno()

    async def run(self, order: Order) -> AsyncIterator[Told]:
        """Start the process and tell what it says until it ends."""
        directory = self._unpack(order)
        with (self.folder / LOG).open("wb") as log:
            self._process = process = await processes.start(
                order.arguments,
                log=log,
                descriptors=[self._listener.fileno()] if self._listener else [],
                directory=directory,
                environment=order.environment,
            )
        if self._listener is not None:
            self._listener.close()
        for unsaid in self._unsaid:
            await self.tell(unsaid)
        assert process.stdout is not None
        async for line in process.stdout:
            yield Told(line.decode().rstrip("\n"), self._news())
        code = await process.wait()
        present = frozenset(self._name(path) for path in self.folder.rglob("*") if path.is_file())
        yield Told("", self._news(("**/*",)), code, present)

    def _unpack(self, order: Order) -> Path | None:
        """Write the order's files; the directory to start in, None for the one where this outpost is."""
        for name, content in order.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            self._sent[path] = path.stat().st_mtime_ns
        directory = Path(order.directory)
        return directory if order.directory and directory.is_dir() else None

    def _news(self, patterns: Sequence[str] = SENT_AT_ONCE) -> dict[str, bytes]:
        """Files that were not sent as they now are."""
        news = {}
        for path in [path for pattern in patterns for path in sorted(self.folder.glob(pattern)) if path.is_file()]:
            with contextlib.suppress(FileNotFoundError):  # a checkpoint that has just made way for another
                written = path.stat().st_mtime_ns
                if self._sent.get(path) != written:
                    news[self._name(path)] = path.read_bytes()
                    self._sent[path] = written
        return news

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    async def tell(self, line: str) -> None:
        """A line to the process's standard input."""
        if self._process is None:
            self._unsaid.append(line)
        else:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{line}\n".encode())

    async def send_signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def leave(self) -> None:
        """Leave nothing behind."""
        await self.send_signal(signal.SIGKILL)
        if self._process is not None:
            await self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
