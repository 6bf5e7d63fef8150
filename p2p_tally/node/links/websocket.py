"""Neighbours over the network: one WebSocket link per edge, made again when it breaks.

Of two neighbours the one with the smaller name dials. An accepted connection has five seconds to finish its handshake.
This module knows links and hellos; it knows nothing of rounds.
"""

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

import aiohttp
from aiohttp import web

from p2p_tally.errors import ConfigError, HandshakeError, PeerError
from p2p_tally.ids import NodeName, in_order
from p2p_tally.node.links.addresses import Address, why_unreachable
from p2p_tally.node.links.doorway import Doorway, bind
from p2p_tally.node.links.handshake import HANDSHAKE_SECONDS, refuse, shake_hands
from p2p_tally.node.links.http_log import http_log
from p2p_tally.node.links.link import REFUSED_DELAY, Link, backoff
from p2p_tally.node.links.sockets import KernelCount, watch_for_silence
from p2p_tally.node.links.state import LinkState
from p2p_tally.node.links.strangers import PATH, Stranger, Strangers
from p2p_tally.node.links.transport import Events, dials
from p2p_tally.protocol.frames import HELLO_BYTES, Limits
from p2p_tally.protocol.messages import Hello

log = logging.getLogger(__name__)

# A machine that disappears without closing its connections is noticed after this long.
SILENCE_SECONDS = 30
# When a link is closed: how long to wait until the peer has read what is queued.
CLOSE_SECONDS = 5.0


