"""Edges between two nodes that nobody can dial: a third, which both have a link to, carries them.

This room is at all three nodes. At the ends it makes tunnels; at the carrier it passes frames on, which it cannot read,
and counts them. The end with the smaller name asks its neighbours in order, until one can reach the other end.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable

from p2p_tally.errors import FrameError, PeerError, TrustError
from p2p_tally.ids import NodeName
from p2p_tally.node.links import handshake
from p2p_tally.node.links.doorway import Allowance
from p2p_tally.node.links.link import CAP
from p2p_tally.node.links.outbox import framed_bytes
from p2p_tally.node.links.security import Security, owner_shown, tls_refusal
from p2p_tally.node.links.table import LinkTable
from p2p_tally.node.links.tunnel import Tunnel
from p2p_tally.protocol.carried import Carried, Step, decode_carried
from p2p_tally.protocol.messages import MAX_NUMBER

log = logging.getLogger(__name__)

# What a carrier gives: connections at once, frames a second of each neighbour, and room in the queue of a link.
MOST_CARRIED = 1024
FRAMES_A_SECOND = 8192
QUEUE = CAP // 2
# What an end gives: connections that one peer may have opened and not ended.
MOST_OPEN = 2

Key = tuple[NodeName, int]  # the other end, and the session


class Carriage:
    """The carried connections of one node."""

    def __init__(
        self,
        table: LinkTable,
        security: Security,
        limit: int,
        generator: random.Random,
        arrived: Callable[[Tunnel, NodeName], Awaitable[None]],
        refused: Callable[[PeerError], None],
        booked: Callable[[NodeName, int, int], None],
    ) -> None:
        """`arrived`: serves a tunnel that was opened by this peer. `booked` is called with each frame that this node
        has carried: to whom, its payload, and its bytes."""
        self._name = table.name
        self._table = table
        self._security = security
        self._limit = limit
        self._generator = generator
        self._arrived = arrived
        self._refused = refused
        self._booked = booked
        self._tunnels: dict[Key, tuple[NodeName, Tunnel]] = {}  # with the carrier of each
        self._asked: dict[Key, tuple[NodeName, asyncio.Future[bytes | None]]] = {}
        self._carrying: dict[tuple[frozenset[str], int], None] = {}
        self._allowances: dict[NodeName, Allowance] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # --- as an end

    async def open(self, peer: NodeName) -> tuple[Tunnel, NodeName]:
        """A connection to a peer that nobody can dial, and the owner of the key that it has shown."""
        for carrier in self._table.carriers():
            session = self._generator.randrange(1, MAX_NUMBER)
            credential = await self._ask(carrier, peer, session)
            if credential is not None:
                return await self._begin(carrier, peer, session, credential)
        raise ConnectionRefusedError(None, f"no neighbour can carry a connection to {peer}")

    async def _ask(self, carrier: NodeName, peer: NodeName, session: int) -> bytes | None:
        """The peer's answer over this carrier; None: it has none."""
        key, answer = (peer, session), asyncio.get_running_loop().create_future()
        self._asked[key] = carrier, answer
        try:
            if not self._send(carrier, peer, session, Step.OPEN, data=self._own_credential()):
                return None
            async with asyncio.timeout(handshake.HANDSHAKE_SECONDS):
                found: bytes | None = await answer
                return found
        except TimeoutError:
            return None
        finally:
            del self._asked[key]

    async def _begin(
        self, carrier: NodeName, peer: NodeName, session: int, credential: bytes
    ) -> tuple[Tunnel, NodeName]:
        if self._security.introduces and self._security.introduced(credential) != peer:
            self._send(carrier, peer, session, Step.END)
            raise TrustError(f"over {carrier} somebody shows a key that is not {peer}'s", reason="key")
        context = self._security.dialling(peer)
        if context is None:
            self._send(carrier, peer, session, Step.END)
            raise TrustError(f"the key of {peer} is not known", reason="key")
        tunnel = self._tunnel(carrier, peer, session, context, server=False)
        try:
            return tunnel, await self._shake_hands(tunnel)
        except BaseException:
            self._close(peer, session, tunnel)
            raise

    async def _shake_hands(self, tunnel: Tunnel) -> NodeName:
        try:
            async with asyncio.timeout(handshake.HANDSHAKE_SECONDS):
                await tunnel.shake_hands()
        except ssl.SSLError as error:
            raise tls_refusal(error) from None
        return owner_shown(self._security, tunnel)

    def _tunnel(
        self, carrier: NodeName, peer: NodeName, session: int, context: ssl.SSLContext, *, server: bool
    ) -> Tunnel:
        def send(step: Step, count: int, data: bytes) -> bool:
            if step is Step.END:
                self._tunnels.pop((peer, session), None)
            return self._send(carrier, peer, session, step, count, data)

        tunnel = Tunnel(context, server=server, limit=self._limit, send=send)
        self._tunnels[peer, session] = carrier, tunnel
        return tunnel

    def _close(self, peer: NodeName, session: int, tunnel: Tunnel) -> None:
        tunnel.abort()
        self._tunnels.pop((peer, session), None)

    def _own_credential(self) -> bytes:
        return self._security.credential if self._security.introduces else b""

    def _send(
        self, carrier: NodeName, peer: NodeName, session: int, step: Step, count: int = 0, data: bytes = b""
    ) -> bool:
        link = self._table.direct(carrier)
        return link is not None and link.send(Carried(self._name, peer, session, step, count, data).encode())

    # --- frames that come

    def deliver(self, via: NodeName, frame: bytes) -> bool:
        """A frame came over the link to `via`. False if it is none: then the link is ended."""
        try:
            carried = decode_carried(frame)
        except FrameError as error:
            log.warning("protocol error: %s", error, extra={"event": "protocol-error", "peer": via})
            return False
        if carried.target == self._name:
            self._arrive(via, carried)
        elif carried.origin == via:
            self._carry(via, carried, frame)
        else:
            return False
        return True

    def _arrive(self, via: NodeName, carried: Carried) -> None:
        peer, session = NodeName(carried.origin), carried.session
        key = peer, session
        asked, open_ = self._asked.get(key), self._tunnels.get(key)
        if asked is not None and asked[0] == via:
            if not asked[1].done() and carried.step in (Step.ACCEPT, Step.END):
                asked[1].set_result(carried.data if carried.step is Step.ACCEPT else None)
        elif open_ is not None and open_[0] == via:
            self._pass_in(key, open_[1], carried)
        elif carried.step is Step.OPEN:
            self._answer(via, peer, carried)
        elif carried.step is not Step.END:
            self._send(via, peer, session, Step.END)

    def _pass_in(self, key: Key, tunnel: Tunnel, carried: Carried) -> None:
        match carried.step:
            case Step.DATA:
                if not tunnel.feed(carried.data):
                    log.warning("sends more than allowed", extra={"event": "protocol-error", "peer": key[0]})
                    self._close(*key, tunnel)
            case Step.TAKEN:
                tunnel.was_taken(carried.count)
            case Step.END:
                tunnel.end()
                del self._tunnels[key]

    def _answer(self, carrier: NodeName, peer: NodeName, carried: Carried) -> None:
        """A peer asks for a connection."""
        known = not self._security.introduces or self._security.introduced(carried.data) == peer
        if not known or peer not in self._table.peers or sum(key[0] == peer for key in self._tunnels) >= MOST_OPEN:
            if not known:
                self._refused(TrustError(f"over {carrier}: a key that is not {peer:.80}'s", reason="introduction"))
            self._send(carrier, peer, carried.session, Step.END)
            return
        tunnel = self._tunnel(carrier, peer, carried.session, self._security.accepting(), server=True)
        self._send(carrier, peer, carried.session, Step.ACCEPT, data=self._own_credential())
        task = asyncio.create_task(self._serve(tunnel, peer, carried.session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, tunnel: Tunnel, peer: NodeName, session: int) -> None:
        try:
            owner = await self._shake_hands(tunnel)
            await self._arrived(tunnel, owner)
        except PeerError as error:
            self._refused(error)
        except (OSError, TimeoutError):
            log.debug("a carried connection ended in its handshake", extra={"event": "carried", "peer": peer})
        finally:
            self._close(peer, session, tunnel)

    # --- as a carrier

    def _carry(self, origin: NodeName, carried: Carried, frame: bytes) -> None:
        target = NodeName(carried.target)
        pair = frozenset((carried.origin, carried.target)), carried.session
        if carried.step is Step.OPEN and len(self._carrying) < MOST_CARRIED:
            self._carrying[pair] = None
        link, now = self._table.direct(target), asyncio.get_running_loop().time()
        allowance = self._allowances.setdefault(origin, Allowance(FRAMES_A_SECOND, FRAMES_A_SECOND, now))
        known = pair in self._carrying and allowance.take(now)
        if known and link is not None and link.queued + len(frame) <= QUEUE and link.send(frame):
            self._booked(target, carried.payload, framed_bytes(len(frame), masked=link.dialled))
            if carried.step is Step.END:
                self._carrying.pop(pair, None)
        elif carried.step is not Step.END:
            self._give_up(pair)
            if pair not in self._carrying:
                self._tell_end(origin, target, carried.session)

    def _give_up(self, pair: tuple[frozenset[str], int]) -> None:
        """Carry nothing more of a connection; both ends are told, as far as they can be."""
        names, session = pair
        if self._carrying.pop(pair, False) is None:
            one, other = sorted(names)
            self._tell_end(NodeName(one), NodeName(other), session)
            self._tell_end(NodeName(other), NodeName(one), session)

    def _tell_end(self, end: NodeName, other: NodeName, session: int) -> None:
        link = self._table.direct(end)
        if link is not None:
            link.send(Carried(other, end, session, Step.END).encode())

    def link_down(self, peer: NodeName) -> None:
        """The link to this peer has ended: what it carried, and what was carried to it, ends too."""
        for key, (carrier, tunnel) in list(self._tunnels.items()):
            if carrier == peer:
                tunnel.end()
                del self._tunnels[key]
        for carrier, answer in self._asked.values():
            if carrier == peer and not answer.done():
                answer.set_result(None)
        for pair in [pair for pair in self._carrying if peer in pair[0]]:
            self._give_up(pair)
        self._allowances.pop(peer, None)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
