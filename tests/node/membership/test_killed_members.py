"""kill -9 at each point where a file is written or a message sent: afterwards all lists agree, and nothing was copied
by hand. Commands die as processes of their own; daemons in this process, where all else of them ends at once, too."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from conftest import in_process
from homes import (
    SECONDS,
    Running,
    ask,
    found,
    has_number,
    invitation,
    join,
    own_options,
    plays,
    running,
    until_linked,
)

from p2p_tally.errors import OperatorError
from p2p_tally.ids import NodeName
from p2p_tally.node.membership import points
from p2p_tally.node.membership.catching_up import CatchingUp
from p2p_tally.node.membership.home import Home
from p2p_tally.node.membership.requests import Requests
from p2p_tally.node.service.member import MemberDaemon
from p2p_tally.trust.changes import Kind
from p2p_tally.trust.invitation import Invitation


class Died(BaseException):
    """The process is gone: no handler of the program catches this."""


class Mortal:
    """Ends one daemon when it reaches a point, and from then on keeps it from writing or sending anything."""

    def __init__(self) -> None:
        self.died = asyncio.Event()
        self._point = ""
        self._victim: MemberDaemon | None = None
        self._dead: list[MemberDaemon] = []

    def aim(self, daemon: MemberDaemon, point: str) -> None:
        self.died.clear()
        self._victim, self._point = daemon, point

    def at(self, point: str) -> None:
        assert point in points.POINTS
        if any(_works_for(daemon) for daemon in self._dead):
            raise Died
        if self._victim is not None and point == self._point and _works_for(self._victim):
            self._dead.append(self._victim)
            self._victim = None
            self.died.set()
            raise Died


def _works_for(daemon: MemberDaemon) -> bool:
    """Whether what runs now is this daemon's: all share one process here."""
    parts = (daemon, daemon.roll, daemon.passing, daemon.admission, daemon.errands, daemon.catching_up)
    frame = sys._getframe(1)
    while frame is not None:
        if any(frame.f_locals.get("self") is part for part in parts):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


FOUNDING = [f"{when} {file}" for file in ("identity.pem", "probes.npz", "federation.toml", "node.toml", "members.jsonl")
            for when in ("before", "after")]  # fmt: skip


