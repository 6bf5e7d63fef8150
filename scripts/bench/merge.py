"""What a merge costs, compared with plain asyncio TCP streams that move the same bytes between as many processes.

Both do the exchange of an all-reduce on a full mesh: each process sends every other one a segment of its vector, then
the same amount again. The plain streams only move bytes: no framing, no checks, no sums. The two take turns in one run.
Peak memory is that of a process during its merges, minus what it used before, in vectors |W|.

After that, in one process: the time to encode that many parameters, run by run, and to decode them.

    python scripts/bench/merge.py [--nodes 8] [--parameters 5839360] [--turns 5] [--tls] [--robust] [--int8]
                                  [--link 100mbit,20ms]

With --tls a third group does the same merge over links that are TLS by pinned keys, and a fourth has bare streams over
TLS, in turns with the others: what bare streams lose by TLS, no merge can gain. Processor seconds hardly depend on what
else the machine does. With --robust a group does it with the default of --robust-merge.
With --int8 a group sends changes of a common base in int8, as --merge-precision int8 does.
With --link there is one more group of each kind of merge, over links that a proxy delays and limits.
"""

import argparse
import asyncio
import multiprocessing
import os
import random
import re
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import permutations
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName, ranked_names
from p2p_tally.learning.feedback import ErrorFeedback
from p2p_tally.node.formats import message_limits
from p2p_tally.node.links.addresses import Address
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.links.pinned import PinnedKeys
from p2p_tally.node.links.websocket import WebSocketTransport
from p2p_tally.node.merges.all_reduce import AllReduce
from p2p_tally.node.merges.contributions import Sources
from p2p_tally.node.merges.exchange import Exchange, Peers
from p2p_tally.node.merges.robust_reduce import RobustReduce
from p2p_tally.node.position import Position
from p2p_tally.node.service.startup import Startup
from p2p_tally.node.step.step import Step
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.checksum import checksum
from p2p_tally.protocol.deadlines import Deadlines
from p2p_tally.protocol.frames import VERSION
from p2p_tally.protocol.handshake import fields_digest
from p2p_tally.protocol.ledger import Ledger
from p2p_tally.protocol.messages import Hello, Stage
from p2p_tally.protocol.segments import runs, segments
from p2p_tally.thin_links import Link, links_of
from p2p_tally.topologies import build
from p2p_tally.trust.certificates import asking
from p2p_tally.trust.identity import load_identity, make_identity

sys.path.insert(0, str(Path(__file__).parent))
from wan import Line, Wire

READ = 1 << 18
WANTED, WANTED_TLS, WANTED_ROBUST = 1.15, 1.3, 1.1
WANTED_INT8 = 0.5  # on a link of 100 Mbit
SLOW = " over slow links"  # of the names of groups
# What is compared with a plain merge: by group.
COMPARED = {
    "tls": ("merge over TLS", WANTED_TLS),
    "robust": ("robust merge", WANTED_ROBUST),
    "int8": ("merge in int8", WANTED_INT8),
}


async def ours(
    rank: int,
    ports: list[int],
    listener: socket.socket,
    vector: np.ndarray,
    parent: Connection,
    homes: Path | None = None,
    robust_merge: str = "off",
    *,
    int8: bool = False,
) -> None:
    """`homes`: where the keys of all nodes are; None: links are plain."""
    names = ranked_names(len(ports))
    name = names[rank]
    peers = {peer: Address("127.0.0.1", port) for peer, port in zip(names, ports, strict=True) if peer != name}
    hello = Hello(VERSION, name, 0, False, (0,), (), fields_digest(()), ())
    federation = Federation(nodes=len(names), rounds=1_000_000, warmup=0, merge_every=1)
    topology, ballots, position = build("mesh", names), BallotFormat("byte", 1, 2), Position(federation)
    transport = WebSocketTransport(
        name,
        Address("127.0.0.1", ports[rank]),
        peers,
        lambda: hello,
        message_limits(federation, ballots, len(names)),
        random.Random(rank),
        listener,
        None if homes is None else pinned(homes, name, peers),
    )
    outbox, deadlines = Outbox(name, transport, Ledger()), Deadlines(120.0)
    step = Step(
        name, federation, topology, transport, outbox, position, ballots, lambda _: None, deadlines, time.perf_counter
    )
    reach = Peers(name, step.roster, outbox, step.gather, step.inbox.refuse)
    sources = (
        Sources(ChangeFormat("int8"), ErrorFeedback(torch.zeros(len(vector)), common_start=True)) if int8 else None
    )
    exchange: Exchange = (
        AllReduce(reach, sources) if robust_merge == "off" else RobustReduce(reach, robust_merge, sources)
    )
    await transport.start(step)
    await Startup(transport, topology, step, position, deadlines.timeout, has_played=False).wait()
    before = memory("VmRSS")
    reset_peak()
    round = 0
    parent.send("ready")
    while await asyncio.to_thread(parent.recv):
        round += 1
        started, used = time.perf_counter(), time.process_time()
        merged = await exchange.merge(round, vector)
        elapsed = time.perf_counter() - started
        assert merged.average is not None
        del merged
        parent.send((elapsed, memory("VmHWM") - before, time.process_time() - used))
    await transport.close()


