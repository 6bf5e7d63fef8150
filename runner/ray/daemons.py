"""The daemons of a launch on Ray: each a remote process, spread over the cluster's machines.

All listening sockets are open before the first daemon starts, so each daemon is given the address of every other.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, Self

from p2p_tally.errors import ConfigError
from p2p_tally.files import write_whole
from p2p_tally.ids import NodeName
from p2p_tally.node.links.addresses import Address
from p2p_tally.runner.launch.daemons import LaunchedNode, LaunchPlan
from p2p_tally.runner.ray.cluster import ActorHandle, RayCluster, Resources
from p2p_tally.runner.ray.remote_process import LOG, RUN, Command, Output
from p2p_tally.runner.runs.folder import CHECKPOINTS, keep_newest

LOOPBACK = "127.0.0.1"


class RayDaemons:
    """Starts daemons on a cluster."""

    def __init__(self, address: str, resources: Resources, nodes: int, insecure: bool) -> None:
        """`insecure`: nodes may be on several machines, because the operator trusts the network between them."""
        self._cluster = RayCluster(address, resources, spread=True, at_once=nodes)
        self._insecure = insecure
        self._processes: list[ActorHandle] = []

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._cluster.__exit__(*error)

    async def spawn(self, plan: LaunchPlan, launched: list[LaunchedNode]) -> None:
        self._processes = [self._cluster.remote_process() for _ in plan.names]
        places = await asyncio.gather(*(process.place() for process in self._processes))
        hosts = listening_hosts([machine for machine, _ in places], self._insecure)
        listening = await asyncio.gather(
            *(process.listen(host) for process, host in zip(self._processes, hosts, strict=True))
        )
        addresses: dict[NodeName, str] = {
            name: str(Address(host, port)) for name, host, (port, _) in zip(plan.names, hosts, listening, strict=True)
        }
        for rank, (name, process) in enumerate(zip(plan.names, self._processes, strict=True)):
            folder = places[rank][1]
            arguments = plan.arguments(rank, addresses, listening[rank][1], f"{folder}/config.toml", f"{folder}/{RUN}")
            arguments += [] if _loopback(hosts[rank]) else ["--insecure"]
            command = self._cluster.command(arguments, _files(plan, name))
            launched.append(
                LaunchedNode(name, RayDaemonProcess(process, command, name, plan.out), plan.out / f"{name}.log")
            )

    async def close(self) -> None:
        await asyncio.gather(*(process.release() for process in self._processes))


class RayDaemonProcess:
    """A daemon on a remote machine. Its files are copied into the run folder of this machine."""

    def __init__(self, process: ActorHandle, command: Command, name: NodeName, out: Path) -> None:
        self.returncode: int | None = None
        self._process = process
        self._command = command
        self._name = name
        self._out = out
        self._ended = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()

    async def lines(self) -> AsyncIterator[str]:
        try:
            async for output in self._process.run(self._command):
                self._receive(output)
                if output.line:
                    yield output.line
        finally:
            self._ended.set()

    def _receive(self, output: Output) -> None:
        for name, content in output.files.items():
            if name == LOG:
                with (self._out / f"{self._name}.log").open("ab") as log:
                    log.write(content)
            elif name.startswith(f"{RUN}/"):
                path = self._out / name.removeprefix(f"{RUN}/")
                write_whole(path, content)
                if path.parent.parent.name == CHECKPOINTS and output.code is None:
                    keep_newest(path)
        if output.present is not None:  # at the end: remove the checkpoints that the daemon has removed
            for path in (self._out / CHECKPOINTS / self._name).glob("*.safetensors"):
                if f"{RUN}/{path.relative_to(self._out)}" not in output.present:
                    path.unlink()
        if output.code is not None:
            self.returncode = output.code

    def send_line(self, line: str) -> None:
        self._send(self._process.send_line(line))

    def send_signal(self, number: signal.Signals) -> None:
        self._send(self._process.send_signal(number))
        if number == signal.SIGKILL:  # there will be no more output
            self.returncode = -number
            self._ended.set()

    def _send(self, sending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def wait(self) -> None:
        await self._ended.wait()


def listening_hosts(machines: list[str], insecure: bool) -> list[str]:
    """The host on which the node of each machine listens: loopback where there is one machine, else its address."""
    if len(set(machines)) == 1:
        return [LOOPBACK] * len(machines)
    if not insecure and not all(_loopback(machine) for machine in machines):
        raise ConfigError(
            f"--on ray: the nodes are on {len(set(machines))} machines, and nothing between them is encrypted "
            "or authenticated; add --insecure where the network itself is trusted"
        )
    return machines


def _loopback(host: str) -> bool:
    return Address(host, 0).loopback


def _files(plan: LaunchPlan, name: NodeName) -> dict[str, bytes]:
    """The files that a node starts with: the options, and its checkpoints where it resumes."""
    files = {"config.toml": (plan.out / "config.toml").read_bytes()}
    if plan.resume_round:
        for path in (plan.out / CHECKPOINTS / name).glob("*.safetensors"):
            files[f"{RUN}/{path.relative_to(plan.out)}"] = path.read_bytes()
    return files
