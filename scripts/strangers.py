"""What somebody who is no member can cost a node: memory, and time of its rounds.

Another process opens connections to a node, of one kind after the other: 500 at once, up to 2,000 new ones a second.
Wanted: at most 32 MB more memory, and rounds at most 25 % slower. Two figures for the rounds:

- by processor time: a node that waits for a peer, and so does nothing else, is visited. The processor time that it uses
  for each connection, times the connections that it accepts in a second, is the share of a core that strangers can take
  from a round. This figure decides: on a busy machine strangers get less done, and this is not counted in their favour.
- by the clock: rounds of a node without peers, whose rounds are its own work only. Windows with and without strangers
  take turns, and medians are compared. Of use on a quiet machine with two cores or more.

    python scripts/strangers.py [--seconds 4] [--turns 3] [--sockets 500] [--rate 2000] [--kinds slow,bodies]

With --tls the node has links by keys, and strangers speak TLS without a certificate; one kind shows a foreign key, one
speaks plain text. By processor time only. Wanted: rounds at most 10 % slower.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import signal
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from p2p_tally.node.links.doorway import RATE, TLS_RATE
from p2p_tally.trust.certificates import asking
from p2p_tally.trust.identity import make_identity

MOST_MEGABYTES = 32.0
MOST_RATIO = 1.25
MOST_RATIO_TLS = 1.10
SAMPLE_SECONDS = 0.2
SETTLE_SECONDS = 1.0  # after strangers come or go, before a window begins
TICKS = os.sysconf("SC_CLK_TCK")

REQUEST = b"GET /p2p-tally HTTP/1.1\r\nHost: x\r\n"
UPGRADE = REQUEST + (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
BODY = b"POST /p2p-tally HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
NO_HELLO = b"\x82\x84" + bytes(4) + b"nope"  # a masked WebSocket frame that is no hello


# --- the strangers: each function is one connection, from when it is open until the node ends it

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def slow(stream: Stream) -> None:
    """A byte of a header at a time."""
    reader, writer = stream
    writer.write(REQUEST + b"X: ")
    while not reader.at_eof() and not writer.is_closing():
        writer.write(b"x")
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(100), 0.1)


async def half_open(stream: Stream) -> None:
    """Connects and says nothing."""
    await stream[0].read()


async def headers(stream: Stream) -> None:
    """Header lines without end."""
    stream[1].write(REQUEST)
    while True:
        stream[1].write((b"X-A: " + b"a" * 200 + b"\r\n") * 40)
        await stream[1].drain()
        await asyncio.sleep(0)  # others have their turn, also while nothing has to be waited for


async def bodies(stream: Stream) -> None:
    """A body without end."""
    stream[1].write(BODY)
    while True:
        stream[1].write(bytes(16384))
        await stream[1].drain()
        await asyncio.sleep(0)


async def reconnects(stream: Stream) -> None:
    """Connects, and resets the connection at once."""
    found = stream[1].get_extra_info("socket")
    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def requests(stream: Stream) -> None:
    """Asks for a page, and reads the answer."""
    stream[1].write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    await stream[0].read()


async def handshakes(stream: Stream) -> None:
    """Asks for a WebSocket as a node does, and sends something else than a hello."""
    stream[1].write(UPGRADE + NO_HELLO)
    await stream[0].read()


async def foreign_key(stream: Stream) -> None:
    """Shows a certificate that the node does not know."""
    stream[1].write(UPGRADE + NO_HELLO)
    await stream[0].read()


async def plain_text(stream: Stream) -> None:
    """Asks for a WebSocket without TLS."""
    stream[1].write(UPGRADE + NO_HELLO)
    await stream[0].read()


def context_of(kind: str) -> ssl.SSLContext | None:
    if kind == plain_text.__name__:
        return None
    context = asking()
    if kind == foreign_key.__name__:
        with tempfile.TemporaryDirectory() as home:
            context.load_cert_chain(make_identity(Path(home)).file)
    return context


TLS_KINDS = (foreign_key, plain_text)
KINDS: dict[str, Callable[[Stream], Awaitable[None]]] = {
    kind.__name__: kind for kind in (slow, half_open, headers, bodies, reconnects, requests, handshakes, *TLS_KINDS)
}


async def attack(kind: str, port: int, sockets: int, rate: float, context: ssl.SSLContext | None) -> None:
    """Keep so many sockets busy, with at most so many new connections a second. Writes the number of connections so
    far to standard output, a line for each line on standard input."""
    made, due = 0, time.monotonic()

    async def one() -> None:
        nonlocal made, due
        while True:
            due = max(due + 1 / rate, time.monotonic() - 0.1)
            await asyncio.sleep(due - time.monotonic())
            try:
                stream = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                made += 1
                try:
                    await KINDS[kind](stream)
                finally:
                    stream[1].transport.abort()
            except (OSError, asyncio.IncompleteReadError):
                continue

    def answer() -> None:
        if not sys.stdin.readline():
            os._exit(0)
        print(made, flush=True)

    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), answer)
    await asyncio.gather(*(one() for _ in range(sockets)))


# --- the node


@dataclass(frozen=True)
class Window:
    """What a node did in some seconds."""

    seconds: float
    used: float  # seconds of processor time
    rounds: int
    megabytes: float  # the most resident memory


class Node:
    """A node as a process. Without `peer` it plays alone; with one, which never comes, it waits."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir()
        self.port, admin = free_port(), free_port()
        self._status = f"http://127.0.0.1:{admin}/status"
        command = [sys.executable, "-m", "p2p_tally", "node", f"--listen=127.0.0.1:{self.port}"]
        command += [f"--admin=127.0.0.1:{admin}", f"--out={folder}", "--rounds=1000000", "--eval-every=1000000"]
        command += ["--checkpoint-every=0", "--warmup=0", "--merge-every=0", *options]
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self._log)
        while self.round() is None:
            if self._process.poll() is not None:
                raise SystemExit((folder / "log").read_text())
            time.sleep(0.1)

    def round(self) -> int | None:
        """The last round finished; None before the node answers."""
        try:
            with urllib.request.urlopen(self._status, timeout=60) as answer:
                return int(json.load(answer)["round"])
        except OSError:
            return None

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def megabytes(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6

    def watch(self, seconds: float) -> Window:
        started, round, used, most = time.perf_counter(), self.round() or 0, self._cpu(), self.megabytes()
        while time.perf_counter() < started + seconds:
            time.sleep(SAMPLE_SECONDS)
            most = max(most, self.megabytes())
        rounds, cpu = (self.round() or 0) - round, self._cpu() - used
        return Window(time.perf_counter() - started, cpu, rounds, most)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def strangers(kind: str, node: Node, arguments: argparse.Namespace) -> Iterator[Callable[[], int]]:
    """Strangers of a kind at work. Gives a function that counts their connections."""
    command = [sys.executable, __file__, "--attack", kind, str(node.port), f"--sockets={arguments.sockets}"]
    command += [f"--rate={arguments.rate}", *(["--tls"] if arguments.tls else [])]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    said, heard = process.stdin, process.stdout

    def count() -> int:
        said.write("\n")
        said.flush()
        return int(heard.readline())

    try:
        count()  # it has begun
        yield count
    finally:
        process.kill()
        process.wait()


def cost(kind: str, idle: Node, arguments: argparse.Namespace) -> tuple[float, float, float]:
    """Megabytes more, the processor time of a connection, and connections a second, at a node that only waits."""
    before = idle.megabytes()
    with strangers(kind, idle, arguments) as count:
        time.sleep(SETTLE_SECONDS)
        first = count()
        window = idle.watch(arguments.seconds * arguments.turns)
        made = count() - first
    if made == 0:  # a node that ends no connection would look cheap
        raise SystemExit(
            f"{kind}: no new connection in {window.seconds:.0f} s: the node does not end those that it has"
        )
    return window.megabytes - before, window.used / made, made / window.seconds


def slowdown(kind: str, player: Node, arguments: argparse.Namespace) -> float:
    """How much longer rounds take by the clock."""
    quiet, busy = [], []
    for _ in range(arguments.turns):
        quiet.append(player.watch(arguments.seconds))
        with strangers(kind, player, arguments):
            time.sleep(SETTLE_SECONDS)
            busy.append(player.watch(arguments.seconds))
        time.sleep(SETTLE_SECONDS)
    without, with_strangers = (
        statistics.median(window.seconds / max(1, window.rounds) for window in windows) for windows in (quiet, busy)
    )
    return with_strangers / without


def compare(kind: str, idle: Node, player: Node | None, arguments: argparse.Namespace) -> bool:
    """Measure one kind of strangers. Prints a line; returns whether it is within what is wanted."""
    memory, seconds, rate = cost(kind, idle, arguments)
    most_rate, most_ratio = (TLS_RATE, MOST_RATIO_TLS) if arguments.tls else (RATE, MOST_RATIO)
    share = seconds * max(rate, min(arguments.rate, most_rate))
    ratio = 1 / (1 - share) if share < 1 else math.inf
    clock = "" if player is None else f"; by the clock x {slowdown(kind, player, arguments):4.2f}"
    good = memory <= MOST_MEGABYTES and ratio <= most_ratio
    print(
        f"{kind:10} {memory:+6.1f} MB; {seconds * 1e6:5.0f} us a connection, so rounds x {ratio:4.2f} "
        f"({rate:.0f} connections/s came){clock}{'' if good else '   MORE THAN WANTED'}",
        flush=True,
    )
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--sockets", type=int, default=500)
    parser.add_argument("--rate", type=float, default=2000.0)
    parser.add_argument("--kinds", default="")
    parser.add_argument("--tls", action="store_true", help="links by keys")
    parser.add_argument("--no-clock", action="store_true", help="processor time only")
    parser.add_argument("--attack", nargs=2, metavar=("KIND", "PORT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        kind, port = arguments.attack
        context = context_of(kind) if arguments.tls else None
        asyncio.run(attack(kind, int(port), arguments.sockets, arguments.rate, context))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the nodes are ended too
    good = True
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as nodes:
        peer, options = f"127.0.0.1:{free_port()}", []
        if arguments.tls:
            keys = [make_identity(Path(folder) / name) for name in ("own", "peer")]
            peer, options = f"z={peer}#{keys[1].fingerprint}", [f"--home={keys[0].file.parent}", "--name=a"]
        idle = Node(Path(folder) / "idle", f"--peers={peer}", *options)
        nodes.callback(idle.end)
        player = None
        if not arguments.no_clock and not arguments.tls:
            player = Node(Path(folder) / "player")
            nodes.callback(player.end)
        of_tls = {kind.__name__ for kind in TLS_KINDS}
        default = [kind for kind in KINDS if arguments.tls or kind not in of_tls]
        for kind in arguments.kinds.split(",") if arguments.kinds else default:
            good = compare(kind, idle, player, arguments) and good
    print("within what is wanted" if good else "more than wanted")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