def pinned(homes: Path, name: NodeName, peers: Iterable[NodeName]) -> PinnedKeys:
    keys = {node: load_identity(homes / node) for node in (name, *peers)}
    own = keys.pop(name)
    assert own is not None
    return PinnedKeys(own, {peer: key.fingerprint for peer, key in keys.items() if key is not None})


async def bare(
    rank: int,
    ports: list[int],
    listener: socket.socket,
    vector: np.ndarray,
    parent: Connection,
    homes: Path | None = None,
) -> None:
    """Streams between all pairs; each writes and reads a segment, twice. `homes`: as of `ours`."""
    names = ranked_names(len(ports))
    accepting = None if homes is None else pinned(homes, names[rank], names[:rank] + names[rank + 1 :]).accepting()
    dialling = None if homes is None else asking()
    lengths = [(cut.stop - cut.start) * 4 for cut in segments(len(vector), len(ports))]
    streams: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
    all_here = asyncio.Event()

    def add(peer: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams[peer] = reader, writer
        if len(streams) == len(ports) - 1:
            all_here.set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        add(int.from_bytes(await reader.readexactly(4), "big"), reader, writer)

    server = await asyncio.start_server(answer, sock=listener, limit=READ, ssl=accepting)
    for peer in range(rank + 1, len(ports)):
        reader, writer = await asyncio.open_connection("127.0.0.1", ports[peer], limit=READ, ssl=dialling)
        writer.write(rank.to_bytes(4, "big"))
        add(peer, reader, writer)
    if len(ports) > 1:
        await all_here.wait()
    data = memoryview(vector.tobytes())

    async def write(writer: asyncio.StreamWriter, length: int) -> None:
        for start in range(0, length, READ):
            writer.write(data[start : min(start + READ, length)])
            await writer.drain()

    async def read(reader: asyncio.StreamReader, length: int) -> None:
        while length:
            length -= len(await reader.read(min(length, READ)))

    parent.send("ready")
    while await asyncio.to_thread(parent.recv):
        started, used = time.perf_counter(), time.process_time()
        for sent, received in ((lengths, [lengths[rank]] * len(ports)), ([lengths[rank]] * len(ports), lengths)):
            await asyncio.gather(
                *(write(writer, sent[peer]) for peer, (_, writer) in streams.items()),
                *(read(reader, received[peer]) for peer, (reader, _) in streams.items()),
            )
        parent.send((time.perf_counter() - started, 0, time.process_time() - used))
    server.close()


def memory(field: str) -> int:
    """A field of this process's memory, in bytes; 0 if the system does not provide it."""
    status = Path("/proc/self/status")
    found = re.search(rf"{field}:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found.group(1)) * 1024 if found else 0


def reset_peak() -> None:
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")


def worker(
    kind: str, rank: int, ports: list[int], descriptor: int, parameters: int, parent: Connection, homes: Path
) -> None:
    listener = socket.socket(fileno=descriptor)
    vector = np.random.default_rng(rank).standard_normal(parameters, dtype=np.float32)
    of = {
        "bare": bare,
        "ours": ours,
        "tls": partial(ours, homes=homes),
        "bare-tls": partial(bare, homes=homes),
        "robust": partial(ours, robust_merge="auto"),
        "int8": partial(ours, int8=True),
    }
    work = of[kind.removesuffix(SLOW)](rank, ports, listener, vector, parent)
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def listening() -> socket.socket:
    found = socket.socket()
    found.bind(("127.0.0.1", 0))
    found.listen(64)
    return found


async def carry(link: Link, ports: list[int], doors: dict[tuple[int, int], socket.socket]) -> None:
    """All connections between nodes: an uplink and a downlink for each, and the latency between them."""
    ups, downs = [Line(link.up) for _ in ports], [Line(link.down) for _ in ports]
    carried = set()

    async def accept(one: int, other: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection("127.0.0.1", ports[other], limit=1 << 22)
        there, back = (Wire(ups[a], link.latency / 1e9, downs[b]) for a, b in ((one, other), (other, one)))
        for wire, source, sink in ((there, reader, behind[1]), (back, behind[0], writer)):
            carried.add(asyncio.create_task(wire.carry(source, sink)))

    servers = [
        await asyncio.start_server(partial(accept, *pair), sock=door, limit=1 << 22) for pair, door in doors.items()
    ]
    await asyncio.gather(*(server.serve_forever() for server in servers))


class Group:
    """The processes of one side. `link`: they speak to each other over such links."""

    def __init__(self, kind: str, nodes: int, parameters: int, homes: Path, link: Link | None = None) -> None:
        context = multiprocessing.get_context("fork")
        listeners = [listening() for _ in range(nodes)]
        ports = [listener.getsockname()[1] for listener in listeners]
        self.pipes = []
        self.processes = []
        doors = {pair: listening() for pair in permutations(range(nodes), 2)} if link is not None else {}
        if link is not None:
            carrier = context.Process(target=lambda: asyncio.run(carry(link, ports, doors)), daemon=True)
            carrier.start()
        for rank, listener in enumerate(listeners):
            ours_end, theirs = context.Pipe()
            # Who dials, the other is behind a proxy.
            seen = [doors[rank, other].getsockname()[1] if (rank, other) in doors else port
                    for other, port in enumerate(ports)]  # fmt: skip
            process = context.Process(
                target=worker,
                args=(kind, rank, seen, os.dup(listener.fileno()), parameters, theirs, homes),
                daemon=True,
            )
            process.start()
            self.pipes.append(ours_end)
            self.processes.append(process)
        for pipe in self.pipes:
            assert pipe.recv() == "ready"

    def turn(self) -> tuple[float, int, float]:
        """Seconds of the slowest process, the largest peak, and the processor seconds of all."""
        for pipe in self.pipes:
            pipe.send(True)
        results = [pipe.recv() for pipe in self.pipes]
        seconds, peaks, used = zip(*results, strict=True)
        return max(seconds), max(peaks), sum(used)

    def end(self) -> None:
        for pipe in self.pipes:
            pipe.send(False)
        for process in self.processes:
            process.join(10)


def coding_times(parameters: int, repeats: int = 7) -> None:
    """Milliseconds to encode a vector, to decode it, and to copy it, run by run: medians of some repeats."""
    vector = np.random.default_rng(0).standard_normal(parameters, dtype=np.float32)
    cut = runs(slice(0, parameters))

    def median(work: Callable[[int, slice], object]) -> float:
        """Time for the whole vector. The result of a run is dropped before the next, as in a merge."""
        seconds = []
        for _ in range(repeats):
            started = time.perf_counter()
            for part, run in enumerate(cut):
                work(part, run)
            seconds.append(time.perf_counter() - started)
        return 1000 * statistics.median(seconds)

    copied = median(lambda _, run: vector[run].copy())
    print(f"{parameters:,} parameters: copied in {copied:.1f} ms")
    for coding in (ChangeFormat("bfloat16"), ChangeFormat("int8")):
        coded = [coding.encode(vector[run]) for run in cut]
        quantise = median(lambda _, run, coding=coding: coding.encode(vector[run]))
        restore = median(lambda part, run, coding=coding, coded=coded: coding.decode(coded[part], run.stop - run.start))
        print(f"{coding.precision}: quantised in {quantise:.1f} ms, restored in {restore:.1f} ms (60 wanted)")


def compare(groups: dict[str, Group], turns: int, parameters: int) -> None:
    """Let the groups take turns, and print what a merge takes of the streams, and TLS of a plain merge."""
    turned: dict[str, list[tuple[float, int, float]]] = {kind: [] for kind in groups}
    for turn in range(turns + 1):
        for kind, group in groups.items():
            turned[kind].append(group.turn())
        if turn:  # the first warms buffers up
            told = (f"{kind} {found[-1][0]:.3f} s ({found[-1][2]:.3f})" for kind, found in turned.items())
            print(f"turn {turn}, and processor seconds: " + ", ".join(told), flush=True)

    def ratio(kind: str, base: str, column: int) -> float:
        pairs = zip(turned[kind][1:], turned[base][1:], strict=True)
        return statistics.median(one[column] / other[column] for one, other in pairs)

    def peak(kind: str) -> float:
        return max(found[1] for found in turned[kind]) / (4 * parameters)

    nodes = len(groups["ours"].pipes)
    print(
        f"merge / bare streams: median {ratio('ours', 'bare', 0):.2f}, processor seconds "
        f"{ratio('ours', 'bare', 2):.2f} ({nodes} processes, {parameters:,} parameters, "
        f"{8 * (nodes - 1) * parameters / 1e6:,.0f} MB in all; at most {WANTED:g} wanted)\n"
        f"peak memory above the vector itself: {peak('ours'):.2f} |W| (at most 2.5 wanted)"
    )
    if "bare-tls" in groups:
        print(
            f"bare streams over TLS / bare streams: median {ratio('bare-tls', 'bare', 0):.2f}, processor seconds "
            f"{ratio('bare-tls', 'bare', 2):.2f}"
        )
    for kind, (name, wanted) in COMPARED.items():
        if kind in groups:
            print(
                f"{name} / plain merge: median {ratio(kind, 'ours', 0):.2f}, processor seconds "
                f"{ratio(kind, 'ours', 2):.2f} (at most {wanted:g} wanted); {peak(kind):.2f} |W|"
            )
        if kind + SLOW in groups:
            plain = statistics.median(found[0] for found in turned["ours" + SLOW][1:])
            print(
                f"{name} / plain merge, over slow links: median {ratio(kind + SLOW, 'ours' + SLOW, 0):.2f} of "
                f"{plain:.2f} s, processor seconds {ratio(kind + SLOW, 'ours' + SLOW, 2):.2f} (at most {wanted:g} "
                "wanted)"
            )
    used = statistics.median(found[2] for found in turned["ours"][1:]) / nodes
    share = checksum_seconds(parameters, nodes) / used
    print(f"checksums: {100 * share:.1f} % of the {1000 * used:.0f} ms of a plain merge (at most 3 wanted)")


def checksum_seconds(parameters: int, nodes: int) -> float:
    """Processor seconds of one node for the checksums of a merge: of all runs that it gets, of those that it sends, and
    of its mean once."""
    share = slice(0, parameters // nodes)
    data = [bytes(np.random.default_rng(0).bytes(4 * (run.stop - run.start))) for run in runs(share)]
    seconds = []
    for _ in range(3 * (nodes - 1) + 1):
        started = time.process_time()
        for part, run in enumerate(data):
            checksum(1, Stage.SCATTER, part, run)
        seconds.append(time.process_time() - started)
    return statistics.median(seconds) * len(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--parameters", type=int, default=5_839_360)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tls", action="store_true", help="also merge over TLS")
    parser.add_argument("--robust", action="store_true", help="also merge with the default of --robust-merge")
    parser.add_argument("--int8", action="store_true", help="also merge in int8")
    parser.add_argument("--link", help="also do each kind of merge over such links, as 100mbit,20ms")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        homes = Path(folder)
        for name in ranked_names(arguments.nodes):
            make_identity(homes / name)
        chosen = [kind for kind in COMPARED if getattr(arguments, kind)]
        kinds = ["bare", "ours", *chosen, *["bare-tls"] * arguments.tls]
        groups = {kind: Group(kind, arguments.nodes, arguments.parameters, homes) for kind in kinds}
        if arguments.link:
            link = links_of(arguments.link, ["node-0"])[0]
            for kind in ("ours", *chosen):
                groups[kind + SLOW] = Group(kind + SLOW, arguments.nodes, arguments.parameters, homes, link)
        compare(groups, arguments.turns, arguments.parameters)
        for group in groups.values():
            group.end()
    coding_times(arguments.parameters)


if __name__ == "__main__":
    sys.exit(main())