def die_at(point: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    program = Path(__file__).with_name("die_at.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(program), point, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_process_killed_while_founding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same command again makes the federation. All other points: within this process, below."""
    home = tmp_path / "alice"
    command = ["found", "--home", str(home), "--name", "alice", "--listen", "127.0.0.1:7001"]
    assert die_at("before members.jsonl", *command).returncode == -9
    assert not Home(home).has_federation
    code, _, err = in_process(command, monkeypatch, capsys)
    assert code == 0, err
    members = Home(home).chain().members
    Home(home).shared_options(members)
    assert list(members.current) == ["alice"]


@pytest.mark.parametrize("point", FOUNDING)
def test_killed_at_any_point_of_founding(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Died), monkeypatch.context() as patched:
        patched.setattr(points, "at", lambda reached: _die(reached, point))
        found(tmp_path / "alice")
    home = Home(tmp_path / "alice")
    if not home.has_federation:
        found(tmp_path / "alice")
    members = home.chain().members
    home.shared_options(members)
    assert members.owner(home.identity().credential.key) == "alice"


def _die(reached: str, point: str) -> None:
    if reached == point:
        raise Died


@pytest.mark.parametrize("point", ["sending join", *FOUNDING])
async def test_newcomer_killed_while_joining(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newcomer runs the same command again, with the same line."""
    alice = found(tmp_path / "alice")
    async with running() as nodes:
        await nodes.start(alice)
        invited, own = invitation(alice, "bob"), own_options()
        with pytest.raises(Died), monkeypatch.context() as patched:
            # Only what the newcomer does: alice's list is written in this process, too.
            patched.setattr(points, "at", lambda reached: _die_in_home(reached, point, tmp_path / "bob"))
            await join(tmp_path / "bob", invited, **own)
        bob = await join(tmp_path / "bob", invited, **own)
        assert bob.chain() == alice.chain()
        assert bob.chain().members.number == 2
        daemon = await nodes.start(bob)
        await plays(daemon)


def _die_in_home(reached: str, point: str, home: Path) -> None:
    import inspect

    if reached != point:
        return
    frames = inspect.stack()
    homes = [f.frame.f_locals["self"].folder for f in frames if isinstance(f.frame.f_locals.get("self"), Home)]
    if point == "sending join" or home in homes:
        raise Died


LIST = ["before members.jsonl", "after members.jsonl"]
JOIN = ["before invitation", "after invitation", *LIST, "sending list", "sending admitted"]
REMOVE = [*LIST, "sending list", "before outcome", "after outcome"]
ROTATE = ["before identity-next.pem", "after identity-next.pem", *LIST, "before identity.pem", "after identity.pem"]
POINTS = {
    ("join", "alice"): JOIN,
    ("remove", "alice"): REMOVE,
    ("remove", "bob"): LIST,
    ("rotate", "bob"): [*ROTATE, "sending request", "before outcome", "after outcome"],
    ("rotate", "alice"): [*ROTATE, "sending list"],
    ("leave", "bob"): ["sending request", *LIST],
    ("leave", "alice"): [*LIST, "sending list"],
    ("take-over", "bob"): [*LIST, "sending list"],
}


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mortal]:
    made = Mortal()
    monkeypatch.setattr(points, "at", made.at)
    yield made


@pytest.mark.parametrize(("change", "who"), POINTS)
async def test_a_daemon_killed_while_members_change(change: str, who: str, tmp_path: Path, mortal: Mortal) -> None:
    """It is started again on its own machine, and nothing else is done."""
    async with running() as nodes:
        crowd = Crowd(nodes, tmp_path)
        await crowd.start("alice", "bob")
        for point in POINTS[change, who]:
            ask = await crowd.prepare(change, who)
            number = nodes.daemons["alice"].roll.members.number + 1
            mortal.aim(nodes.daemons[who], point)
            task = asyncio.create_task(ask())
            async with asyncio.timeout(SECONDS):
                await mortal.died.wait()
            await nodes.kill(who)
            await nodes.start_again(crowd.homes[who])
            await task
            await crowd.agree(number, point)
            if change == "leave":
                await crowd.replace_bob()


@pytest.mark.parametrize("point", ["before request", "after request"])
async def test_a_command_killed_while_it_leaves_its_request(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person gives the command again: it is done once, whether the request was there already or not."""
    async with running() as nodes:
        crowd = Crowd(nodes, tmp_path)
        await crowd.start("alice", "bob")
        with pytest.raises(Died), monkeypatch.context() as patched:
            patched.setattr(points, "at", lambda reached: _die(reached, point))
            Requests(crowd.homes["alice"].requests).ask(Kind.ALLOW, NodeName("bob"))
        await ask(crowd.homes["alice"], Kind.ALLOW, "bob")
        await crowd.agree(3, point)
        assert nodes.daemons["bob"].roll.members.number == 3


@pytest.mark.parametrize("who", ["alice", "bob"])
async def test_killed_while_two_lists_find_together(who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alice has another key since bob was last there, so no link can be made: bob asks (he dies with the question), and
    she answers (she dies with the answer)."""
    async with running() as nodes:
        crowd = Crowd(nodes, tmp_path)
        await crowd.start("alice", "bob")
        await until_linked(nodes.daemons["alice"], 1)
        await nodes.kill("bob")
        await ask(crowd.homes["alice"], Kind.ROTATE, "alice")
        died = asyncio.Event()

        def die_once(reached: str) -> None:
            asker = sys._getframe(2).f_locals.get("self")
            of_victim = isinstance(asker, CatchingUp) and asker._home.folder == crowd.homes[who].folder
            if reached == "sending catch-up" and of_victim and not died.is_set():
                died.set()
                raise Died

        monkeypatch.setattr(points, "at", die_once)
        await nodes.start(crowd.homes["bob"])
        async with asyncio.timeout(SECONDS):
            await died.wait()
        await nodes.kill(who)
        await nodes.start_again(crowd.homes[who])
        await crowd.agree(3, "sending catch-up")
        await until_linked(nodes.daemons["alice"], 1)


class Crowd:
    """Some members, of which the first two run."""

    def __init__(self, nodes: Running, folder: Path) -> None:
        self._nodes = nodes
        self._folder = folder
        self._count = 0
        self.homes: dict[str, Home] = {}

    async def start(self, founder: str, other: str) -> None:
        self.homes[founder] = found(self._folder / founder)
        self.homes[founder].save_own({**self.homes[founder].own_options(), "alone": True})
        await self._nodes.start(self.homes[founder])
        self.homes[other] = await join(self._folder / other, self._invite(other), alone=True)
        await self._nodes.start(self.homes[other])

    def _invite(self, name: str) -> Invitation:
        return invitation(self.homes["alice"], name)

    async def replace_bob(self) -> None:
        """He has left; somebody of the same name comes."""
        if not self._nodes.daemons["bob"].left:
            await self._nodes.kill("bob")
        else:
            await self._nodes.end("bob")
        self._count += 1
        self.homes["bob"] = await join(self._folder / f"bob-{self._count}", self._invite("bob"), alone=True)
        await self._nodes.start(self.homes["bob"])

    async def _newcomer(self) -> str:
        """Somebody who joins, and does not run."""
        self._count += 1
        name = f"dave-{self._count}"
        self.homes[name] = await join(self._folder / name, self._invite(name))
        bob = self._nodes.daemons["bob"]
        await has_number(bob, self._nodes.daemons["alice"].roll.members.number)
        return name

    async def prepare(self, change: str, who: str) -> Callable[[], Awaitable[None]]:
        """What a person will do, once the two have a link."""
        await until_linked(self._nodes.daemons["alice"], 1)
        if change == "join":
            self._count += 1
            return lambda name=f"dave-{self._count}": self._join(name, self._invite(name))  # type: ignore[misc]
        if change == "take-over":
            await ask(self.homes[self._orderer], Kind.SUCCESSOR, self._other)
            await has_number(self._nodes.daemons[self._other], self._nodes.daemons["alice"].roll.members.number)
        who_asks, kind, name = {
            "remove": ("alice", Kind.REMOVE, await self._newcomer() if change == "remove" else ""),
            "leave": ("bob", Kind.LEAVE, "bob"),
            "rotate": (who, Kind.ROTATE, who),
            "take-over": (self._other, Kind.TAKE_OVER, self._other),
        }[change]

        async def request() -> None:
            if kind is Kind.LEAVE:  # who has left has no daemon any more that could tell
                Requests(self.homes[who_asks].requests).ask(kind, NodeName(name))
            else:
                await ask(self.homes[who_asks], kind, name)

        return request

    @property
    def _orderer(self) -> str:
        return self._nodes.daemons["alice"].roll.members.orderer

    @property
    def _other(self) -> str:
        return "bob" if self._orderer == "alice" else "alice"

    async def _join(self, name: str, invited: Invitation) -> None:
        own = own_options()
        while name not in self.homes:
            try:
                self.homes[name] = await join(self._folder / name, invited, **own)
            except (OperatorError, aiohttp.ClientError):  # cut off: the person runs the command again
                continue

    async def agree(self, number: int, point: str) -> None:
        """All who run and are members have one list, and the keys that it names."""
        alice, bob = self._nodes.daemons["alice"], self._nodes.daemons["bob"]
        await has_number(alice, number)
        if NodeName("bob") in alice.roll.members.current:
            same = await bob.roll.wait(lambda: bob.roll.members.number >= alice.roll.members.number, SECONDS)
            assert same, point
            assert bob.roll.members.digest == alice.roll.members.digest, point
        members = alice.roll.members
        for daemon in (alice, bob):
            if daemon.name in members.current:
                assert members.owner(daemon.roll.identity.credential.key) == daemon.name, point
                assert daemon.home.chain() == daemon.roll.chain, point
