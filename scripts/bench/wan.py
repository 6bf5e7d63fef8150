"""The virtual clock against reality: 8 daemons over links that a proxy delays and limits, and what the clock forecasts.

Every connection between two daemons goes through a proxy in this process. A node's uplink and downlink are one line
each for all its connections: pieces are delayed by bits / rate, one after the other, and by the latency between the
lines. Nothing else is slowed down. The proxy charges the same headers as the clock, by connection and piece.

    python scripts/bench/wan.py [--nodes 8] [--rounds 24] [--only tally] [--overlap]

The clock gets what the daemons measured: how long each computed in each round. Computing is mostly a pause here (in
the forward pass of the model), so that eight daemons on a few cores do not wait for each other's processor time. The
first rounds, in which connections are made, are left out of both. Wanted: within 10 %.

What daemons and proxy need to read and write messages is no matter of links, and on a few cores they wait for each
other's processor time. So every case is also run through a proxy without limits: what it takes more there than by the
clock is `handling`. `off by` is that of the clock alone, `with it` that of clock and handling together: this one is
what says whether links are charged rightly. `load` is that of the machine, for each processor.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvloop
from torch import Tensor, nn

from p2p_tally.config import Federation, ServiceSettings
from p2p_tally.ids import NodeName
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.schedule import merges, resolve
from p2p_tally.node.flows import flows
from p2p_tally.node.formats import ballot_format
from p2p_tally.node.traffic import Traffic
from p2p_tally.runner.clock.clock import AFTER, BEFORE, HEADERS, SEGMENT, Played
from p2p_tally.runner.clock.messages import table_of
from p2p_tally.runner.clock.setup import make_clock
from p2p_tally.runner.launch.daemons import LaunchedNode, LaunchPlan, LocalDaemons
from p2p_tally.runner.launch.launcher import launch
from p2p_tally.thin_links import NO_LIMIT, Link, links_of

WANTED = 0.10
LINKS = ("1mbit,100ms", "100mbit,20ms")
CASES: dict[str, dict[str, Any]] = {
    "tally": {"method": "tally", "merge_every": 0},
    "fedavg": {"method": "fedavg", "merge_every": 2},
    "bridge": {"method": "tally", "merge_every": 4},
}
LEFT_OUT = 3  # rounds at the beginning
PAUSE = 0.05  # seconds of each forward pass of a training step or a vote
UNLIMITED = 10**10  # bits a second, for the size of pieces only
PIECE = 0.002  # seconds that a piece takes at most; at least one segment


class Slow(nn.Module):
    """A perceptron that takes its time."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, classes))

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            time.sleep(PAUSE)
        out: Tensor = self.layers(x)
        return out