class WebSocketTransport:
    """One node's links."""

    def __init__(
        self,
        name: NodeName,
        listen: Address,
        peers: Mapping[NodeName, Address],
        hello: Callable[[], Hello],
        limits: Limits,
        generator: random.Random,
        inherited: socket.socket | None = None,
    ) -> None:
        """`hello`: makes the hello that this node sends on a new link. `inherited`: a socket that listens already,
        if another process has chosen the address."""
        self.name = name
        self.listen = listen
        self.hello = hello
        self.links: dict[NodeName, Link] = {}
        self.peers = {peer: LinkState(address) for peer, address in peers.items()}
        self.refusals: dict[str, int] = {}  # handshakes that failed, by reason
        self.inherited = inherited
        self._addresses = peers
        self._limit = max(limits.frame, HELLO_BYTES) + 1  # aiohttp refuses messages of this length and longer
        self._generator = generator
        self._events: Events | None = None
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers = Strangers()
        self._playing = False
        self._doorway: Doorway | None = None
        self._server: web.Server | None = None
        self._session: aiohttp.ClientSession | None = None

    # --- the Transport interface

    async def start(self, events: Events) -> None:
        self._events = events
        self._server = web.Server(self._answer, logger=http_log, access_log=None)
        try:
            sockets = [self.inherited] if self.inherited else await bind(self.listen.host, self.listen.port)
            self._doorway = Doorway(sockets, self._accept)
            self._doorway.open()
        except OSError as error:
            raise ConfigError(f"--listen {self.listen}: {error.strerror or error}") from None
        if self.listen.port == 0:
            self.listen = Address(self.listen.host, self._doorway.port)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, connect=HANDSHAKE_SECONDS))
        for peer in self.peers:
            self._dial_if_wanted(peer)

    def send(self, peer: NodeName, frame: bytes) -> bool:
        link = self.links.get(peer)
        return link is not None and link.send(frame)

    async def drained(self, peer: NodeName) -> None:
        link = self.links.get(peer)
        if link is not None:
            await link.drained()

    def want(self, peers: Collection[NodeName]) -> None:
        """The side that dials makes links and ends them; the other side accepts that."""
        for name, state in self.peers.items():
            if (name in peers) == state.wanted and self._session is not None:
                continue
            state.want(name in peers, linked=name in self.links)
            if name in self.links and not state.wanted and dials(self.name, name):
                self._spawn(self.links[name].retire(CLOSE_SECONDS))
            self._dial_if_wanted(name)

    async def linked(self, peers: Collection[NodeName], seconds: float | None) -> list[NodeName]:
        def opening() -> list[NodeName]:
            return [peer for peer in peers if self.peers[peer].state == "opening"]

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while opening() and not self._closing.is_set():
                    self._changed.clear()
                    await self._changed.wait()
        return opening()

    def received(self, peer: NodeName) -> int | None:
        link = self.links.get(peer)
        count = None if link is None else link.meter.count()
        return None if count is None else count.received

    def open_links(self) -> list[NodeName]:
        return in_order(self.links)

    async def close(self) -> None:
        self._closing.set()
        self._changed.set()
        if self._doorway is not None:
            self._doorway.close()
        await asyncio.gather(*(link.finish(CLOSE_SECONDS) for link in list(self.links.values())))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        if self._server is not None:
            await self._server.shutdown(1.0)

    # --- before the first round

    def not_up(self) -> set[NodeName]:
        """Neighbours whose links are needed and not up."""
        return {name for name, peer in self.peers.items() if peer.state not in ("up", "idle")}

    def needed(self) -> int:
        """The number of neighbours whose links are needed, up or not."""
        return sum(peer.state != "idle" for peer in self.peers.values())

    def hellos(self) -> list[Hello]:
        """The hellos of the neighbours with an open link."""
        return [link.hello for link in self.links.values()]

    async def change(self, until: float) -> None:
        """Wait until a link has changed, `notify_change` is called, or this time is reached."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._changed.wait()

    def notify_change(self) -> None:
        """End the wait in `change`: something else has changed."""
        self._changed.set()

    def play(self) -> None:
        """Rounds begin: from now on `link_down` is also called for links that cannot be made."""
        self._playing = True

    @property
    def closing(self) -> bool:
        return self._closing.is_set()

    def stop_waiting(self) -> None:
        """This node leaves: make no more links."""
        self._closing.set()
        self._changed.set()

    def kernel_total(self) -> KernelCount:
        """The kernel's count over all links, including ended ones."""
        total = KernelCount()
        for name, peer in self.peers.items():
            live = self.links[name].meter.count() if name in self.links else None
            total += peer.kernel + (live or KernelCount())
        return total

    # --- dialling

    def _dial_if_wanted(self, peer: NodeName) -> None:
        state = self.peers[peer]
        if self._session is not None and state.wanted and not state.dialling and dials(self.name, peer):
            state.start_dialling()
            self._spawn(self._keep_dialling(peer))

    async def _keep_dialling(self, peer: NodeName) -> None:
        state = self.peers[peer]
        while not self._closing.is_set() and state.wanted:
            delay = None
            state.watch_wanted()
            try:
                await self._dial(peer, state.address)
            except HandshakeError as error:
                delay = REFUSED_DELAY
                self._refused(peer, error)
            except PeerError as error:
                self._refused(peer, error)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                state.unreachable(why_unreachable(error))
            if state.state != "idle" and not state.wanted_changed.is_set():
                delay = backoff(state.attempts, self._generator) if delay is None else delay
                self._not_there(peer, state)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await state.wanted_changed.wait()
        state.stop_dialling()

    def _not_there(self, peer: NodeName, state: LinkState) -> None:
        """An attempt has failed. If rounds have begun, the node is told, so that it does not wait for this peer."""
        if state.attempt_failed() and self._playing and self._events is not None:
            self._events.link_down(peer)
        self._changed.set()

    async def _dial(self, peer: NodeName, address: Address) -> None:
        assert self._session is not None
        connection = await self._session.ws_connect(
            f"http://{address}{PATH}", max_msg_size=self._limit, autoclose=False
        )
        try:
            link = await shake_hands(connection, self.hello(), self._addresses, dialled=peer)
        except BaseException as error:
            await refuse(connection, error)
            raise
        await self._serve(link)

    # --- answering

    def _accept(self) -> Stranger:
        """A protocol for a new connection."""
        assert self._server is not None
        return Stranger(self._server, self._strangers)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = web.WebSocketResponse(max_msg_size=self._limit, compress=False, autoclose=False)
        if "Origin" in request.headers:  # a page in somebody's browser; no node sends it
            self._refused(None, HandshakeError("a page in a browser", reason="origin"))
            return web.Response(status=403, text="p2p-tally node: not for browsers\n")
        if not connection.can_prepare(request).ok:
            return web.Response(status=404, text="p2p-tally node\n")
        await connection.prepare(request)
        try:
            link = await self._shake_hands(connection)
        except (OSError, TimeoutError, asyncio.CancelledError):
            return connection
        if link is None:
            return connection
        self._strangers.identified(request.protocol)
        await self._serve(link)
        return connection

    async def _shake_hands(self, connection: web.WebSocketResponse) -> Link | None:
        """The link; None if the handshake was refused."""
        try:
            return await shake_hands(connection, self.hello(), self._addresses, dialled=None)
        except PeerError as error:
            # A copy: the frames that raised this one hold 100 kB of buffers, for as long as the stranger does not
            # answer the refusal.
            refusal = PeerError(str(error), reason=error.reason)
        self._refused(None, refusal)
        await refuse(connection, refusal)
        return None

    # --- for both sides

    async def _serve(self, link: Link) -> None:
        """Serve a link until it ends."""
        assert self._events is not None
        state = self.peers[link.peer]
        old = self.links.get(link.peer)
        if old is not None:  # the peer has connected again before the end of its old connection was noticed
            old.abort()
            if not old.idle:
                self._events.link_down(link.peer)
        self.links[link.peer] = link
        state.up()
        watch_for_silence(link.connection, SILENCE_SECONDS)
        log.info("link up", extra={"event": "link-up", "peer": link.peer})
        self._events.link_up(link.peer, link.hello)
        self._changed.set()
        try:
            await link.serve(self._events.deliver)
        finally:
            state.carried(link.meter.count() or KernelCount())
            link.meter.close()
            if self.links.get(link.peer) is link:
                del self.links[link.peer]
                state.ended(idle=link.idle)
                if link.idle:
                    log.debug("link idle", extra={"event": "link-idle", "peer": link.peer})
                else:
                    log.info("link down", extra={"event": "link-down", "peer": link.peer})
                    self._events.link_down(link.peer)
                self._changed.set()

    def _refused(self, peer: NodeName | None, error: PeerError) -> None:
        self.refusals[error.reason] = self.refusals.get(error.reason, 0) + 1
        log.warning("refused: %s", error, extra={"event": "handshake-refused", "peer": peer, "reason": error.reason})
        if peer is not None:
            self.peers[peer].refused(str(error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
