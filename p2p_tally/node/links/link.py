"""The link to one neighbour: a bounded outgoing queue over a WebSocket, and the loop that reads incoming messages.

A link is made after the handshake, so it knows its peer's name. A neighbour that does not read delays only itself: its
queue fills up, and at the limit the link is ended.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable

from aiohttp import WSCloseCode, WSMsgType

from p2p_tally.ids import NodeName
from p2p_tally.node.links.frame_socket import FrameSocket
from p2p_tally.node.links.security import key_shown
from p2p_tally.node.links.sockets import Meter, cut
from p2p_tally.node.links.tunnel import Tunnel
from p2p_tally.protocol.messages import Hello

log = logging.getLogger(__name__)

Connection = FrameSocket | Tunnel

# Delays between attempts to reach a peer: they double from the first to the last.
FIRST_DELAY = 0.1
LAST_DELAY = 5.0
# After a refusal: the peer is of another federation, which will not change soon.
REFUSED_DELAY = 30.0

# Bytes that may be queued for a neighbour. Up to the first the next run of parameters may be queued; at the second the
# neighbour is taken to have stopped reading.
ROOM = 1 << 20
CAP = 16 << 20


# WebSocket close code of a link that is not needed now; 4000 to 4999 are for applications.
IDLE = 4002


def backoff(attempt: int, generator: random.Random) -> float:
    """Seconds before attempt number `attempt` (from 0): doubled up to a limit, and random to avoid collisions."""
    longest = min(LAST_DELAY, FIRST_DELAY * 2.0 ** min(attempt, 16))
    return longest * generator.uniform(0.5, 1.0)


class Link:
    """The open link to one neighbour."""

    def __init__(self, connection: Connection, hello: Hello, *, dialled: bool) -> None:
        """`dialled`: by this node. It then masks what it sends, as a WebSocket client."""
        self.peer = NodeName(hello.name)
        self.dialled = dialled
        self.hello = hello
        self.connection = connection
        self.key = key_shown(connection)  # None: it is plain
        self.meter = Meter(connection)  # the code that serves the link closes it
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closing = False
        self._expelled = False
        self.idle = False  # it ends, or has ended, because it is not needed now
        self._writer: asyncio.Task[None] | None = None

    def send(self, frame: bytes) -> bool:
        """Queue a frame. False: the link is ending, or was ended now because its queue is full."""
        if self._closing:
            return False
        if self._queued + len(frame) > CAP:
            log.warning("does not read: link dropped", extra={"event": "queue-full", "peer": self.peer})
            self.abort()
            return False
        if not self._queue and self.connection.write_now(frame):
            return True
        self._queue.append(frame)
        self._queued += len(frame)
        if self._queued > ROOM:
            self._room.clear()
        self._wake.set()
        return True

    @property
    def direct(self) -> bool:
        """Whether it has a connection of its own; otherwise another node carries it."""
        return not isinstance(self.connection, Tunnel)

    @property
    def queued(self) -> int:
        """Bytes in the queue for this neighbour."""
        return self._queued

    async def drained(self) -> None:
        await self._room.wait()

    async def serve(self, deliver: Callable[[NodeName, bytes], bool]) -> None:
        """Send and receive frames until the link ends, or `deliver` says that the peer broke the protocol."""
        self._writer = asyncio.create_task(self._write())
        try:
            await self._read(deliver)
        finally:
            self._closing = True
            self._room.set()
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
            await self.connection.close()

    async def _read(self, deliver: Callable[[NodeName, bytes], bool]) -> None:
        while True:
            message = await self.connection.receive()
            if self._expelled:
                return
            if message.type is WSMsgType.BINARY:
                if not deliver(self.peer, message.data):
                    await self.connection.close(code=WSCloseCode.PROTOCOL_ERROR)
                    return
            elif message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED):
                self.idle = self.idle or (message.type is WSMsgType.CLOSE and message.data == IDLE)
                return
            else:  # text, or an error such as a frame past the limit
                log.warning(
                    "protocol error: %s", message.data or message.type.name,
                    extra={"event": "protocol-error", "peer": self.peer},
                )  # fmt: skip
                await self.connection.close(code=WSCloseCode.PROTOCOL_ERROR)
                return

    async def _write(self) -> None:
        while True:
            while self._queue:
                frame = self._queue[0]
                try:
                    await self.connection.send_bytes(frame)
                except (ConnectionError, RuntimeError):  # the socket is closed; the reader ends the link
                    return
                self._queue.popleft()
                self._queued -= len(frame)
                if self._queued <= ROOM:
                    self._room.set()
            self._wake.clear()
            if self._closing:
                return
            await self._wake.wait()

    async def finish(self, seconds: float) -> None:
        """Send what is queued, then close. A peer that does not read delays this by at most so many seconds."""
        self._closing = True
        self._wake.set()
        if self._writer is not None:
            await asyncio.wait([self._writer], timeout=seconds)
        await self.connection.close(code=IDLE if self.idle else WSCloseCode.OK)

    async def retire(self, seconds: float) -> None:
        """End the link, after sending what is queued, because it is not needed now."""
        self.idle = True
        await self.finish(seconds)

    def abort(self) -> None:
        """End at once."""
        self._closing = True
        self._room.set()
        if isinstance(self.connection, Tunnel):
            self.connection.abort()
        else:
            cut(self.connection)

    def expel(self) -> None:
        """End at once, and take nothing of what has come and is not read yet."""
        self._expelled = True
        self.abort()
