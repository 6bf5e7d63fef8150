"""A Ray cluster, and the remote processes on its machines. Only this module imports Ray, and only when it is used.

Ray finds a machine for each process by the resources that it asks for, and carries bytes. It plays no rounds.
"""

import asyncio
import contextlib
import importlib
import logging
import math
import os
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from p2p_tally.errors import ConfigError, OperatorError
from p2p_tally.node.links.addresses import parse_address
from p2p_tally.runner.ray.remote_process import Command, Output, RemoteProcess

log = logging.getLogger(__name__)

# The time that a remote process has to clean up.
PATIENCE = 10.0
# How long a cluster's head may take to accept a connection.
REACH_SECONDS = 10.0

# Read by Ray when it is imported or started: no reports home, no advice on GPUs, and workers as urgent as any process.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_worker_niceness": "0"}

ADDRESSES = "local, auto, or HOST:PORT of a cluster's head"


class LostError(OperatorError):
    """A machine of the cluster, or a process there, is lost or could not start; the message says why."""

    exit_code = 1


@dataclass(frozen=True)
class Resources:
    """What each process needs of a machine; `unit` is what the options call a process: cell or node."""

    unit: str
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("cpus", self.cpus), ("gpus", self.gpus)):
            if not math.isfinite(value) or value < 0 or (value > 1 and value != int(value)):
                accepted = "a number from 0 to 1, or a whole number"
                raise ConfigError(f"--{name}-per-{self.unit} {value:g}: accepted is {accepted}")


class RayActor(RemoteProcess):
    """A remote process as an actor of Ray."""

    async def machine(self) -> str:
        """The address of the machine."""
        return str(_ray().util.get_node_ip_address())


