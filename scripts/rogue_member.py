"""What one member can cost the others in time, over real sockets.

Four honest daemons and a fifth member that speaks the protocol and misbehaves, one way after the other. Printed for
each way: how long the honest ones take for their rounds, how much longer that is than with an honest fifth, in
deadlines and for each round; the longest deadline that any of them had; and what they think of the fifth in the end.

    python scripts/rogue_member.py [--rounds 60] [--deadline 0.5] [--ways here,late]

With `auto` in the name of a way deadlines are automatic, with constants scaled down as --deadline is to 10 s.
"""

import argparse
import asyncio
import contextlib
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import numpy as np
import torch

from p2p_tally.config import DaemonSettings, Federation
from p2p_tally.ids import NodeName
from p2p_tally.node.links import strangers
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol import deadlines, frames
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.messages import Here, Message, Stage, Vote, Waiting, Welcome

ROGUE = NodeName("node-0")  # it dials all others
HONEST = 4
MOST_SECONDS = 120.0  # for one way
LIMITS = Limits(1 << 20)


class Rogue:
    """The fifth member at one of its links."""

    def __init__(self, link: aiohttp.ClientWebSocketResponse, ballot: Callable[[int], bytes], deadline: float) -> None:
        self._link = link
        self.ballot = ballot
        self.deadline = deadline

    async def say(self, message: Message) -> None:
        with contextlib.suppress(ConnectionError):
            await self._link.send_bytes(frames.encode(message))

    async def garble(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._link.send_bytes(b"\xc1")

    async def vote(self, round: int, choice: int = 1) -> None:
        await self.say(Vote(round, self.ballot(choice)))


Way = Callable[[Rogue, Message], Awaitable[None]]


async def honest(rogue: Rogue, heard: Message) -> None:
    if isinstance(heard, Vote):
        await rogue.vote(heard.round)


async def silent(_rogue: Rogue, _heard: Message) -> None: ...


async def here(rogue: Rogue, heard: Message) -> None:
    """Never votes, and says that it is there."""
    if isinstance(heard, Waiting):
        await rogue.say(Here(0))


async def waits(rogue: Rogue, heard: Message) -> None:
    """Never votes, and says that it waits itself."""
    if isinstance(heard, Waiting):
        await rogue.say(Waiting(heard.round, Stage.VOTE))


async def every_other(rogue: Rogue, heard: Message) -> None:
    """Votes in every other round."""
    if isinstance(heard, Vote) and heard.round % 2 == 0:
        await rogue.vote(heard.round)


async def late(rogue: Rogue, heard: Message) -> None:
    """Votes at 95 % of the deadline."""
    if isinstance(heard, Vote):
        await asyncio.sleep(0.95 * rogue.deadline)
        await rogue.vote(heard.round)


async def late_and_waits(rogue: Rogue, heard: Message) -> None:
    """The same, and says meanwhile that it waits for others."""
    if isinstance(heard, Vote):
        await asyncio.sleep(0.5 * rogue.deadline)
        if heard.round > 1:
            await rogue.say(Waiting(heard.round - 1, Stage.VOTE))
        await asyncio.sleep(0.45 * rogue.deadline)
        await rogue.vote(heard.round)


async def late_every_other(rogue: Rogue, heard: Message) -> None:
    """Late in every other round."""
    if isinstance(heard, Vote):
        await asyncio.sleep(0.95 * rogue.deadline * (heard.round % 2))
        await rogue.vote(heard.round)


async def contradicts(rogue: Rogue, heard: Message) -> None:
    """Two ballots for each round."""
    if isinstance(heard, Vote):
        await rogue.vote(heard.round)
        await rogue.vote(heard.round, 2)


async def bad_ballots(rogue: Rogue, heard: Message) -> None:
    """Ballots of no length that a ballot has."""
    if isinstance(heard, Vote):
        await rogue.say(Vote(heard.round, b"x"))


async def garbles(rogue: Rogue, heard: Message) -> None:
    """A frame that is none, then a new link."""
    if isinstance(heard, Vote):
        await rogue.vote(heard.round)
        await rogue.garble()


async def floods(rogue: Rogue, heard: Message) -> None:
    """Votes in time, and repeats itself as fast as it can."""
    if isinstance(heard, Vote):
        await rogue.vote(heard.round)
        for _ in range(2000):
            await rogue.say(Here(0))
            await rogue.vote(heard.round)


WAYS: dict[str, Way] = {
    way.__name__: way
    for way in (
        honest, silent, here, waits, every_other, late, late_and_waits, late_every_other, contradicts, bad_ballots,
        garbles, floods,
    )
}  # fmt: skip
WAYS |= {"honest-auto": honest, "late-auto": late}


def make_daemons(rounds: int, deadline: float | str, out: Path) -> list[Daemon]:
    options = {"nodes": HONEST + 1, "rounds": rounds, "warmup": 0, "eval_every": rounds, "merge_every": 0}
    federation = Federation.parse(options | {"local_steps": 2, "batch": 8})
    names = [f"node-{rank}" for rank in range(federation.nodes)]
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
    daemons = []
    for rank, name in enumerate(names):
        peers = ",".join(f"{names[peer]}={addresses[peer]}" for peer in range(len(names)) if peer != rank)
        values = {"name": name, "rank": rank, "listen": addresses[rank], "peers": peers, "out": out, "device": "cpu"}
        values |= {"barrier_timeout": deadline, "least_present": 1, "checkpoint_every": 0}
        settings = DaemonSettings.parse(values)
        daemons.append(Daemon(federation, settings, membership=True, inherited=listeners[rank]))
    return daemons


class Measured:
    """What the honest ones saw."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.longest = 0.0
        self.rounds = 0
        self.cut_off = False
        self.opinion = ""


async def keep_linked(session: aiohttp.ClientSession, understudy: Daemon, victim: Daemon, way: Way) -> None:
    """The rogue's link to one victim, made again whenever it ends."""
    count = understudy.node.ballots.count
    while True:
        with contextlib.suppress(aiohttp.ClientError, OSError, TypeError, AssertionError):
            async with session.ws_connect(f"http://{victim.transport.listen}{strangers.PATH}") as link:
                await link.send_bytes(frames.encode(understudy.hello()))
                frames.decode_hello(await link.receive_bytes())
                await link.send_bytes(frames.encode(Welcome()))
                assert await link.receive_bytes() == frames.encode(Welcome())
                limit = victim.node.step._deadlines
                rogue = Rogue(link, lambda choice: understudy.node.ballots.encode(np.full(count, choice)), 0.0)
                await rogue.say(Here(0))
                async with asyncio.TaskGroup() as tasks:
                    async for frame in link:
                        if frame.type is not aiohttp.WSMsgType.BINARY:
                            break
                        rogue.deadline = limit.timeout() or 0.0
                        tasks.create_task(way(rogue, frames.decode(frame.data, LIMITS)))
        await asyncio.sleep(0.02)


async def play(name: str, rounds: int, deadline: float) -> Measured:
    measured = Measured()
    with tempfile.TemporaryDirectory() as out:
        understudy, *daemons = make_daemons(rounds, "auto" if "auto" in name else deadline, Path(out))
        assert understudy.transport.inherited is not None
        understudy.transport.inherited.close()

        def note(daemon: Daemon) -> Callable[[int, str], None]:
            def at(_round: int, phase: str) -> None:
                if phase == "barrier":
                    measured.longest = max(measured.longest, daemon.node.step._deadlines.timeout() or 0.0)

            return at

        for daemon in daemons:
            daemon.node.position.listen(note(daemon))
        async with aiohttp.ClientSession() as session:
            running = [asyncio.create_task(daemon.run()) for daemon in daemons]
            await asyncio.sleep(0.2)
            links = [asyncio.create_task(keep_linked(session, understudy, daemon, WAYS[name])) for daemon in daemons]
            started = time.monotonic()
            _, unfinished = await asyncio.wait(running, timeout=MOST_SECONDS)
            measured.seconds = time.monotonic() - started
            measured.rounds = max(1, min(daemon.node.position.round for daemon in daemons))
            measured.opinion = opinion(daemons[0])
            measured.cut_off = bool(unfinished)
            for task in (*links, *unfinished):
                task.cancel()
            await asyncio.gather(*links, *running, return_exceptions=True)
        understudy.worker.shutdown()
    return measured


def opinion(daemon: Daemon) -> str:
    score = daemon.node.step.roster[ROGUE].score
    return f"{score.value:.1f}: {score.standing}; {'; '.join(score.reasons)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--deadline", type=float, default=0.5)
    parser.add_argument("--ways", default=",".join(WAYS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    scale = options.deadline / deadlines.LEAST_TIMEOUT
    deadlines.FIRST_TIMEOUT *= scale
    deadlines.LEAST_TIMEOUT *= scale
    print(f"{'way':<18}{'rounds':>7}{'seconds':>9}{'deadlines lost':>16}{'a round':>9}{'longest':>9}  opinion")
    usual = asyncio.run(play("honest", options.rounds, options.deadline)).seconds / options.rounds
    for name in options.ways.split(","):
        found = asyncio.run(play(name, options.rounds, options.deadline))
        lost = max(0.0, found.seconds - usual * found.rounds) / options.deadline
        figures = (
            f"{found.rounds:>7}{found.seconds:>9.1f}{lost:>16.1f}{lost / found.rounds:>9.2f}{found.longest:>8.1f}s"
        )
        print(f"{name:<18}{figures}  {found.opinion}{' (cut off)' if found.cut_off else ''}", flush=True)


if __name__ == "__main__":
    main()
