"""Where connections come in: listening sockets, the limits of strangers, TLS, and HTTP until there is a WebSocket."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from p2p_tally.errors import ConfigError, HandshakeError, PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.addresses import Address
from p2p_tally.node.links.doorway import Doorway, bind
from p2p_tally.node.links.frame_socket import FrameSocket
from p2p_tally.node.links.http_log import http_log
from p2p_tally.node.links.link import Connection
from p2p_tally.node.links.rfc6455 import accept_key
from p2p_tally.node.links.security import Desk, Security, owner_shown, tls_refusal
from p2p_tally.node.links.strangers import PATH, Stranger, Strangers

# Says in a request that the dialler has no link, although the other side has said that there is one.
ALONE = "P2P-Tally-Alone"


class Visit:
    """A request for a link that came in: its WebSocket, and what is known of who sent it."""

    def __init__(self, connection: Connection, owner: NodeName | None, alone: bool) -> None:
        self.connection = connection
        self.owner = owner  # of the key that it showed; None: links are plain
        self.alone = alone


class Reception:
    """Receives whoever connects. `visit` shakes hands and returns how to serve the link; None: it was refused."""

    def __init__(
        self,
        security: Security | None,
        desks: Mapping[str, Desk],
        limit: int,
        visit: Callable[[Visit], Awaitable[Callable[[], Awaitable[None]] | None]],
        refused: Callable[[PeerError], None],
    ) -> None:
        self._security = security
        self._desks = desks
        self._limit = limit
        self._visit = visit
        self._refused = refused
        self._strangers = Strangers()
        self._first_lines = [f"GET {PATH} HTTP/1.1\r\n".encode()]
        self._first_lines += [f"POST {path} HTTP/1.1\r\n".encode() for path in desks]
        self._server: web.Server | None = None
        self._doorway: Doorway | None = None

    async def open(self, listen: Address, inherited: socket.socket | None) -> Address:
        """From now on others can connect. Returns the address with its port."""
        accepting = None if self._security is None else self._security.accepting
        self._server = web.Server(self._answer, logger=http_log, access_log=None, lingering_time=0.0)
        try:
            sockets = [inherited] if inherited else await bind(listen.host, listen.port)
            self._doorway = Doorway(sockets, self._accept, accepting, self._not_entered)
            self._doorway.open()
        except OSError as error:
            raise ConfigError(f"--listen {listen}: {error.strerror or error}") from None
        return Address(listen.host, self._doorway.port) if listen.port == 0 else listen

    def close(self) -> None:
        """Accept nobody any more."""
        if self._doorway is not None:
            self._doorway.close()

    async def end(self) -> None:
        if self._server is not None:
            await self._server.shutdown(1.0)

    def _accept(self, connection: socket.socket) -> Stranger:
        """A protocol for a new connection."""
        assert self._server is not None
        return Stranger(self._server, self._strangers, self._first_lines, connection)

    def _not_entered(self, stranger: asyncio.BaseProtocol, error: OSError) -> None:
        """The connection has ended before its first request."""
        assert isinstance(stranger, Stranger)
        stranger.connection_lost(error)
        if self._security is not None:
            self._refused(tls_refusal(error))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if "Origin" in request.headers:  # a page in somebody's browser; no node sends it
            self._refused(HandshakeError("a page in a browser", reason="origin"))
            return _refusal(403, "p2p-tally node: not for browsers\n")
        if request.method == "POST":
            return await self._at_desk(request)
        if not web.WebSocketResponse(compress=False).can_prepare(request).ok:
            return _refusal(404, "p2p-tally node\n")
        try:
            owner = None if self._security is None else owner_shown(self._security, request)
        except HandshakeError as error:
            self._refused(error)
            return _refusal(403, f"p2p-tally node: {error}\n")
        accepted = web.StreamResponse(status=101, headers=_upgrade(request))
        accepted.force_close()  # when the WebSocket has ended
        await accepted.prepare(request)
        connection = FrameSocket(self._limit, masks=False, lost=request.protocol.connection_lost)
        self._strangers.upgraded(request.protocol, connection)
        try:
            serve = await self._visit(Visit(connection, owner, ALONE in request.headers))
        except (OSError, TimeoutError, asyncio.CancelledError):
            return accepted
        if serve is not None:
            self._strangers.identified(request.protocol)
            await serve()
        return accepted

    async def _at_desk(self, request: web.BaseRequest) -> web.Response:
        desk, length = self._desks.get(request.path), request.content_length
        if desk is None:  # the second request of a connection: only the first line of the first has been looked at
            answer = web.Response(status=404, text="p2p-tally node\n")
        elif length is None or length > desk.most:
            self._refused(HandshakeError(f"{request.path} with more than {desk.most} bytes", reason="oversized"))
            answer = web.Response(status=413, text=f"p2p-tally node: at most {desk.most} bytes\n")
        else:
            status, body = await desk.answer(await request.read())
            if status == 200:
                self._strangers.identified(request.protocol)
            answer = web.Response(status=status, body=body)
        answer.force_close()
        return answer


def _refusal(status: int, text: str) -> web.Response:
    answer = web.Response(status=status, text=text)
    answer.force_close()
    return answer


def _upgrade(request: web.BaseRequest) -> dict[str, str]:
    """The headers that answer a request for a WebSocket."""
    key = accept_key(request.headers["Sec-WebSocket-Key"])
    return {"Upgrade": "websocket", "Connection": "upgrade", "Sec-WebSocket-Accept": key}
