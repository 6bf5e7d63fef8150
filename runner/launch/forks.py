"""Daemons that are forked from a process which has loaded everything (nursery.py): the launcher's side.

The two have a socket pair. The launcher sends the arguments of a daemon with its descriptors, and hears which process
it is, and later how it ended. Where the platform cannot do this, each daemon is a process that loads everything itself.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from typing import IO, Any

from p2p_tally.errors import OperatorError
from p2p_tally.runner import processes
from p2p_tally.runner.launch.nursery import MESSAGE_BYTES


def can_fork() -> bool:
    """Whether daemons can be forked here. On macOS the system's libraries do not allow it."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


class ForkedProcess:
    """A daemon's process, which is no child of this one."""

    def __init__(self, standard_input: int, output: asyncio.StreamReader) -> None:
        self._input: int | None = standard_input
        self._output = output
        self.pid = 0  # 0: it is not known yet
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    async def lines(self) -> AsyncIterator[str]:
        async for line in self._output:
            yield line.decode()
        await self._ended.wait()

    def send_line(self, line: str) -> None:
        if self._input is not None:
            with contextlib.suppress(OSError):  # it has ended
                os.write(self._input, f"{line}\n".encode())

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None and self.pid:
            os.kill(self.pid, number)

    async def wait(self) -> None:
        await self._ended.wait()

    def started(self, pid: int) -> None:
        self.pid = pid

    def ended(self, code: int) -> None:
        self.returncode = code
        self.let_go()
        self._ended.set()

    def let_go(self) -> None:
        """Close its standard input: if it lives, it ends."""
        if self._input is not None:
            os.close(self._input)
            self._input = None


class Nursery:
    """The process that daemons are forked from, and the daemons."""

    def __init__(self, loads: Sequence[str] = ()) -> None:
        """`loads`: modules that it loads besides what every daemon needs."""
        self._loads = loads
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._daemons: list[ForkedProcess] = []
        self._answers: asyncio.Queue[bool] = asyncio.Queue()  # False: it has ended

    async def open(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = await processes.start_nursery(theirs.fileno(), self._loads)
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self._hear)
        await self._answer()

    async def start(self, arguments: list[str], log: IO[bytes], *more: int) -> ForkedProcess:
        """`more`: descriptors that it inherits."""
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        (input_read, input_write), (output_read, output_write) = os.pipe(), os.pipe()
        reader = asyncio.StreamReader(processes.LINE_BYTES)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output_read, "rb", 0))
        daemon = ForkedProcess(input_write, reader)
        self._daemons.append(daemon)
        request = {"arguments": arguments, "descriptors": [0, 1, 2, *more]}
        try:
            # It waits for nothing else now, so there is room for this message.
            socket.send_fds(
                self._socket, [json.dumps(request).encode()], [input_read, output_write, log.fileno(), *more]
            )
        finally:
            os.close(input_read)
            os.close(output_write)
        await self._answer()
        return daemon

    async def close(self) -> None:
        for daemon in self._daemons:
            daemon.let_go()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
        if self._process is not None:
            await self._process.wait()

    async def _answer(self) -> None:
        if not await self._answers.get():
            raise OperatorError("the process that daemons are forked from has ended")

    def _hear(self) -> None:
        assert self._socket is not None
        try:
            message = self._socket.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._lost()
            return
        told: dict[str, Any] = json.loads(message)
        if "ended" in told:
            ended = next(daemon for daemon in self._daemons if daemon.pid == told["ended"])
            self._daemons.remove(ended)  # another process may have its number later
            ended.ended(told["code"])
            return
        if "started" in told:  # the one that was asked for last
            self._daemons[-1].started(told["started"])
        self._answers.put_nowait(True)

    def _lost(self) -> None:
        """Without it nobody hears how daemons end, so they are ended."""
        assert self._socket is not None
        asyncio.get_running_loop().remove_reader(self._socket)
        self._answers.put_nowait(False)
        for daemon in self._daemons:
            if daemon.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    daemon.send_signal(signal.SIGKILL)
                daemon.ended(-signal.SIGKILL)
