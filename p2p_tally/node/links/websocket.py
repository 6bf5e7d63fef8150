"""Neighbours over the network: one WebSocket link per edge, made again when it breaks.

Of two neighbours the one with the smaller name dials; with TLS the other dials, too, if that one does not come. An
accepted connection has five seconds to finish its handshake. This module knows links and hellos; it knows nothing of
rounds.
"""

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any

from p2p_tally.errors import HandshakeError, PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.addresses import Address
from p2p_tally.node.links.carriage import Carriage
from p2p_tally.node.links.connector import Connector
from p2p_tally.node.links.dialler import Dialler
from p2p_tally.node.links.handshake import LinkedAlready, exchange_hellos, exchange_welcomes, refuse
from p2p_tally.node.links.introduction import introduction_desk
from p2p_tally.node.links.link import Connection, Link
from p2p_tally.node.links.reception import Reception, Visit
from p2p_tally.node.links.security import Desk, Security
from p2p_tally.node.links.sockets import KernelCount, watch_for_silence
from p2p_tally.node.links.state import LinkState
from p2p_tally.node.links.table import LinkTable
from p2p_tally.node.links.transport import Events, dials
from p2p_tally.node.links.tunnel import Tunnel
from p2p_tally.protocol.carried import is_carried
from p2p_tally.protocol.frames import HELLO_BYTES, Limits
from p2p_tally.protocol.messages import Hello

log = logging.getLogger(__name__)

# A machine that disappears without closing its connections is noticed after this long.
SILENCE_SECONDS = 30
# When a link is closed: how long to wait until the peer has read what is queued.
CLOSE_SECONDS = 5.0
# With TLS both sides may dial: how long the one with the larger name waits for the other.
GIVE_WAY_SECONDS = 1.0


