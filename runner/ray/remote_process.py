"""One process of p2p-tally on a remote machine: its folder, its listening socket, its output and its files.

Knows nothing of Ray, which makes an actor of it (cluster.py). Files travel as bytes in both directions, so the machines
need no shared disk.
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

# In the remote folder: the process's standard error, and the run folder.
LOG, RUN = "log", "run"
# Files that are sent back as soon as they are there, so that an interrupted run can be resumed on another machine.
SENT_AT_ONCE = (f"{RUN}/config.toml", f"{RUN}/checkpoints/**/*.safetensors")


@dataclass(frozen=True)
class Command:
    """What to run: arguments of p2p-tally, and the files that it starts with, by their path below the remote folder."""

    arguments: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    directory: str = ""  # the operator's, used where it exists too: relative paths then mean the same
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Output:
    """A line of the process's output, and the files that are new by then. The last has no line but the exit code."""

    line: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    code: int | None = None
    present: frozenset[str] | None = None  # with the exit code: the names of all files


class RemoteProcess:
    """Runs one process in a folder of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="p2p-tally-"))
        self._listener: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._unsent: list[str] = []  # lines for a process that is not started yet
        self._sent: dict[Path, int] = {}

    async def remote_folder(self) -> str:
        """The folder, as a path of this machine."""
        return str(self.folder)

    async def listen(self, host: str) -> tuple[int, int]:
        """Open a socket that the process will inherit; its port and its descriptor."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=128)
        return self._listener.getsockname()[1], self._listener.fileno()

    async def run(self, command: Command) -> AsyncIterator[Output]:
        """Start the process and pass on its output until it ends."""
        directory = self._unpack(command)
        with (self.folder / LOG).open("wb") as log:
            self._process = process = await processes.start(
                command.arguments,
                log=log,
                descriptors=[self._listener.fileno()] if self._listener else [],
                directory=directory,
                environment=command.environment,
            )
        if self._listener is not None:
            self._listener.close()
        for unsent in self._unsent:
            await self.send_line(unsent)
        assert process.stdout is not None
        async for line in process.stdout:
            yield Output(line.decode().rstrip("\n"), self._new_files())
        code = await process.wait()
        present = frozenset(self._name(path) for path in self.folder.rglob("*") if path.is_file())
        yield Output("", self._new_files(("**/*",)), code, present)

    def _unpack(self, command: Command) -> Path | None:
        """Write the command's files; the directory to start in, None for that of this process."""
        for name, content in command.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            self._sent[path] = path.stat().st_mtime_ns
        directory = Path(command.directory)
        return directory if command.directory and directory.is_dir() else None

    def _new_files(self, patterns: Sequence[str] = SENT_AT_ONCE) -> dict[str, bytes]:
        """Files that are new, or were changed since they were sent."""
        found = {}
        for path in [path for pattern in patterns for path in sorted(self.folder.glob(pattern)) if path.is_file()]:
            with contextlib.suppress(FileNotFoundError):  # an old checkpoint that has just been removed
                written = path.stat().st_mtime_ns
                if self._sent.get(path) != written:
                    found[self._name(path)] = path.read_bytes()
                    self._sent[path] = written
        return found

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    async def send_line(self, line: str) -> None:
        """Write a line to the process's standard input."""
        if self._process is None:
            self._unsent.append(line)
        else:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{line}\n".encode())

    async def send_signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def clean_up(self) -> None:
        """Kill the process and remove its folder."""
        await self.send_signal(signal.SIGKILL)
        if self._process is not None:
            await self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
