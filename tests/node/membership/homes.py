"""Federations with a members' list in one process: homes, daemons over real sockets with TLS, and their ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from conftest import kept_port

from p2p_tally.config import DaemonSettings, Federation, parse_options
from p2p_tally.ids import NodeName
from p2p_tally.node.membership.founding import found_federation, join_federation
from p2p_tally.node.membership.home import Home
from p2p_tally.node.membership.invitations import Invitations
from p2p_tally.node.membership.requests import Requests
from p2p_tally.node.service.member import MemberDaemon
from p2p_tally.trust.changes import Kind
from p2p_tally.trust.invitation import Invitation

# Long enough that no test comes to its end: tests stop their daemons.
ENDLESS = 1_000_000
SECONDS = 60.0


def own_options(**options: Any) -> dict[str, Any]:
    return {"listen": f"127.0.0.1:{kept_port()}", "device": "cpu", "checkpoint_every": 20, "eval_every": 49, **options}


def found(folder: Path, **options: Any) -> Home:
    """The home of alice, who founds a federation."""
    home, own = Home(folder), own_options()
    shared = {"rounds": ENDLESS, "warmup": 2, "merge_every": 4, "local_steps": 1, "batch": 8}
    values = {**shared, **own, "name": "alice", **options}
    federation, settings = parse_options(values, DaemonSettings)
    found_federation(home, federation, settings, own)
    return home


def invitation(inviter: Home, name: str, days: float = 1.0) -> Invitation:
    own = NodeName(str(inviter.own_options()["name"]))
    return Invitations(inviter.invitations).make(NodeName(name), own, inviter.chain().members, days)


async def join(folder: Path, invited: Invitation, **options: Any) -> Home:
    home = Home(folder)
    await join_federation(home, invited, own_options(**options), lambda _: None)
    return home


def daemon_of(home: Home, **options: Any) -> MemberDaemon:
    """As `p2p-tally node` makes it."""
    values = home.shared_options(home.chain().members) | home.own_options()
    values |= {"out": home.run, "home": home.folder, "resume": True, **options}
    federation, settings = parse_options(values, DaemonSettings)
    return MemberDaemon(federation, settings, home)


class Running:
    """Daemons that run in this process."""

    def __init__(self) -> None:
        self.daemons: dict[str, MemberDaemon] = {}
        self._tasks: dict[str, asyncio.Task[dict[str, Any]]] = {}

    async def start(self, home: Home, **options: Any) -> MemberDaemon:
        """Returns when others can connect."""
        daemon = daemon_of(home, **options)
        self.daemons[daemon.name] = daemon
        await daemon.start()
        self._tasks[daemon.name] = asyncio.create_task(self._play(daemon))
        return daemon

    async def _play(self, daemon: MemberDaemon) -> dict[str, Any]:
        try:
            return await daemon.play()
        finally:
            await daemon.close()

    async def end(self, name: str) -> dict[str, Any]:
        """The result of a daemon that ends by itself."""
        async with asyncio.timeout(SECONDS):
            return await self._tasks[name]

    async def stop(self, name: str) -> dict[str, Any]:
        self.daemons[name].stop()
        return await self.end(name)

    async def kill(self, name: str) -> None:
        """As kill -9: its sockets are closed by the system, and it says nothing more."""
        daemon, task = self.daemons[name], self._tasks[name]
        for link in list(daemon.transport.links.values()):
            link.expel()
        daemon.errands.look = lambda: None  # type: ignore[method-assign]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def start_again(self, home: Home) -> None:
        """It may find in its list that it is no member any more: then there is nothing to start."""
        name = str(home.own_options()["name"])
        if name in home.chain().members.current:
            await self.start(home)

    async def stop_all(self) -> None:
        for name, task in self._tasks.items():
            if not task.done():
                self.daemons[name].stop()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(task for task in self._tasks.values() if not task.cancelled()))

    def kill_all(self) -> None:
        for task in self._tasks.values():
            task.cancel()


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    all_of_them = Running()
    try:
        yield all_of_them
        await all_of_them.stop_all()
    finally:
        all_of_them.kill_all()


async def has_number(daemon: MemberDaemon, number: int) -> None:
    assert await daemon.roll.wait(lambda: daemon.roll.members.number >= number, SECONDS), daemon.roll.members.number


async def plays(daemon: MemberDaemon, rounds: int = 3) -> None:
    """Wait until this daemon has played so many more rounds."""
    await reaches(daemon, daemon.node.position.round + rounds)


async def reaches(daemon: MemberDaemon, round: int) -> None:
    reached = asyncio.Event()
    daemon.node.position.listen(lambda played, phase: reached.set() if phase == "train" and played > round else None)
    async with asyncio.timeout(SECONDS):
        await reached.wait()


async def until_linked(daemon: MemberDaemon, count: int) -> None:
    async with asyncio.timeout(SECONDS):
        while len(daemon.transport.links) < count:
            await daemon.transport.change(asyncio.get_running_loop().time() + 1)


async def ask(home: Home, kind: Kind, name: str, address: str = "") -> str:
    """What a command does; returns the text of the outcome."""
    requests = Requests(home.requests)
    outcome = await asyncio.to_thread(requests.outcome, requests.ask(kind, NodeName(name), address), SECONDS)
    assert outcome is not None, f"{kind} of {name}: no outcome"
    assert outcome.done, outcome.text
    return outcome.text


def small_federation(**options: Any) -> Federation:
    return Federation.parse({"rounds": 8, **options})