class WebSocketTransport(LinkTable):
    """One node's links."""

    def __init__(
        self,
        name: NodeName,
        listen: Address | None,
        peers: Mapping[NodeName, Address | None],
        hello: Callable[[], Hello],
        limits: Limits,
        generator: random.Random,
        inherited: socket.socket | None = None,
        security: Security | None = None,
        desks: Mapping[str, Desk] | None = None,
        booked: Callable[[NodeName, int, int], None] = lambda *_: None,
    ) -> None:
        """`hello`: makes the hello that this node sends on a new link. `inherited`: a socket that listens already,
        if another process has chosen the address. `security`: who may have links; None: links are plain. `desks`: what
        strangers may post, by path. An address that is None: nobody can dial it, which needs a `security`. `booked` is
        called with each frame that this node carries for two others: to whom, its payload, and its bytes."""
        super().__init__(name, peers)
        self.listen = listen
        self.hello = hello
        self.refusals: dict[str, int] = {}  # handshakes that failed, by reason
        self.inherited = inherited
        self._security = security
        self._events: Events | None = None
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._playing = False
        self._started = False
        limit = max(limits.frame, HELLO_BYTES) + 1  # messages of this length and longer are refused
        self._connector = Connector(security, limit)
        self._dialler = Dialler(self._dial, self._patience, self._refused, self._not_there, generator)
        self._carriage = (
            None
            if security is None
            else Carriage(self, security, limit, generator, self._receive_carried, self.turn_away, booked)
        )
        open_desks = introduction_desk(security, self.turn_away) | dict(desks or {})
        self._reception = Reception(security, open_desks, limit, self._receive, self.turn_away)

    # --- the Transport interface

    async def start(self, events: Events) -> None:
        self._events = events
        if self.listen is not None:
            self.listen = await self._reception.open(self.listen, self.inherited)
        self._connector.start()
        self._started = True
        for peer in self.peers:
            self._dial_if_wanted(peer)

    def want(self, peers: Collection[NodeName]) -> None:
        """The side that dials makes links and ends them; the other side accepts that."""
        for name, state in self.peers.items():
            if (name in peers) == state.wanted and self._started:
                continue
            state.want(name in peers, linked=name in self.links)
            if name in self.links and not state.wanted and self.links[name].dialled:
                self._spawn(self.links[name].retire(CLOSE_SECONDS))
            self._dial_if_wanted(name)

    async def linked(self, peers: Collection[NodeName], seconds: float | None) -> list[NodeName]:
        def opening() -> list[NodeName]:
            return [peer for peer in peers if peer in self.peers and self.peers[peer].state == "opening"]

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while opening() and not self._closing.is_set():
                    self._changed.clear()
                    await self._changed.wait()
        return opening()

    async def close(self) -> None:
        self._closing.set()
        self._changed.set()
        self._reception.close()
        await asyncio.gather(*(link.finish(CLOSE_SECONDS) for link in list(self.links.values())))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connector.close()
        await self._reception.end()
        if self._carriage is not None:
            await self._carriage.close()

    # --- members that change

    def add_peer(self, peer: NodeName, address: Address | None) -> None:
        """From now on there is this peer, and a link to it is wanted. If it was there already it has another address:
        its link stays, and the next attempt goes there."""
        if peer in self.peers:
            self.peers[peer].move_to(address)
            return
        self.peers[peer] = LinkState(address)
        self._dial_if_wanted(peer)

    def remove_peer(self, peer: NodeName) -> None:
        """From now on it is a stranger. Its link is cut."""
        state = self.peers.pop(peer)
        state.want(False, linked=False)
        self._former += state.kernel
        if peer in self.links:
            self.links[peer].expel()

    def security_changed(self) -> None:
        """Keys have been taken away or replaced: links by keys that are not their owners' any more are cut at once."""
        for link in list(self.links.values()):
            if not self._is_trusted(link):
                log.warning("its key is not valid any more: link cut", extra={"event": "key-gone", "peer": link.peer})
                link.expel()
        for state in self.peers.values():
            state.nudge()

    @property
    def proves_names(self) -> bool:
        """Whether whoever has a link has shown the key of its name."""
        return self._security is not None

    def _is_trusted(self, link: Link) -> bool:
        return self._security is None or self._security.owner(link.key) == link.peer

    # --- before the first round

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

    # --- dialling

    def _dial_if_wanted(self, peer: NodeName) -> None:
        state = self.peers[peer]
        may_dial = self._security is not None or dials(self.name, peer)
        if self._started and state.wanted and not state.dialling and may_dial:
            self._spawn(self._dialler.keep(peer, state, self._closing))

    def _patience(self, peer: NodeName, state: LinkState) -> float | None:
        """For how many seconds this node leaves it to the other to dial; None: until something changes."""
        if self._security is None:
            return 0.0
        if peer in self.links or (state.address is None and (self.listen is not None or not dials(self.name, peer))):
            return None
        return 0.0 if self.listen is None or dials(self.name, peer) else GIVE_WAY_SECONDS

    def _not_there(self, peer: NodeName, state: LinkState) -> None:
        """An attempt has failed. If rounds have begun, the node is told, so that it does not wait for this peer."""
        if state.attempt_failed() and self._playing and self._events is not None:
            self._events.link_down(peer)
        self._changed.set()

    async def _dial(self, peer: NodeName, state: LinkState) -> None:
        connection: Connection
        owner: NodeName | None
        if state.address is None and self._carriage is not None:
            connection, owner = await self._carriage.open(peer)
        else:
            connection, owner = await self._connector.open(peer, state)
        try:
            link = await self._shake_hands(connection, peer, owner, alone=False)
        except BaseException as error:
            await refuse(connection, error)
            raise
        await self._serve(link)

    # --- answering

    async def _receive(self, visit: Visit) -> Callable[[], Awaitable[None]] | None:
        """How the new link is served; None if the handshake was refused."""
        try:
            link = await self._shake_hands(visit.connection, None, visit.owner, visit.alone)
            return lambda: self._serve(link)
        except LinkedAlready as error:
            refusal: PeerError = LinkedAlready(str(error))
        except PeerError as error:
            # A copy: the frames that raised this one hold 100 kB of buffers, for as long as the stranger does not
            # answer the refusal.
            refusal = PeerError(str(error), reason=error.reason)
            self.turn_away(refusal)
        await refuse(visit.connection, refusal)
        return None

    async def _receive_carried(self, connection: Tunnel, owner: NodeName) -> None:
        serve = await self._receive(Visit(connection, owner, alone=False))
        if serve is not None:
            await serve()

    def turn_away(self, error: PeerError) -> None:
        """Somebody who is no peer, or not yet, has been refused."""
        self._refused(None, error)

    # --- for both sides

    async def _shake_hands(
        self, connection: Connection, dialled: NodeName | None, owner: NodeName | None, alone: bool
    ) -> Link:
        """A link that is up. `alone`: the other side says that it has no link, whatever this node has."""
        theirs = await exchange_hellos(connection, self.hello(), self.peers, dialled, owner)
        peer = NodeName(theirs.name)
        why = self._events.why_closed(peer) if self._events is not None else ""
        if why:
            raise HandshakeError(f"{self.name} has closed its link to {peer} for a time: {why}", reason="score")
        async with contextlib.AsyncExitStack() as stack:
            if self._security is not None and dials(self.name, peer):
                # Both may dial. The one with the smaller name decides which link stays: it welcomes one at a time. So
                # there is never a second link at either side that takes the place of one that frames are under way on.
                await stack.enter_async_context(self.peers[peer].deciding)
                if peer in self.links and not alone:
                    raise LinkedAlready(f"{self.name} has a link to {peer}")
            link = await exchange_welcomes(connection, theirs, dialled=dialled is not None)
            if peer not in self.peers or not self._is_trusted(link):
                raise HandshakeError(f"{peer} is no neighbour of {self.name} any more", reason="stranger")
            self._put_up(link)
            return link

    def _put_up(self, link: Link) -> None:
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
        for name, other in self.peers.items():
            if other.address is None and name not in self.links:
                other.nudge()  # this peer may be able to carry a connection to it

    async def _serve(self, link: Link) -> None:
        """Serve a link until it ends."""
        assert self._events is not None
        state = self.peers[link.peer]
        try:
            await link.serve(self._deliver)
        finally:
            count = link.meter.count() or KernelCount()
            if self.peers.get(link.peer) is state:
                state.carried(count)
            else:
                self._former += count
            link.meter.close()
            if self.links.get(link.peer) is link:
                del self.links[link.peer]
                if self._carriage is not None and link.direct:
                    self._carriage.link_down(link.peer)
                state.ended(idle=link.idle)
                if link.idle:
                    log.debug("link idle", extra={"event": "link-idle", "peer": link.peer})
                else:
                    log.info("link down", extra={"event": "link-down", "peer": link.peer})
                    self._events.link_down(link.peer)
                self._changed.set()

    def _deliver(self, peer: NodeName, frame: bytes) -> bool:
        assert self._events is not None
        if self._carriage is not None and is_carried(frame):
            return self._carriage.deliver(peer, frame)
        return self._events.deliver(peer, frame)

    def _refused(self, peer: NodeName | None, error: PeerError) -> None:
        self.refusals[error.reason] = self.refusals.get(error.reason, 0) + 1
        log.warning("refused: %s", error, extra={"event": "handshake-refused", "peer": peer, "reason": error.reason})
        if peer is not None:
            self.peers[peer].refused(str(error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
