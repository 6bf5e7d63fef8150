"""Neighbours over the network: one WebSocket link per edge, made again when it breaks.

Of two neighbours the one with the smaller name dials. From accepting a socket to a finished handshake a stranger has
five seconds. Knows links and hellos; knows nothing of rounds.
"""

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from p2p_tally.errors import ConfigError, HandshakeError, PeerError
from p2p_tally.ids import NodeName, in_order
from p2p_tally.node.links.addresses import Address, why_unreachable
from p2p_tally.node.links.link import LAST_DELAY, REFUSED_DELAY, Connection, Link, backoff
from p2p_tally.node.links.sockets import KernelCount, watch_for_silence
from p2p_tally.node.links.transport import Events, dials
from p2p_tally.protocol import frames
from p2p_tally.protocol.frames import HELLO_BYTES, Limits
from p2p_tally.protocol.handshake import are_playing, check_hello
from p2p_tally.protocol.messages import Hello, Welcome
from p2p_tally.protocol.rollcall import RollCall

log = logging.getLogger(__name__)

PATH = "/p2p-tally"
HANDSHAKE_SECONDS = 5.0
# Sockets of strangers that may be open at once, besides the neighbours'.
STRANGERS = 64
# A machine that vanishes without a word is noticed after this long.
SILENCE_SECONDS = 30
# What a peer that stops reading is given when this node leaves.
FAREWELL_SECONDS = 5.0
# WebSocket close code of a refusal; the range 4000 to 4999 is for applications.
REFUSED = 4001


# Of the link to a peer: idle is not needed now, opening is on its way, refused is by the handshake.
STATES = ("idle", "opening", "up", "down", "refused")


@dataclass
class PeerState:
    """What is known of one neighbour's link."""

    address: Address
    state: str = "down"
    detail: str = ""
    attempts: int = 0
    wanted: bool = True
    dialling: bool = False  # somebody is at it
    met: bool = False  # there has been a link
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # whether it is wanted
    kernel: KernelCount = field(default_factory=KernelCount)  # of links that have ended


