"""The daemons of a launch on Ray: each a process at an outpost, spread over the cluster's machines.

Every outpost listens before any daemon starts, so the address book is complete and no port is guessed.
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
from p2p_tally.runner.launch.daemons import Child, Plan
from p2p_tally.runner.ray.cluster import RayCluster, RayOutpost, Request
from p2p_tally.runner.ray.remote_process import LOG, RUN, Order, Told
from p2p_tally.runner.runs.folder import CHECKPOINTS, keep_newest

LOOPBACK = "127.0.0.1"


class RayDaemons:
    """A place for daemons on a cluster."""

    def __init__(self, address: str, request: Request, nodes: int, insecure: bool) -> None:
        """`insecure`: nodes on several machines may talk to each other over a network that is trusted."""
        self._cluster = RayCluster(address, request, spread=True, at_once=nodes)
        self._insecure = insecure
        self._outposts: list[RayOutpost] = []

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._cluster.__exit__(*error)

    async def spawn(self, plan: Plan, children: list[Child]) -> None:
        self._outposts = [self._cluster.outpost() for _ in plan.names]
        places = await asyncio.gather(*(outpost.settle() for outpost in self._outposts))
        hosts = self._hosts([machine for machine, _ in places])
        listening = await asyncio.gather(
            *(outpost.listen(host) for outpost, host in zip(self._outposts, hosts, strict=True))
        )
        addresses: dict[NodeName, str] = {
            name: str(Address(host, port)) for name, host, (port, _) in zip(plan.names, hosts, listening, strict=True)
        }
        for rank, (name, outpost) in enumerate(zip(plan.names, self._outposts, strict=True)):
            folder = places[rank][1]
            arguments = plan.arguments(rank, addresses, listening[rank][1], f"{folder}/config.toml", f"{folder}/{RUN}")
            arguments += [] if _loopback(hosts[rank]) else ["--insecure"]
            order = self._cluster.order(arguments, _files(plan, name))
            children.append(Child(name, RayProcess(outpost, order, name, plan.out), plan.out / f"{name}.log"))

    def _hosts(self, machines: list[str]) -> list[str]:
        """Where each node listens: within one machine on loopback, otherwise where the others reach it."""
        if len(set(machines)) == 1:
            return [LOOPBACK] * len(machines)
        if not self._insecure and not all(_loopback(machine) for machine in machines):
            raise ConfigError(
                f"--on ray: the nodes are on {len(set(machines))} machines, and nothing between them is encrypted "
                "or authenticated; add --insecure where the network itself is trusted"
            )
        return machines

    async def close(self) -> None:
        await asyncio.gather(*(outpost.leave() for outpost in self._outposts))


class RayProcess:
    """A daemon at an outpost. What it leaves there is brought into the run folder."""

    def __init__(self, outpost: RayOutpost, order: Order, name: NodeName, out: Path) -> None:
        self.returncode: int | None = None
        self._outpost = outpost
        self._order = order
        self._name = name
        self._out = out
        self._ended = asyncio.Event()
        self._errands: set[asyncio.Task[None]] = set()

    async def lines(self) -> AsyncIterator[str]:
        try:
            async for told in self._outpost.run(self._order):
                self._take(told)
                if told.line:
                    yield told.line
        finally:
            self._ended.set()

    def _take(self, told: Told) -> None:
        for name, content in told.files.items():
            if name == LOG:
                with (self._out / f"{self._name}.log").open("ab") as log:
                    log.write(content)
            elif name.startswith(f"{RUN}/"):
                path = self._out / name.removeprefix(f"{RUN}/")
                write_whole(path, content)
                if path.parent.parent.name == CHECKPOINTS and told.code is None:
                    keep_newest(path)
        if told.present is not None:  # its checkpoints in the end are those that it kept
            for path in (self._out / CHECKPOINTS / self._name).glob("*.safetensors"):
                if f"{RUN}/{path.relative_to(self._out)}" not in told.present:
                    path.unlink()
        if told.code is not None:
            self.returncode = told.code

    def tell(self, line: str) -> None:
        self._send(self._outpost.tell(line))

    def send_signal(self, number: signal.Signals) -> None:
        self._send(self._outpost.send_signal(number))
        if number == signal.SIGKILL:  # nothing more is heard of it
            self.returncode = -number
            self._ended.set()

    def _send(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def wait(self) -> None:
        await self._ended.wait()


def _loopback(host: str) -> bool:
    return Address(host, 0).loopback


def _files(plan: Plan, name: NodeName) -> dict[str, bytes]:
    """What a node begins with: the options, and its checkpoints where it goes on."""
    files = {"config.toml": (plan.out / "config.toml").read_bytes()}
    if plan.resume_round:
        for path in (plan.out / CHECKPOINTS / name).glob("*.safetensors"):
            files[f"{RUN}/{path.relative_to(plan.out)}"] = path.read_bytes()
    return files
