"""A schedule with a process for each node: kill -9, SIGSTOP, a full disk, and the faults of the network in between.

Processes are forked from one that has loaded everything, so that a node starts in a fraction of a second. What they
write comes through sockets, which a full disk does not touch.
"""

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from faults import laws
from faults.network import mend_network, strike_network
from faults.plan import DEADLINE, NETWORK, Fault, Schedule
from faults.proxy import Proxy
from p2p_tally.ids import ranked_names
from p2p_tally.runner.launch.nursery import LOADED

PATIENCE = 120.0  # seconds in which no node says anything
_ROUND = re.compile(r" round (\d+)")  # in a line of a log
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(list(LOADED))


def play_node(arguments: list[str], out: str, log: str) -> None:
    """In the new process: p2p-tally with these arguments."""
    for path, stream in ((out, 1), (log, 2)):
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(path)
            os.dup2(end.fileno(), stream)
    sys.argv = ["p2p-tally", *arguments]
    from p2p_tally import cli  # noqa: PLC0415 - loaded by the process that this one was forked from

    cli.main()


class NodeProcess:
    """One node: its process, and what it has said."""

    def __init__(self, name: str, folder: Path, on_round: Callable[[str, int], None]) -> None:
        self.name = name
        self._folder = folder
        self._on_round = on_round
        self._started = 0
        self.process: Any = None
        self.log = ""
        self.result: dict[str, Any] | None = None
        self.round = 0  # the last that its log names
        self.spoils: asyncio.Event = asyncio.Event()  # a write has failed
        self._servers: list[asyncio.Server] = []
        self._open = 0  # streams of processes that have not come to their end
        self._all_read = asyncio.Event()
        self._gone = asyncio.Event()  # the process has ended

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    async def start(self, arguments: list[str]) -> None:
        self._started += 1
        paths = [str(self._folder / f"{self.name}-{self._started}.{what}") for what in ("out", "log")]
        for path, take in zip(paths, (self._take_line, self._take_log), strict=True):
            self._servers.append(await asyncio.start_unix_server(partial(self._read, take), path, limit=1 << 22))
        self.process = _CONTEXT.Process(target=play_node, args=(arguments, *paths), daemon=True)
        await asyncio.to_thread(self.process.start)
        loop, sentinel, gone = asyncio.get_running_loop(), self.process.sentinel, asyncio.Event()
        self._gone = gone
        loop.add_reader(sentinel, lambda: (gone.set(), loop.remove_reader(sentinel)))

    async def _read(
        self, take: Callable[[str], None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """All that a process says, until its end."""
        self._open += 1
        try:
            while line := await reader.readline():
                take(line.decode("utf-8", "replace"))
        finally:
            self._open -= 1
            self._all_read.set()
            writer.close()

    def _take_line(self, line: str) -> None:
        self.result = json.loads(line)

    def _take_log(self, line: str) -> None:
        self.log += line
        if "not written" in line:
            self.spoils.set()
        said = _ROUND.search(line)
        if said is not None:
            self.round = max(self.round, int(said[1]))
            self._on_round(self.name, self.round)

    def merged_in(self, round: int) -> bool:
        """Whether its record says that it completed the merge of this round."""
        path = self._folder / f"{self.name}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return any(line.get("round") == round and line.get("merged") for line in lines)

    async def ended(self) -> int:
        """Wait for the end of the process. Returns its exit code."""
        process, gone = self.process, self._gone
        await gone.wait()
        process.join()
        return int(process.exitcode)

    async def read_all(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                while self._open:
                    self._all_read.clear()
                    await self._all_read.wait()

    def end(self) -> None:
        if self.process is not None and self.process.is_alive():
            os.kill(self.pid, signal.SIGCONT)
            self.process.kill()
            self.process.join()
        for server in self._servers:
            server.close()


class Outside:
    """One schedule."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self.schedule = schedule
        self._folder = folder
        self.names = [str(name) for name in ranked_names(schedule.options["nodes"])]
        self.ports = {name: ("127.0.0.1", free_port()) for name in self.names}
        self.proxy = Proxy(self.ports, random.Random(f"proxy/{schedule.seed}/{schedule.number}"), schedule.framed)
        self.nodes = {name: NodeProcess(name, folder, self._has_come) for name in self.names}
        self.fired: Counter[str] = Counter()
        self.killed: set[str] = set()
        self.too_late: set[str] = set()  # who came back when the others had finished
        self.full: set[str] = set()  # whose disk was full
        self.codes: dict[str, int] = {}
        self.wrong: list[str] = []
        self._due = list(schedule.faults)
        self._tasks: list[asyncio.Task[None]] = []
        self._away: dict[str, asyncio.Event] = {}

    def _arguments(self, name: str, resume: bool) -> list[str]:
        options = {"topology": "mesh", **self.schedule.options}
        named = {"name": name, "rank": self.names.index(name), "listen": "{}:{}".format(*self.ports[name])}
        named |= {"peers": ",".join(f"{peer}={self.proxy.address(name, peer)}" for peer in self.names if peer != name)}
        named |= {"least-present": len(self.names)} if self.schedule.waits else {}
        named |= {"out": self._folder, "barrier-timeout": DEADLINE, "checkpoint-every": 2, "device": "cpu"}
        values = {**{key.replace("_", "-"): value for key, value in options.items()}, **named}
        return ["node", "--json", *(f"--{key}={value}" for key, value in values.items()), *(["--resume"] * resume)]

    async def run(self) -> None:
        await self.proxy.start()
        try:
            for name, node in self.nodes.items():
                await node.start(self._arguments(name, resume=False))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch())
                for name in self.names:
                    group.create_task(self._wait_for(name))
        except* TimeoutError:
            left = [f"{name} after round {self.nodes[name].round}" for name in self.names if name not in self.codes]
            self.wrong.append("hangs: " + ", ".join(left))
        finally:
            await asyncio.gather(*(node.read_all() for node in self.nodes.values()))
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for node in self.nodes.values():
                node.end()
            await self.proxy.close()
        self.fired += self.proxy.fired()

    async def _wait_for(self, name: str) -> None:
        """The end of the last process of a node."""
        node = self.nodes[name]
        while name not in self.codes:
            process = node.process
            code = await node.ended()
            if name in self._away:
                await self._away[name].wait()
            elif node.process is process:
                self.codes[name] = code

    async def _watch(self) -> None:
        """Raise a TimeoutError if nobody says anything for long. One that was killed, and that came back after the
        others had finished, waits for them: it is asked to stop."""
        said, since = -1, time.monotonic()
        while len(self.codes) < len(self.names):
            await asyncio.sleep(0.5)
            now = sum(len(node.log) for node in self.nodes.values())
            if now != said:
                said, since = now, time.monotonic()
            left = [name for name in self.names if name not in self.codes]
            if time.monotonic() > since + PATIENCE:
                raise TimeoutError
            if time.monotonic() > since + 2 * DEADLINE + 5 and set(left) <= self.killed - set(self._away):
                for name in set(left) - self.too_late:
                    self.too_late.add(name)
                    os.kill(self.nodes[name].pid, signal.SIGTERM)

    # --- faults

    def _has_come(self, name: str, round: int) -> None:
        for fault in [one for one in self._due if one.node == name and round >= one.round]:
            self._due.remove(fault)
            self._tasks.append(asyncio.create_task(self._strike(fault)))

    async def _strike(self, fault: Fault) -> None:
        node = self.nodes[fault.node]
        if fault.kind in NETWORK:
            strike_network(self.proxy, fault)
            await asyncio.sleep(fault.seconds)
            mend_network(self.proxy, fault)
        elif node.result is None and node.process.is_alive() and fault.node not in self._away:
            await {"kill": self._kill, "stop": self._stop, "full-disk": self._fill}[fault.kind](node, fault.seconds)

    async def _kill(self, node: NodeProcess, seconds: float) -> None:
        self._away[node.name] = asyncio.Event()
        self.killed.add(node.name)
        node.process.kill()
        if await node.ended() == -signal.SIGKILL:
            self.fired["kill"] += 1
        await asyncio.sleep(seconds)
        await node.start(self._arguments(node.name, resume=True))
        self.fired["restart"] += 1
        self._away.pop(node.name).set()

    async def _stop(self, node: NodeProcess, seconds: float) -> None:
        os.kill(node.pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.fired["stop"] += _state(node.pid) == "T"
        os.kill(node.pid, signal.SIGCONT)

    async def _fill(self, node: NodeProcess, seconds: float) -> None:
        """From now on no file can grow. It lasts until a write has failed, which the log says."""
        node.spoils.clear()
        soft, hard = resource.prlimit(node.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (0, hard))
        self.full.add(node.name)
        await node.spoils.wait()
        self.fired["full-disk"] += 1
        await asyncio.sleep(seconds / 4)
        if node.process.is_alive():
            resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (soft, hard))

    # --- what is found

    def judge(self) -> list[str]:
        wrong = list(self.wrong)
        options = self.schedule.options
        merged_last, digests = [], {}
        for name, node in self.nodes.items():
            wrong += laws.clean(name, node.log)
            if name not in self.codes:
                continue
            result = node.result
            if name in self.too_late and self.codes[name] == 0:
                continue
            # A model that could not be written, because the disk was full at the end, is code 1.
            unwritten = name in self.full and ".safetensors not written: File too large" in node.log
            good = self.codes[name] == (1 if unwritten else 0)
            if not good or result is None or not result["finished"]:
                wrong.append(f"{name} ended with code {self.codes[name]}: {node.log[-300:]}")
                continue
            digests[name] = result["parameters_sha256"]
            if node.merged_in(options["rounds"]):
                merged_last.append(name)
            wrong += self._booked(name, result)
        exact = options.get("topology", "mesh") == "mesh" or options.get("merge_over") == "ring"
        if exact and options.get("method") != "diloco":
            wrong += laws.same_end(digests, merged_last)
        return wrong

    def _booked(self, name: str, result: dict[str, Any]) -> list[str]:
        """All that the proxy took from a node is in its ledger, but for what comes before the first frame."""
        if name in self.killed:
            return []
        links = [traffic for pair, traffic in self.proxy.traffic.items() if pair[0] == name]
        taken, connections = sum(link.taken for link in links), sum(link.connections for link in links)
        most = int(result["framed_bytes"]) + connections * 4 * laws.UPGRADE
        return [] if taken <= most else [f"{name} sent {taken} bytes and booked {result['framed_bytes']}"]


def free_port() -> int:
    """A port that nobody listens at, below those that the kernel gives to connections: it is bound again and again."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


def _state(pid: int) -> str:
    """What a process does, as the kernel says it: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def run_outside(schedule: Schedule, folder: Path) -> tuple[list[str], Counter[str]]:
    """What did not hold, and which faults happened how often."""

    async def play() -> Outside:
        outside = Outside(schedule, folder)
        await outside.run()
        return outside

    outside = asyncio.run(play())
    return outside.judge(), outside.fired
