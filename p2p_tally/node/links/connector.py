"""Opens connections to peers: plain, or TLS by their keys."""

import base64
import os
import ssl

import aiohttp

from p2p_tally.errors import TrustError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.frame_socket import FrameSocket
from p2p_tally.node.links.handshake import HANDSHAKE_SECONDS
from p2p_tally.node.links.introduction import introduce
from p2p_tally.node.links.reception import ALONE
from p2p_tally.node.links.rfc6455 import VERSION, accept_key
from p2p_tally.node.links.security import Security, owner_shown, tls_refusal
from p2p_tally.node.links.state import LinkState
from p2p_tally.node.links.strangers import PATH


class Connector:
    """The connections that one node opens."""

    def __init__(self, security: Security | None, limit: int) -> None:
        """`limit`: messages of this length and longer are refused."""
        self._security = security
        self._limit = limit
        self._session: aiohttp.ClientSession | None = None

    def start(self) -> None:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, connect=HANDSHAKE_SECONDS))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def open(self, peer: NodeName, state: LinkState) -> tuple[FrameSocket, NodeName | None]:
        """A connection, and the owner of the key that the other side has shown."""
        assert self._session is not None
        if self._security is None:
            return await self._upgrade(self._session, f"http://{state.address}{PATH}", {}, ssl=True), None
        assert state.address is not None
        try:
            if self._security.introduces:
                await introduce(self._security, peer, state.address)
            connection = await self._open_tls(self._session, self._security, peer, state)
        except aiohttp.WSServerHandshakeError as error:
            raise TrustError(f"{peer} refuses: status {error.status}", reason="refused") from None
        except (ssl.SSLError, aiohttp.ClientSSLError) as error:
            refusal = tls_refusal(error)
            raise TrustError(f"{state.address}: {refusal}", reason=refusal.reason) from None
        except aiohttp.ClientOSError as error:
            if not isinstance(error.__cause__, ssl.SSLError):
                raise
            # In TLS 1.3 a dialler has its side up before the other has looked at its certificate.
            refusal = tls_refusal(error)
            raise TrustError(f"{state.address}: {refusal}", reason=refusal.reason) from None
        return connection, owner_shown(self._security, connection)

    async def _open_tls(
        self, session: aiohttp.ClientSession, security: Security, peer: NodeName, state: LinkState
    ) -> FrameSocket:
        context = security.dialling(peer)
        if context is None:
            raise TrustError(f"the key of {peer} is not known", reason="key")
        headers = {ALONE: "1"} if state.said_linked else {}
        return await self._upgrade(session, f"https://{state.address}{PATH}", headers, ssl=context)

    async def _upgrade(
        self, session: aiohttp.ClientSession, url: str, headers: dict[str, str], ssl: ssl.SSLContext | bool
    ) -> FrameSocket:
        """Ask for a WebSocket, and take the connection over from aiohttp."""
        key = base64.b64encode(os.urandom(16)).decode()
        asked = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": VERSION}
        asked |= {"Sec-WebSocket-Key": key, **headers}
        answer = await session.get(url, headers=asked, read_until_eof=False, allow_redirects=False, ssl=ssl)
        try:
            _check_upgraded(answer, key)
            return _take_over(answer, self._limit)
        except BaseException:
            answer.close()
            raise


def _check_upgraded(answer: aiohttp.ClientResponse, key: str) -> None:
    upgraded = answer.headers.get("Upgrade", "").lower(), answer.headers.get("Connection", "").lower()
    accepted = answer.headers.get("Sec-WebSocket-Accept", "")
    if answer.status != 101 or upgraded != ("websocket", "upgrade") or accepted != accept_key(key):
        raise aiohttp.WSServerHandshakeError(
            answer.request_info,
            answer.history,
            message="Invalid response status" if answer.status != 101 else "no WebSocket",
            status=answer.status,
            headers=answer.headers,
        )


def _take_over(answer: aiohttp.ClientResponse, limit: int) -> FrameSocket:
    """A WebSocket on the connection of this answer."""
    connection = answer.connection
    if connection is None or connection.protocol is None or connection.transport is None:
        raise ConnectionResetError("the connection has ended")
    http, transport = connection.protocol, connection.transport

    def lost(error: BaseException | None) -> None:
        http.connection_lost(error)
        answer.close()

    link = FrameSocket(limit, masks=True, lost=lost, release=answer.close)
    link.connection_made(transport)
    http.set_parser(_Passing(link), None)  # passes on what has come behind the answer
    transport.set_protocol(link)
    return link


class _Passing:
    """In the place of the parser of a WebSocket in aiohttp."""

    def __init__(self, link: FrameSocket) -> None:
        self._link = link

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._link.feed(data)
        return False, b""

    def feed_eof(self) -> None: ...