class ActorHandle:
    """A remote process as seen from this machine."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._placed = False

    async def place(self) -> tuple[str, str]:
        """Wait until Ray has found a machine: its address, and the folder there. Raises LostError."""
        try:
            machine, folder = await asyncio.gather(self._actor.machine.remote(), self._actor.remote_folder.remote())
        except _ray().exceptions.RayError as error:
            raise LostError(f"Ray has no place: {_reason(error)}") from None
        self._placed = True
        return machine, folder

    async def listen(self, host: str) -> tuple[int, int]:
        try:
            found: tuple[int, int] = await self._actor.listen.remote(host)
        except _ray().exceptions.RayError as error:
            raise LostError(_reason(error)) from None
        return found

    async def run(self, command: Command) -> AsyncIterator[Output]:
        """The process's output. Where its machine is lost, the last output says so, with exit code 1."""
        try:
            async for reference in self._actor.run.remote(command):
                yield await reference
        except _ray().exceptions.RayError as error:
            yield Output("", {"log": f"lost: {_reason(error)}\n".encode()}, code=1)

    async def send_line(self, line: str) -> None:
        with contextlib.suppress(_ray().exceptions.RayError):
            await self._actor.send_line.remote(line)

    async def send_signal(self, number: int) -> None:
        with contextlib.suppress(_ray().exceptions.RayError):
            await self._actor.send_signal.remote(number)

    async def release(self) -> None:
        """End whatever runs there and give the resources back to Ray."""
        if self._placed:
            with contextlib.suppress(_ray().exceptions.RayError, TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._actor.clean_up.remote()
        _ray().kill(self._actor)


class Resident:
    """An object on a machine of the cluster. What its methods return are references, which other objects take as
    arguments: the values go from machine to machine, without this one."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def call(self, method: str, *arguments: Any, returns: int = 1) -> Any:
        """A reference to what the method returns; of several values, a reference to each."""
        return getattr(self._actor, method).options(num_returns=returns).remote(*arguments)

    def release(self) -> None:
        _ray().kill(self._actor)

    def is_lost(self, error: BaseException) -> bool:
        """Whether an error of `fetch` says that this object is no more."""
        return bool(getattr(error, "actor_id", None) == self._actor._actor_id.hex())


def fetch(references: Sequence[Any]) -> list[Any]:
    """The values. An OperatorError of a remote object is raised as it is; where one is lost, what Ray says of it."""
    try:
        return list(_ray().get(list(references)))
    except _ray().exceptions.RayTaskError as error:
        if isinstance(error.cause, OperatorError):
            raise error.cause from None
        raise


def lost(error: BaseException) -> str | None:
    """Why a remote object or its machine is lost, in one line; None: it is another error."""
    exceptions = _ray().exceptions
    of_the_program = isinstance(error, exceptions.RayTaskError)
    return _reason(error) if isinstance(error, exceptions.RayError) and not of_the_program else None


class RayCluster:
    """A cluster: one on this machine for as long as this object is entered, or one that is there already."""

    def __init__(
        self, address: str, resources: Resources, spread: bool = False, at_once: int = 1, asked: str = "--on ray"
    ) -> None:
        """`address`: local, auto or HOST:PORT. `at_once`: processes that must run at the same time. `asked`: the option
        that wants Ray."""
        if address.startswith("ray://"):
            raise ConfigError(f"--ray-address {address}: accepted is {ADDRESSES}; run it on the cluster")
        self.address = address
        self.resources = resources
        self._spread = spread
        self._at_once = at_once
        self._asked = asked

    def __enter__(self) -> Self:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        ray = _ray(self._asked)
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.address == "local":
            # Launched nodes may be many on few cores, as they are without Ray.
            cores = max(os.cpu_count() or 1, math.ceil(self._at_once * self.resources.cpus))
            # On loopback: nothing of this Ray is reachable from another machine.
            here: dict[str, Any] = {"num_cpus": cores, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            try:
                ray.init("local", **here, **quiet)
            except Exception as error:  # Ray raises just that where it does not come up in time
                ray.shutdown()
                raise LostError(f"{self._asked}: Ray does not start here: {_reason(error)}") from None
        else:
            try:
                self._reach()
                ray.init(self.address, **quiet)
            except (OSError, RuntimeError, ValueError) as error:  # ConnectionError is an OSError
                raise ConfigError(f"--ray-address {self.address}: {_reason(error)}; accepted is {ADDRESSES}") from None
        self._check_resources()
        return self

    def _reach(self) -> None:
        """Raise an OSError where nobody listens at the address: Ray itself would try for minutes."""
        if self.address != "auto":
            head = parse_address(self.address, "--ray-address")
            socket.create_connection((head.host, head.port), REACH_SECONDS).close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _ray().shutdown()

    def _check_resources(self) -> None:
        """Refuse, or warn of, what the cluster does not have: Ray would wait for it for ever and print nothing."""
        machines = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
        for name, asked, kind in (("cpus", self.resources.cpus, "CPU"), ("gpus", self.resources.gpus, "GPU")):
            each = [int(machine.get(kind, 0) / asked) for machine in machines] if asked else []
            if asked and sum(each) < self._at_once:
                option = f"--{name}-per-{self.resources.unit} {asked:g}" if self._asked == "--on ray" else self._asked
                have = ", ".join(f"{machine.get(kind, 0):g}" for machine in machines)
                text = f"{option}: {self._at_once} at once do not fit the cluster's machines, which have {have} {kind}"
                if self.address == "local":
                    raise ConfigError(text)
                log.warning("%s; waiting for more", text)

    def remote_process(self) -> ActorHandle:
        """A remote process; it starts as soon as a machine has room for it."""
        return ActorHandle(self._place(RayActor))

    def resident(self, kind: type, *arguments: Any) -> "Resident":
        """An object on a machine that has room for it, for as long as it is not released."""
        return Resident(self._place(kind, *arguments))

    def _place(self, kind: type, *arguments: Any) -> Any:
        options: dict[str, Any] = {"num_cpus": self.resources.cpus, "num_gpus": self.resources.gpus}
        if self._spread:
            options["scheduling_strategy"] = "SPREAD"
        return _ray().remote(**options)(kind).remote(*arguments)

    def command(self, arguments: list[str], files: dict[str, bytes]) -> Command:
        # A process that asks for no GPU sees none; releases of Ray differ in that.
        environment = {} if self.resources.gpus else {"CUDA_VISIBLE_DEVICES": ""}
        return Command(arguments, files, str(os.getcwd()), environment)  # noqa: PTH109 - as the other machine spells it


def _reason(error: BaseException) -> str:
    """What Ray says of a failure, in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _ray(asked: str = "--on ray") -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ConfigError(f'{asked}: needs Ray; install it with: pip install "p2p-tally[ray]"') from None
