"""A network in user space: every directed link has an address of its own, behind which bytes can be held, delayed,
slowed down, repeated, put into another order, changed or lost.

Traffic from one node to another has conditions (`Traffic`), whoever dialled. All randomness comes from outside.
"""

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from faults.websocket import Splitter, payload_start

Pair = tuple[str, str]

CHUNK = 16 * 1024
HANDSHAKE = 2  # the first frames of a link, hello and welcome: faults come after them
SWAP_SECONDS = 0.5  # a frame that is held back for the next one does not wait longer


@dataclass
class Traffic:
    """What happens to the bytes from one node to another, and what has happened."""

    held: asyncio.Event = field(default_factory=asyncio.Event)  # set: bytes pass
    refused: bool = False  # no connection is made
    delay: float = 0.0  # seconds for every chunk
    rate: float = 0.0  # bytes a second; 0: no limit
    repeated: int = 0  # frames that are still to be sent twice
    swapped: int = 0  # frames that are still to be sent after the next one
    changed: int = 0  # chunks that are still to be changed
    damaged: int = 0  # frames whose contents are still to be changed
    fired: Counter[str] = field(default_factory=Counter)
    taken: int = 0  # bytes that the sender has sent
    given: int = 0  # bytes that the receiver was given
    connections: int = 0

    def __post_init__(self) -> None:
        self.held.set()


class Pipe:
    """One direction of one connection."""

    def __init__(self, traffic: Traffic, rng: random.Random, framed: bool) -> None:
        self._traffic = traffic
        self._rng = rng
        self._splitter = Splitter() if framed else None
        self._frames = 0
        self._back: bytes | None = None  # a frame that waits for the next one
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the sender ends the connection. Its last bytes are passed on."""
        sending = asyncio.create_task(self._send(writer))
        try:
            while chunk := await self._read(reader):
                self._traffic.taken += len(chunk)
                for piece in self._pieces(chunk):
                    await self._put(piece)
            if self._splitter is not None:
                await self._put(self._released() + self._splitter.rest())
            await self._queue.put((0.0, b""))
            await sending
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        """The next chunk. A frame that waits for it does not wait long."""
        if self._back is None:
            return await reader.read(CHUNK)
        coming = asyncio.create_task(reader.read(CHUNK))
        try:
            await asyncio.wait([coming], timeout=SWAP_SECONDS)
            if not coming.done():
                await self._put(self._released())
            return await coming
        finally:
            coming.cancel()

    def _released(self) -> bytes:
        back, self._back = self._back or b"", None
        return back

    async def _put(self, piece: bytes) -> None:
        if piece:
            traffic = self._traffic
            if traffic.delay:
                traffic.fired["delay"] += 1
            await self._queue.put((asyncio.get_running_loop().time() + traffic.delay, piece))

    def _pieces(self, chunk: bytes) -> list[bytes]:
        traffic = self._traffic
        if traffic.changed and (self._splitter is None or self._frames > HANDSHAKE):
            traffic.changed -= 1
            traffic.fired["corrupt"] += 1
            chunk = self._damage(chunk, 0)
        if self._splitter is None:
            return [chunk]
        found: list[bytes] = []
        for is_message, piece in self._splitter.feed(chunk):
            self._frames += is_message
            found += self._frame(piece) if is_message and self._frames > HANDSHAKE else [piece]
        return found

    def _frame(self, frame: bytes) -> list[bytes]:
        """A message of the nodes: as it is, twice, after the next one, or damaged."""
        traffic = self._traffic
        if traffic.damaged:
            traffic.damaged -= 1
            traffic.fired["corrupt"] += 1
            frame = self._damage(frame, payload_start(frame))
        if self._back is not None:
            traffic.fired["reorder"] += 1
            return [frame, self._released()]
        if traffic.swapped:
            traffic.swapped -= 1
            self._back = frame
            return []
        if traffic.repeated:
            traffic.repeated -= 1
            traffic.fired["duplicate"] += 1
            return [frame, frame]
        return [frame]

    def _damage(self, data: bytes, start: int) -> bytes:
        changed = bytearray(data)
        if len(changed) > start:
            changed[self._rng.randrange(start, len(changed))] ^= 1 << self._rng.randrange(8)
        return bytes(changed)

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        traffic, clock = self._traffic, asyncio.get_running_loop().time
        while True:
            due, piece = await self._queue.get()
            if not piece:
                return
            await asyncio.sleep(max(0.0, due - clock()))
            if not traffic.held.is_set():
                traffic.fired["one-way"] += 1
                await traffic.held.wait()
            if traffic.rate:
                traffic.fired["slow"] += 1
                await asyncio.sleep(min(0.5, len(piece) / traffic.rate))
            writer.write(piece)
            await writer.drain()
            traffic.given += len(piece)


class Proxy:
    """The network between some nodes. `targets`: where each really listens."""

    def __init__(self, targets: Mapping[str, tuple[str, int]], rng: random.Random, framed: bool) -> None:
        """`framed`: links are plain, so that frames can be told apart."""
        self._targets = targets
        self._rng = rng
        self.framed = framed
        self._servers: dict[Pair, asyncio.Server] = {}
        self._open: dict[Pair, set[asyncio.Task[None]]] = {}  # by dialler and listener
        self.traffic: dict[Pair, Traffic] = {(a, b): Traffic() for a in targets for b in targets if a != b}

    async def start(self) -> None:
        for pair in self.traffic:
            self._open[pair] = set()
            server = await asyncio.start_server(lambda r, w, pair=pair: self._accept(pair, r, w), "127.0.0.1", 0)
            self._servers[pair] = server

    def address(self, dialler: str, listener: str) -> str:
        host, port = self._servers[dialler, listener].sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    def _accept(self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(pair, reader, writer))
        self._open[pair].add(task)
        task.add_done_callback(self._open[pair].discard)

    async def _carry(self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = self.traffic[pair], self.traffic[pair[1], pair[0]]
        writers = [writer]
        try:
            if there.refused:
                return
            await there.held.wait()  # what a one-way cut holds back is the first packet too
            far_reader, far_writer = await asyncio.open_connection(*self._targets[pair[1]])
            writers.append(far_writer)
            for traffic in (there, back):
                traffic.connections += 1
            ends = [
                asyncio.create_task(Pipe(there, self._rng, self.framed).run(reader, far_writer)),
                asyncio.create_task(Pipe(back, self._rng, self.framed).run(far_reader, writer)),
            ]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
        except OSError:
            return
        finally:
            for one in writers:
                with contextlib.suppress(OSError):
                    one.close()

    # --- faults

    def cut(self, one: str, other: str) -> None:
        """End the link between two nodes, and let nobody make it again."""
        for pair in ((one, other), (other, one)):
            traffic = self.traffic[pair]
            traffic.refused = True
            for task in list(self._open[pair]):
                traffic.fired["cut"] += 1
                task.cancel()

    def mend(self) -> None:
        """All faults of the network end. Bytes that were held pass."""
        for traffic in self.traffic.values():
            traffic.refused, traffic.delay, traffic.rate = False, 0.0, 0.0
            traffic.repeated = traffic.swapped = traffic.changed = traffic.damaged = 0
            traffic.held.set()

    def fired(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for traffic in self.traffic.values():
            total += traffic.fired
        return total

    async def close(self) -> None:
        for server in self._servers.values():
            server.close()
        tasks = [task for open_ones in self._open.values() for task in open_ones]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def listener() -> socket.socket:
    """A socket that listens on a free port."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", 0))
    found.listen(64)
    return found


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection so that the other side hears of an error, not of an end."""
    found = writer.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
