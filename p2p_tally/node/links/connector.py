"""Opens connections to peers: plain, or TLS by their keys."""

import ssl

import aiohttp

from p2p_tally.errors import TrustError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.handshake import HANDSHAKE_SECONDS
from p2p_tally.node.links.introduction import introduce
from p2p_tally.node.links.reception import ALONE
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

    async def open(self, peer: NodeName, state: LinkState) -> tuple[aiohttp.ClientWebSocketResponse, NodeName | None]:
        """A connection, and the owner of the key that the other side has shown."""
        assert self._session is not None
        if self._security is None:
            url = f"http://{state.address}{PATH}"
            return await self._session.ws_connect(url, max_msg_size=self._limit, autoclose=False), None
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
    ) -> aiohttp.ClientWebSocketResponse:
        context = security.dialling(peer)
        if context is None:
            raise TrustError(f"the key of {peer} is not known", reason="key")
        return await session.ws_connect(
            f"https://{state.address}{PATH}",
            max_msg_size=self._limit,
            autoclose=False,
            ssl=context,
            headers={ALONE: "1"} if state.said_linked else None,
        )