def model(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Slow(int(np.prod(input_shape)), classes)


PARAMETERS = 64 * 256 + 256 + 256 * 10 + 10


# --- links


@dataclass
class Line:
    """An uplink or a downlink."""

    rate: int  # bits a second; 0: no limit
    free: float = 0.0

    def pass_through(self, first: float, last: float, size: int) -> float:
        """When a piece has passed, whose first and last byte come at these times."""
        bits = 8 * (size + HEADERS * -(-size // SEGMENT))
        self.free = max(last, max(first, self.free) + (bits / self.rate if self.rate else 0.0))
        return self.free


@dataclass
class Wire:
    """From one node to another: the sender's uplink, the latency, the receiver's downlink."""

    up: Line
    latency: float
    down: Line

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the connection ends."""
        loop = asyncio.get_running_loop()
        most = max(SEGMENT, int((min(self.up.rate, self.down.rate) or UNLIMITED) * PIECE / 8))
        last = 0.0
        while data := await self._read(reader):
            now = loop.time()
            for start in range(0, len(data), most):
                piece = data[start : start + most]
                began = max(now, self.up.free)
                left = self.up.pass_through(now, now, len(piece))
                last = left + self.latency
                loop.call_at(last, self._arrive, writer, piece, began + self.latency, last)
        await asyncio.sleep(max(0.0, last - loop.time()) + 1.0)
        writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.read(1 << 20)
        except ConnectionError:  # a daemon has ended
            return b""

    def _arrive(self, writer: asyncio.StreamWriter, piece: bytes, first: float, last: float) -> None:
        done = self.down.pass_through(first, last, len(piece))
        asyncio.get_running_loop().call_at(done, self._write, writer, piece)

    def _write(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        if not writer.is_closing():
            writer.write(piece)


@dataclass
class Measured(LaunchedNode):
    """A daemon whose seconds by phase are kept."""

    seconds: dict[int, dict[str, float]] = field(default_factory=dict)

    def receive(self, report: dict[str, Any]) -> None:
        super().receive(report)
        if "round" in report and "seconds" in report:
            self.seconds[report["round"]] = report["seconds"]


class Proxied(LocalDaemons):
    """Daemons of this machine, each connection of which goes through a wire."""

    def __init__(self, links: list[Link]) -> None:
        super().__init__()
        self.ups = [Line(link.up) for link in links]
        self.downs = [Line(link.down) for link in links]
        self.latency = [link.latency / 1e9 for link in links]
        self.servers: list[asyncio.Server] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.nodes: list[Measured] = []

    async def _start(
        self, plan: LaunchPlan, rank: int, addresses: dict[NodeName, str], descriptor: int
    ) -> LaunchedNode:
        """Of two nodes the one with the smaller name dials: it is given the address of a proxy."""
        seen = dict(addresses)
        for other, name in enumerate(plan.names):
            if other > rank:
                port = int(addresses[name].rpartition(":")[2])
                server = await asyncio.start_server(self._link(rank, other, port), "127.0.0.1", 0, limit=1 << 22)
                self.servers.append(server)
                seen[name] = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started = await super()._start(plan, rank, seen, descriptor)
        node = Measured(started.name, started.process, started.log)
        self.nodes.append(node)
        return node

    def _link(self, rank: int, other: int, port: int) -> Callable[..., Any]:
        latency = (self.latency[rank] + self.latency[other]) / 2
        there = Wire(self.ups[rank], latency, self.downs[other])
        back = Wire(self.ups[other], latency, self.downs[rank])

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                behind = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
            except OSError:  # that daemon has ended
                writer.close()
                return
            for wire, source, sink in ((there, reader, behind[1]), (back, behind[0], writer)):
                task = asyncio.create_task(wire.carry(source, sink))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

        return accept

    async def close(self) -> None:
        await super().close()
        for server in self.servers:
            server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


# --- what happened, and what was to be expected


def measure(federation: Federation, link: str | None) -> tuple[float, float]:
    """Seconds of the rounds that count: as they were, and by the clock. None: links without limits."""
    names = [f"node-{rank}" for rank in range(federation.nodes)]
    daemons = Proxied([NO_LIMIT] * len(names) if link is None else links_of(link, names))
    with tempfile.TemporaryDirectory() as folder:
        settings = ServiceSettings(out=Path(folder) / "run", checkpoint_every=0, barrier_timeout=120.0)
        launch(federation, settings, where=daemons)
    seconds = [node.seconds for node in daemons.nodes]
    elapsed = {r: float(np.mean([sum(own[r].values()) for own in seconds])) for r in range(1, federation.rounds + 1)}
    return usual(federation, elapsed), usual(federation, forecast(federation, link, seconds))


def usual(federation: Federation, elapsed: dict[int, float]) -> float:
    """Seconds of the rounds that count, each taken for as long as the median of those that merge, or do not. On a
    machine that others use a few rounds take much longer than most."""
    kinds: dict[bool, list[float]] = {}
    for r in range(LEFT_OUT + 1, federation.rounds + 1):
        # With --overlap a merge goes on in the round after its own.
        around = merges(federation, r) or (federation.overlap and merges(federation, r - 1))
        kinds.setdefault(around, []).append(elapsed[r])
    return sum(len(found) * statistics.median(found) for found in kinds.values())


def forecast(federation: Federation, link: str | None, seconds: list[dict[int, dict[str, float]]]) -> dict[int, float]:
    """What the clock says of each round, with the compute of each daemon in each round."""
    federation = resolve(federation.model_copy(update={"link": link or "1000gbit,0ms"}), labelled=True)
    topology = make_topology(federation)
    traffic = Traffic(federation, topology, ballot_format(federation, federation.probes_per_round, 10), PARAMETERS)
    clock = make_clock(federation, topology)
    before, found = 0.0, {}
    for r, said, merge in traffic.planned():
        table = table_of(flows(traffic, r, said, merge))
        spent = {rank: computed(own[r]) for rank, own in enumerate(seconds)}
        clock.play(r, lambda table=table: table, Played.each(spent))  # type: ignore[misc]
        assert clock.reading is not None
        found[r], before = (clock.reading.hours - before) * 3600, clock.reading.hours
    return found


def computed(seconds: dict[str, float]) -> dict[str, float]:
    """Evaluations too take a daemon's time, after the votes."""
    own = {phase: seconds.get(phase, 0.0) for phase in (*BEFORE, *AFTER)}
    return own | {"distill": own["distill"] + seconds.get("evaluate", 0.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--only", choices=CASES, help="one method")
    parser.add_argument("--overlap", action="store_true", help="with --overlap")
    parser.add_argument("--link", choices=LINKS, help="one kind of link")
    wanted = parser.parse_args()
    os.chdir(Path(__file__).parent)  # where daemons find the module `wan`
    uvloop.install()  # a proxy that is slow would be charged to the links
    worst = worst_both = 0.0
    columns = ("real s", "clock s", "off by", "handling", "with it", "load")
    print(f"{'link':>14} {'method':>8} " + " ".join(f"{column:>8}" for column in columns))
    for link, (name, options) in product([wanted.link] if wanted.link else LINKS, CASES.items()):
        if wanted.only not in (None, name):
            continue
        federation = Federation(
            nodes=wanted.nodes, rounds=wanted.rounds, warmup=0, local_steps=2, model="wan:model",
            test_count=1, eval_every=1, overlap=wanted.overlap, **options,
        )  # fmt: skip
        federation = resolve(federation, labelled=True)
        # Before and after, because the load of a machine that others use changes.
        before, (real, expected), after = (measure(federation, over) for over in (None, link, None))
        handling = (before[0] - before[1] + after[0] - after[1]) / 2
        off, both = expected / real - 1, (expected + handling) / real - 1
        worst, worst_both = max(worst, abs(off)), max(worst_both, abs(both))
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        figures = f"{real:8.2f} {expected:8.2f} {100 * off:+7.1f}% {handling:8.2f} {100 * both:+7.1f}% {load:8.1f}"
        print(f"{link:>14} {name:>8} {figures}", flush=True)
    for what, figure in (("the clock alone", worst), ("with handling", worst_both)):
        said = "ok" if figure <= WANTED else "MISSED"
        print(f"{what}: off by {100 * figure:.1f} % at most, wanted at most {100 * WANTED:.0f} %: {said}")


if __name__ == "__main__":
    main()