class WebSocketTransport:
    """One node's links."""

    def __init__(
        self,
        name: NodeName,
        listen: Address,
        peers: Mapping[NodeName, Address],
        hello: Callable[[], Hello],
        generator: random.Random,
        inherited: socket.socket | None = None,
    ) -> None:
        """`inherited`: a socket that listens already, where another process has chosen the address."""
        self.name = name
        self.listen = listen
        self.hello = hello
        self.links: dict[NodeName, Link] = {}
        self.peers = {peer: PeerState(address) for peer, address in peers.items()}
        self.refusals: dict[str, int] = {}  # handshakes that failed, by reason
        self.absent: set[NodeName] = set()  # will not come: somebody who knows has said so
        self._limit = HELLO_BYTES + 1  # aiohttp refuses messages of this length and longer
        self._generator = generator
        self._inherited = inherited
        self._events: Events | None = None
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[web.RequestHandler, None] = {}  # the oldest first
        self._playing = False
        self._listener: asyncio.Server | None = None
        self._server: web.Server | None = None
        self._session: aiohttp.ClientSession | None = None

    def limit_to(self, limits: Limits) -> None:
        """The longest message that is read at all; to be said before `start`."""
        self._limit = max(limits.frame, HELLO_BYTES) + 1

    # --- the Transport interface

    async def start(self, events: Events) -> None:
        self._events = events
        loop = asyncio.get_running_loop()
        self._server = web.Server(self._answer)
        try:
            if self._inherited is not None:
                self._listener = await loop.create_server(self._accept, sock=self._inherited)
            else:
                self._listener = await loop.create_server(self._accept, self.listen.host, self.listen.port)
        except OSError as error:
            raise ConfigError(f"--listen {self.listen}: {error.strerror or error}") from None
        if self.listen.port == 0:
            self.listen = Address(self.listen.host, self._listener.sockets[0].getsockname()[1])
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
        """The side that dials makes links and ends them; the other follows."""
        for name, state in self.peers.items():
            if (name in peers) == state.wanted and self._session is not None:
                continue
            state.wanted = name in peers
            state.changed.set()
            if name not in self.links:
                state.state, state.detail = "opening" if state.wanted else "idle", ""
            elif not state.wanted and dials(self.name, name):
                self._spawn(self.links[name].retire(FAREWELL_SECONDS))
            self._dial_if_wanted(name)

    async def linked(self, peers: Collection[NodeName], patience: float | None) -> list[NodeName]:
        def opening() -> list[NodeName]:
            return [peer for peer in peers if self.peers[peer].state == "opening"]

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
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
        if self._listener is not None:
            self._listener.close()
        await asyncio.gather(*(link.finish(FAREWELL_SECONDS) for link in list(self.links.values())))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        if self._server is not None:
            await self._server.shutdown(1.0)

    # --- waiting for the others

    async def all_up(
        self,
        begun: Collection[NodeName] = (),
        met_by_others: Callable[[], Collection[NodeName]] = tuple,
        patience: float | None = None,
    ) -> None:
        """Wait until every neighbour has said hello, and say whom it waits for.

        Where some are playing already, this node is the one that is late: the rest are given a moment only. Of those
        that have `begun` while it waits for others one may be gone again, at its end or dead: it was there. One that
        was there, for this node or for others, and is gone before it has begun is given `patience`.
        """
        clock = asyncio.get_running_loop().time
        call = RollCall(clock())

        def missing() -> set[NodeName]:
            return self._not_up().difference(begun, self.absent)

        def given() -> dict[NodeName, float]:
            if patience is None:
                return {}
            met = {name: patience for name, peer in self.peers.items() if peer.met}
            # If they live, the next attempt to reach them may be that far away.
            return dict.fromkeys(met_by_others(), patience + LAST_DELAY) | met

        def is_late() -> bool:
            return are_playing([link.hello for link in self.links.values()])

        while not self._closing.is_set() and call.goes_on(clock(), missing(), given(), is_late()):
            if call.is_time_to_say(clock()):
                for peer in in_order(missing()):
                    self._say_waiting_for(peer)
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(call.next_look):
                    await self._changed.wait()
        if not self._closing.is_set():
            self._begin_without(self._not_up().intersection(self.absent | call.given_up))
        self._playing = True

    def _begin_without(self, peers: Collection[NodeName]) -> None:
        for peer in in_order(peers):
            log.warning("it is gone: beginning without it", extra={"event": "begun-without", "peer": peer})
            assert self._events is not None
            self._events.link_down(peer)

    def look_again(self) -> None:
        """Something has changed for whoever waits in `all_up`."""
        self._changed.set()

    def _not_up(self) -> set[NodeName]:
        return {name for name, peer in self.peers.items() if peer.state not in ("up", "idle")}

    def _say_waiting_for(self, name: NodeName) -> None:
        peer = self.peers[name]
        where = f" at {peer.address}" if str(peer.address) != name else ""
        why = f" ({peer.detail})" if peer.detail else ""
        log.info("waiting for %s%s%s", name, where, why, extra={"event": "waiting", "peer": name})

    def stop_waiting(self) -> None:
        self._closing.set()
        self._changed.set()

    def kernel_total(self) -> KernelCount:
        """Bytes that the kernel carried over all links, ended ones included."""
        total = KernelCount()
        for name, peer in self.peers.items():
            live = self.links[name].meter.count() if name in self.links else None
            total += peer.kernel + (live or KernelCount())
        return total

    # --- dialling

    def _dial_if_wanted(self, peer: NodeName) -> None:
        state = self.peers[peer]
        if self._session is not None and state.wanted and not state.dialling and dials(self.name, peer):
            state.dialling = True
            self._spawn(self._keep_dialling(peer))

    async def _keep_dialling(self, peer: NodeName) -> None:
        state = self.peers[peer]
        while not self._closing.is_set() and state.wanted:
            delay = None
            state.changed.clear()
            try:
                await self._dial(peer, state.address)
                state.attempts = 0
            except HandshakeError as error:
                delay = REFUSED_DELAY
                self._refused(peer, error)
            except PeerError as error:
                self._refused(peer, error)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                state.detail = why_unreachable(error)
            if state.state != "idle" and not state.changed.is_set():
                self._not_there(peer, state)
                delay = backoff(state.attempts, self._generator) if delay is None else delay
                state.attempts += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await state.changed.wait()
        state.dialling = False

    def _not_there(self, peer: NodeName, state: PeerState) -> None:
        """An attempt has failed. Once others may be waiting for this peer they learn that they need not."""
        if state.state == "opening":
            state.state = "down"
        if state.attempts == 0 and self._playing and self._events is not None:
            self._events.link_down(peer)
        self._changed.set()

    async def _dial(self, peer: NodeName, address: Address) -> None:
        assert self._session is not None
        connection = await self._session.ws_connect(
            f"http://{address}{PATH}", max_msg_size=self._limit, autoclose=False
        )
        try:
            link = await self._shake_hands(connection, dialled=peer)
        except BaseException as error:
            await _refuse(connection, error)
            raise
        await self._serve(link)

    # --- answering

    def _accept(self) -> web.RequestHandler:
        """A protocol for a new connection, which is cut unless it has shaken hands in time."""
        assert self._server is not None
        handler = self._server()
        self._strangers[handler] = None
        asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._expire, handler)
        if len(self._strangers) > STRANGERS:
            self._expire(next(iter(self._strangers)))
        return handler

    def _expire(self, handler: web.RequestHandler) -> None:
        """Cut a connection that is still a stranger's."""
        if handler not in self._strangers:
            return
        del self._strangers[handler]
        if handler.transport is not None:
            handler.transport.abort()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = web.WebSocketResponse(max_msg_size=self._limit, compress=False, autoclose=False)
        if request.path != PATH or not connection.can_prepare(request).ok:
            return web.Response(status=404, text="p2p-tally node\n")
        await connection.prepare(request)
        try:
            link = await self._shake_hands(connection, dialled=None)
        except PeerError as error:
            self._refused(None, error)
            await _refuse(connection, error)
            return connection
        except (OSError, TimeoutError, asyncio.CancelledError):
            return connection
        self._strangers.pop(request.protocol, None)
        await self._serve(link)
        return connection

    # --- both

    async def _shake_hands(self, connection: Connection, dialled: NodeName | None) -> Link:
        """Both sides say hello, check the other's and say welcome; a link, or a PeerError that names what does not fit.

        `dialled`: whom this node meant to reach, where it was the one that dialled.
        """
        own = self.hello()
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await connection.send_bytes(frames.encode(own))
            message = await connection.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise HandshakeError("no hello", reason="no-hello")
        theirs = frames.decode_hello(message.data)
        check_hello(own, theirs, self.peers)
        if dialled is None and not dials(NodeName(theirs.name), self.name):
            raise HandshakeError(f"{theirs.name:.80} should wait to be dialled", reason="direction")
        if dialled is not None and theirs.name != dialled:
            raise HandshakeError(f"{self.peers[dialled].address} is {theirs.name:.80}, not {dialled}", reason="name")
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await connection.send_bytes(frames.encode(Welcome()))
            answer = await connection.receive()
        if answer.type is aiohttp.WSMsgType.CLOSE and answer.data == REFUSED:
            raise HandshakeError(f"{theirs.name:.80} refuses: {answer.extra}", reason="refused")
        if answer.type is not aiohttp.WSMsgType.BINARY or answer.data != frames.encode(Welcome()):
            raise HandshakeError("no welcome", reason="no-welcome")
        return Link(connection, theirs)

    async def _serve(self, link: Link) -> None:
        """The life of a link."""
        assert self._events is not None
        state = self.peers[link.peer]
        old = self.links.get(link.peer)
        if old is not None:  # the peer has come back before its old connection was seen to end
            old.abort()
            if not old.idle:
                self._events.link_down(link.peer)
        self.links[link.peer] = link
        state.state, state.detail, state.attempts, state.met = "up", "", 0, True
        watch_for_silence(link.connection, SILENCE_SECONDS)
        log.info("link up", extra={"event": "link-up", "peer": link.peer})
        self._events.link_up(link.peer, link.hello)
        self._changed.set()
        try:
            await link.serve(self._events.deliver)
        finally:
            state.kernel += link.meter.count() or KernelCount()
            link.meter.close()
            if self.links.get(link.peer) is link:
                del self.links[link.peer]
                if link.idle:
                    state.state = "opening" if state.wanted else "idle"
                    log.debug("link idle", extra={"event": "link-idle", "peer": link.peer})
                else:
                    state.state = "down" if state.wanted else "idle"
                    log.info("link down", extra={"event": "link-down", "peer": link.peer})
                    self._events.link_down(link.peer)
                self._changed.set()

    def _refused(self, peer: NodeName | None, error: PeerError) -> None:
        self.refusals[error.reason] = self.refusals.get(error.reason, 0) + 1
        log.warning("refused: %s", error, extra={"event": "handshake-refused", "peer": peer, "reason": error.reason})
        if peer is not None:
            self.peers[peer].state, self.peers[peer].detail = "refused", str(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _refuse(connection: Connection, error: BaseException) -> None:
    """Close with the reason in the close frame, which holds 123 bytes."""
    text = str(error) if isinstance(error, PeerError) else ""
    await connection.close(code=REFUSED, message=text.encode()[:120].decode(errors="ignore").encode())
