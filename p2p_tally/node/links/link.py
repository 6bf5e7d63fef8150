"""One neighbour: a bounded outgoing queue over a WebSocket, and the loop that reads what comes in.

A link exists once both sides have said hello, so it knows its peer's name. A neighbour that does not read slows only
itself: its queue fills, and at the cap the link is dropped.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable

from aiohttp import ClientWebSocketResponse, WSCloseCode, WSMsgType
from aiohttp.web import WebSocketResponse

from p2p_tally.ids import NodeName
from p2p_tally.node.links.sockets import Meter, cut
from p2p_tally.protocol.messages import Hello

log = logging.getLogger(__name__)

Connection = ClientWebSocketResponse | WebSocketResponse

# Backoff between attempts to reach a peer: from the first to the last, each up to twice the one before.
FIRST_DELAY = 0.1
LAST_DELAY = 5.0
# A peer of another federation will not change its mind soon.
REFUSED_DELAY = 30.0

# Bytes that may wait for a neighbour: below the first there is room for the next run of parameters; at the second
# the neighbour has stopped reading.
ROOM = 1 << 20
CAP = 16 << 20


# WebSocket close code of a link that is not needed for now; the range 4000 to 4999 is for applications.
IDLE = 4002


def backoff(attempt: int, generator: random.Random) -> float:
    """Seconds before attempt number `attempt` (from 0): doubling up to a limit, spread so that peers do not collide."""
    longest = min(LAST_DELAY, FIRST_DELAY * 2.0 ** min(attempt, 16))
    return longest * generator.uniform(0.5, 1.0)


class Link:
    """The live channel to one neighbour."""

    def __init__(self, connection: Connection, hello: Hello) -> None:
        self.peer = NodeName(hello.name)
        self.hello = hello
        self.connection = connection
        self.meter = Meter(connection)  # whoever serves the link closes it
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closing = False
        self.idle = False  # it ends, or has ended, because it is not needed for now
        self._writer: asyncio.Task[None] | None = None

    def send(self, frame: bytes) -> bool:
        """Queue a frame. False: the link is ending, or just ended because its queue is full."""
        if self._closing:
            return False
        if self._queued + len(frame) > CAP:
            log.warning("does not read: link dropped", extra={"event": "queue-full", "peer": self.peer})
            self.abort()
            return False
        self._queue.append(frame)
        self._queued += len(frame)
        if self._queued > ROOM:
            self._room.clear()
        self._wake.set()
        return True

    @property
    def queued(self) -> int:
        """Bytes that wait for this neighbour."""
        return self._queued

    async def drained(self) -> None:
        await self._room.wait()

    async def serve(self, deliver: Callable[[NodeName, bytes], bool]) -> None:
        """Carry frames both ways until the link ends, or `deliver` finds that the peer does not keep the protocol."""
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
                except (ConnectionError, RuntimeError):  # the socket has gone; the reader ends the link
                    return
                self._queue.popleft()
                self._queued -= len(frame)
                if self._queued <= ROOM:
                    self._room.set()
            self._wake.clear()
            if self._closing:
                return
            await self._wake.wait()

    async def finish(self, patience: float) -> None:
        """Send what is queued, then close; a peer that does not read is given `patience` seconds."""
        self._closing = True
        self._wake.set()
        if self._writer is not None:
            await asyncio.wait([self._writer], timeout=patience)
        await self.connection.close(code=IDLE if self.idle else WSCloseCode.OK)

    async def retire(self, patience: float) -> None:
        """End in good order, because the link is not needed for now."""
        self.idle = True
        await self.finish(patience)

    def abort(self) -> None:
        """End at once."""
        self._closing = True
        self._room.set()
        cut(self.connection)
