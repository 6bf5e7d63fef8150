"""What a vote round costs: 8 daemons whose learner computes for 1 ms, and bare sockets that carry the same messages.

The daemons are real ones on digits, each a process: only the work of their learners is replaced by 1 ms of processor
time before the vote. Each process of the other side computes as long, writes a message of the same length to each other
one over asyncio streams, and reads theirs. The two take turns of some rounds in one run. With more processes than cores
both wait for processor time, so processor seconds are compared too.

    python scripts/bench/votes.py [--nodes 8] [--rounds 200] [--turns 5]
"""

import argparse
import asyncio
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import Coroutine
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop

from p2p_tally.config import DaemonSettings, Federation
from p2p_tally.ids import ranked_names
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol.messages import Stage

WANTED = 3.0
COMPUTE = 0.001


def compute() -> None:
    until = time.thread_time() + COMPUTE
    while time.thread_time() < until:
        pass


class Turns:
    """Stops before the first round of each turn, until the parent says so; and tells it what the last turn took."""

    def __init__(self, parent: Connection, rounds: int) -> None:
        self._parent = parent
        self._rounds = rounds
        self._played = 0
        self._started = self._used = 0.0

    def next_round(self, length: int) -> None:
        """`length`: bytes of a message."""
        if self._played % self._rounds == 0:
            taken = time.perf_counter() - self._started, time.process_time() - self._used
            self._parent.send((*taken, length))
            self._parent.recv()
            self._started, self._used = time.perf_counter(), time.process_time()
        self._played += 1


async def daemon(
    rank: int, listeners: list[socket.socket], parent: Connection, rounds: int, out: Path, length: int
) -> None:
    del length  # it is what this side tells
    names = ranked_names(len(listeners))
    addresses = {name: f"127.0.0.1:{own.getsockname()[1]}" for name, own in zip(names, listeners, strict=True)}
    name = names[rank]
    settings = {"name": name, "rank": rank, "listen": addresses.pop(name), "out": out, "device": "cpu"}
    settings |= {"peers": ",".join(f"{peer}={where}" for peer, where in addresses.items())}
    settings |= {"barrier_timeout": 120, "least_present": 1, "checkpoint_every": 0}
    federation = Federation(nodes=len(names), rounds=10_000_000, warmup=0, merge_every=0, eval_every=10_000_000)
    own = Daemon(federation, DaemonSettings.parse(settings), membership=True, inherited=listeners[rank])
    learner, turns, ledger = own.learner, Turns(parent, rounds), own.node.ledger
    answer = learner.vote(1)

    def train() -> None:
        sent = ledger.total_sent(Stage.VOTE)
        turns.next_round(sent.framed // max(1, sent.messages))
        compute()

    for work, instead in (("train", train), ("vote", lambda _: answer), ("distill", lambda *_: None)):
        setattr(learner, work, instead)
    await own.run()


async def bare(
    rank: int, listeners: list[socket.socket], parent: Connection, rounds: int, out: Path, length: int
) -> None:
    del out
    streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    all_here, others = asyncio.Event(), len(listeners) - 1

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams.append((reader, writer))
        if len(streams) == others:
            all_here.set()

    server = await asyncio.start_server(accept, sock=listeners[rank])
    for other in listeners[rank + 1 :]:
        await accept(*await asyncio.open_connection(*other.getsockname()))
    await all_here.wait()
    turns, message = Turns(parent, rounds), bytes(length)
    while True:
        turns.next_round(length)
        compute()
        for _, writer in streams:
            writer.write(message)
        for reader, _ in streams:
            await reader.readexactly(length)
    server.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    uvloop.run(work)


class Group:
    """The processes of one side."""

    def __init__(self, work: Any, nodes: int, rounds: int, out: Path, length: int = 0) -> None:
        context = multiprocessing.get_context("fork")
        listeners = [socket.create_server(("127.0.0.1", 0), backlog=64) for _ in range(nodes)]
        self.pipes, self.processes = [], []
        for rank in range(nodes):
            ours, theirs = context.Pipe()
            arguments = (rank, listeners, theirs, rounds, out, length)
            self.processes.append(context.Process(target=lambda a=arguments: run(work(*a)), daemon=True))
            self.processes[-1].start()
            self.pipes.append(ours)
        self.hear()

    def hear(self) -> tuple[float, float, int]:
        """Seconds of the slowest process, processor seconds of all, and bytes of a message."""
        seconds, used, length = zip(*(pipe.recv() for pipe in self.pipes), strict=True)
        return max(seconds), sum(used), max(length)

    def turn(self) -> tuple[float, float, int]:
        for pipe in self.pipes:
            pipe.send(True)
        return self.hear()

    def end(self) -> None:
        for process in self.processes:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    sizes = arguments.nodes, arguments.rounds
    with tempfile.TemporaryDirectory() as folder:
        daemons = Group(daemon, *sizes, Path(folder))
        _, _, length = daemons.turn()  # it also warms up
        streams = Group(bare, *sizes, Path(folder), length)
        streams.turn()
        ratios = []
        for turn in range(arguments.turns):
            ours, theirs = daemons.turn(), streams.turn()
            each = [[1000 * value / arguments.rounds for value in side[:2]] for side in (ours, theirs)]
            print(
                f"turn {turn + 1}: a round of daemons {each[0][0]:.2f} ms ({each[0][1]:.2f} of processors), bare "
                f"sockets {each[1][0]:.2f} ms ({each[1][1]:.2f})",
                flush=True,
            )
            ratios.append((ours[0] / theirs[0], ours[1] / theirs[1]))
        daemons.end()
        streams.end()
    by_clock, by_processor = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(
        f"a vote round / the same over bare sockets: median {by_clock:.2f}, processor seconds {by_processor:.2f} "
        f"({arguments.nodes} processes, messages of {length} bytes, {1000 * COMPUTE:g} ms of computing each; at most "
        f"{WANTED:g} wanted)"
    )


if __name__ == "__main__":
    main()
