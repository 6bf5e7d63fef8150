"""Accepts connections, at most so many a second.

What a connection costs before its handshake is done, times this rate, is all that strangers can take from a node's
rounds. Further connections wait in the kernel's queue, where they cost the node nothing. When that is full, the kernel
drops them; an honest peer dials again. Links that are up are not affected.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable

from p2p_tally.node.links import handshake

log = logging.getLogger(__name__)

# New connections a second, and how many may come at once after a quiet time: all neighbours may dial in one moment.
RATE = 250.0
BURST = 256
# The same with TLS, whose handshake costs one to two milliseconds.
TLS_RATE = 30.0
# How many connections the kernel keeps until they are accepted.
BACKLOG = 256
# If no connection can be accepted because too many files are open: when to try again.
RETRY_SECONDS = 1.0


class Allowance:
    """How many connections may be accepted now. The caller passes in the time."""

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = float(burst)
        self._since = now

    def take(self, now: float) -> bool:
        """Use up one connection. False if there is none left."""
        self._left = min(self._burst, self._left + (now - self._since) * self._rate)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def wait(self, most: int) -> float:
        """Seconds until there are so many connections again."""
        return max(0.0, most - self._left) / self._rate


class Doorway:
    """The listening sockets of one node."""

    def __init__(
        self,
        sockets: list[socket.socket],
        make_protocol: Callable[[socket.socket], asyncio.BaseProtocol],
        accepting: Callable[[], ssl.SSLContext] | None = None,
        not_entered: Callable[[asyncio.BaseProtocol, OSError], None] = lambda *_: None,
    ) -> None:
        """`accepting`: the TLS context of the next connection; None: connections are plain. `not_entered` is called
        for each that ends before its protocol has been told of it."""
        self._sockets = sockets
        self._make_protocol = make_protocol
        self._accepting = accepting
        self._not_entered = not_entered
        self._loop = asyncio.get_running_loop()
        self._allowance = Allowance(RATE if accepting is None else TLS_RATE, BURST, self._loop.time())
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    def open(self) -> None:
        for listener in self._sockets:
            listener.setblocking(False)
            listener.listen(BACKLOG)
        self._watch()

    def close(self) -> None:
        self._pause()
        for task in self._tasks:
            task.cancel()
        for listener in self._sockets:
            listener.close()

    def _watch(self) -> None:
        self._timer = None
        for listener in self._sockets:
            self._loop.add_reader(listener, self._accept, listener)

    def _pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for listener in self._sockets:
            if listener.fileno() >= 0:
                self._loop.remove_reader(listener)

    def _accept(self, listener: socket.socket) -> None:
        """A connection waits. Accept one at a time: what peers send is read in between."""
        if not self._allowance.take(self._loop.time()):
            # Not one by one: waking up costs time too.
            self._rest(self._allowance.wait(BURST // 16))
            return
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no file left
            log.warning("no connection accepted: %s", error.strerror, extra={"event": "stranger", "reason": "files"})
            self._rest(RETRY_SECONDS)
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._hand_over(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _rest(self, seconds: float) -> None:
        self._pause()
        self._timer = self._loop.call_later(seconds, self._watch)

    async def _hand_over(self, connection: socket.socket) -> None:
        protocol = self._make_protocol(connection)
        try:
            if self._accepting is None:
                await self._loop.connect_accepted_socket(lambda: protocol, connection)
            else:
                await self._loop.connect_accepted_socket(
                    lambda: protocol,
                    connection,
                    ssl=self._accepting(),
                    ssl_handshake_timeout=handshake.HANDSHAKE_SECONDS,
                )
        except OSError as error:  # it has ended already, or its TLS handshake has failed
            connection.close()
            self._not_entered(protocol, error)
        except asyncio.CancelledError:  # this node ends
            connection.close()
            raise


async def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets at an address that may stand for several, such as localhost. They do not listen yet."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    try:
        return [socket.socket(fileno=os.dup(bound.fileno())) for bound in server.sockets]
    finally:
        server.close()
