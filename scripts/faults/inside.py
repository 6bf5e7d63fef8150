"""A schedule in one process: daemons over real sockets through a proxy, faults at the rounds that the schedule says.

Owns no rule: what it writes down is judged by laws.py.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults import laws
from faults.network import mend_network, strike_network
from faults.plan import DEADLINE, NETWORK, Fault, Schedule
from faults.proxy import Proxy, listener
from faults.watching import Clock, Errors, Records
from p2p_tally.config import DaemonSettings, Federation
from p2p_tally.defence.rule import rule_for
from p2p_tally.ids import ranked_names
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol import frames
from p2p_tally.trust.identity import Identity, load_identity, make_identity

# Seconds after which a schedule counts as one that hangs. Far more than any needs on a busy machine.
PATIENCE = 120.0

Notes = Callable[[str], None]


class Inside:
    """One schedule."""

    def __init__(self, schedule: Schedule, folder: Path, clock: Clock, say: Notes) -> None:
        self.schedule = schedule
        self._folder = folder
        self._clock = clock
        self._say = say
        self.federation = Federation.parse(schedule.options)
        self.names = [str(name) for name in ranked_names(self.federation.nodes)]
        self._sockets = {name: listener() for name in self.names}
        self.ports = {name: found.getsockname()[:2] for name, found in self._sockets.items()}
        self.proxy = Proxy(self.ports, random.Random(f"proxy/{schedule.seed}/{schedule.number}"), schedule.framed)
        self.records = Records()
        self.daemons: dict[str, Daemon] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.fired: Counter[str] = Counter()
        self.restarted: set[str] = set()
        self._due = list(schedule.faults)
        self._tasks: list[asyncio.Task[None]] = []
        self._players: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._away: dict[str, asyncio.Event] = {}  # those that are being restarted

    # --- nodes

    def _make(self, rank: int, resume: bool = False) -> Daemon:
        name = self.names[rank]
        others = [peer for peer in self.names if peer != name]
        peers = ",".join(f"{peer}={self.proxy.address(name, peer)}{self._pin(peer)}" for peer in others)
        values: dict[str, Any] = {"name": name, "rank": rank, "peers": peers, "out": self._folder, "device": "cpu"}
        values |= {"listen": "{}:{}".format(*self.ports[name]), "barrier_timeout": DEADLINE, "checkpoint_every": 2}
        if self.schedule.secure:
            values["home"] = self._key(name).file.parent
        settings = DaemonSettings.parse({**values, "resume": resume})
        sock = None if resume else self._sockets[name]
        daemon = Daemon(self.federation, settings, membership=True, inherited=sock)
        self.daemons[name] = daemon
        self.records.watch(daemon)
        daemon.node.position.listen(lambda round, _phase: self._has_come(name, round))
        return daemon

    def _pin(self, peer: str) -> str:
        if not self.schedule.secure:
            return ""
        return f"#{self._key(peer).fingerprint}"

    def _key(self, name: str) -> Identity:
        home = self._folder / "homes" / name
        return load_identity(home) or make_identity(home)

    async def run(self) -> None:
        """Play until all are done. The links stay open until then, so that all bytes are read and can be counted."""
        await self.proxy.start()
        for rank in range(len(self.names)):
            daemon = self._make(rank)
            await daemon.start()
        for name, daemon in self.daemons.items():
            self._players[name] = asyncio.create_task(daemon.play())
        try:
            async with asyncio.timeout(PATIENCE):
                for name in self.names:
                    self.results[name] = await self._result(name)
        except TimeoutError:
            self._say("hangs: " + ", ".join(self._where(name) for name in self.names if name not in self.results))
        await self._settle()
        self._book()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._end()
        self.fired += self.proxy.fired() + Counter({"clock": self._clock.read})

    async def _result(self, name: str) -> dict[str, Any]:
        """Of the daemon that has this name at the end: one that was restarted is another one."""
        while True:
            player = self._players[name]
            result = await player
            if name not in self._away and self._players[name] is player:
                return result
            if name in self._away:
                await self._away[name].wait()

    def _where(self, name: str) -> str:
        position = self.daemons[name].node.position
        return f"{name} in round {position.round}, {position.phase}"

    async def _settle(self) -> None:
        """All faults end; what is under way arrives."""
        self.proxy.mend()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                while not all(self._has_read_all(pair) for pair in self.proxy.traffic):  # noqa: ASYNC110 - no signal
                    await asyncio.sleep(0.01)

    def _has_read_all(self, pair: tuple[str, str]) -> bool:
        traffic = self.proxy.traffic[pair]
        # A goodbye is the last that a node sends.
        there = self.daemons[pair[1]]
        said_goodbye = pair[0] in map(str, there.node.step.roster.left)
        return traffic.taken <= traffic.given and (said_goodbye or pair[0] not in map(str, there.transport.links))

    async def _end(self) -> None:
        for task in self._players.values():
            task.cancel()
        await asyncio.gather(*self._players.values(), return_exceptions=True)
        await asyncio.gather(*(daemon.close() for daemon in self.daemons.values()))
        await self.proxy.close()

    # --- faults

    def _has_come(self, name: str, round: int) -> None:
        for fault in [one for one in self._due if one.node == name and round >= one.round]:
            self._due.remove(fault)
            self._tasks.append(asyncio.create_task(self._strike(fault)))

    async def _strike(self, fault: Fault) -> None:
        if fault.kind in NETWORK:
            strike_network(self.proxy, fault)
            await asyncio.sleep(fault.seconds)
            mend_network(self.proxy, fault)
        elif fault.kind == "clock":
            self._clock.ahead = 3600.0 * fault.amount
            await asyncio.sleep(fault.seconds)
            self._clock.ahead = 0.0
        else:
            await self._restart(fault)

    async def _restart(self, fault: Fault) -> None:
        name = fault.node
        daemon = self.daemons[name]
        if self._players[name].done() or name in self.restarted:
            return
        self.restarted.add(name)
        self._away[name] = asyncio.Event()
        daemon.stop()
        await self._players[name]
        await daemon.close()
        await asyncio.sleep(fault.seconds / 4)
        again = self._make(self.names.index(name), resume=True)
        await again.start()
        self._players[name] = asyncio.create_task(again.play())
        self._away.pop(name).set()
        self.fired["restart"] += 1

    # --- what is found

    def _book(self) -> None:
        """Where a link lived from beginning to end: all its bytes are in the ledger of who received them."""
        for (sender, receiver), traffic in self.proxy.traffic.items():
            daemon = self.daemons[receiver]
            if traffic.connections != 1 or self.restarted & {sender, receiver} or traffic.fired["corrupt"]:
                continue
            link = next((link for peer, link in daemon.transport.links.items() if peer == sender), None)
            count = None if link is None else link.meter.count()
            if count is None:
                continue
            daemon.node.ledger.settle()
            received = [found for (peer, _), found in daemon.node.ledger.received.items() if peer == sender]
            booked, messages = (sum(getattr(found, what) for found in received) for what in ("framed", "messages"))
            hello = len(frames.encode(self.daemons[sender].hello()))
            tls = laws.TLS_HANDSHAKE + laws.TLS_RECORD * (messages + 8) if self.schedule.secure else 0
            besides = 0 if self.schedule.secure else hello
            for sentence in laws.all_booked(
                f"{sender} to {receiver}", count.received, booked, besides, laws.UPGRADE + hello + tls
            ):
                self._say(sentence)

    def judge(self) -> list[str]:
        """What does not hold."""
        wrong = [f"{name} did not finish" for name, result in self.results.items() if not result["finished"]]
        options, records = self.federation, self.records.merges
        exact = options.topology == "mesh" or options.merge_over == "ring"
        if exact:
            wrong += laws.one_result_a_round(records)
        damaged = bool(self.fired["corrupt"]) and not self.schedule.secure
        linear = options.merge_precision == "float32" and not options.merge_top_k
        linear = linear and rule_for(options.robust_merge, options.nodes) is None
        if linear and not damaged and not self.restarted:
            wrong += laws.whole_merges(records, self.records.given)
        wrong += laws.finite({name: daemon.learner.export() for name, daemon in self.daemons.items()})
        if exact and options.method != "diloco":
            last = [one.node for one in records if one.round == options.rounds and one.node in self.results]
            digests = {name: result["parameters_sha256"] for name, result in self.results.items()}
            wrong += laws.same_end(digests, last)
        return wrong


def _loop(schedule: Schedule) -> Callable[[], asyncio.AbstractEventLoop]:
    """A daemon has uvloop where that is installed."""
    if schedule.number % 2:
        with contextlib.suppress(ImportError):
            import uvloop  # noqa: PLC0415 - not on every platform

            return uvloop.new_event_loop
    return asyncio.new_event_loop


def run_inside(schedule: Schedule, folder: Path) -> tuple[list[str], Counter[str]]:
    """What did not hold, and which faults happened how often."""
    wrong: list[str] = []
    with Errors().installed() as errors, Clock().installed() as clock:

        async def play() -> Inside:
            asyncio.get_running_loop().set_exception_handler(errors.in_loop)
            inside = Inside(schedule, folder, clock, wrong.append)
            await inside.run()
            return inside

        with asyncio.Runner(loop_factory=_loop(schedule)) as runner:
            inside = runner.run(play())
        wrong += inside.judge()
        fired = inside.fired
        del inside
    return wrong + errors.found, fired
