"""Two nodes that know each other's fingerprints show each other their certificates, before a link is made.

TLS accepts a certificate only if it is known before. Who is given fingerprints knows none: so the dialler opens TLS
without a certificate of its own, looks at the one that it is shown, and posts its own credential. Both keep what has a
pinned fingerprint, and nothing else.
"""

import asyncio
from collections.abc import Callable

from p2p_tally.errors import PeerError, TrustError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.addresses import Address
from p2p_tally.node.links.handshake import HANDSHAKE_SECONDS
from p2p_tally.node.links.security import Desk, Security, certificate_shown
from p2p_tally.trust.certificates import asking, credential_shown
from p2p_tally.trust.keys import CREDENTIAL_BYTES

PATH = "/introduce"


def introduction_desk(security: Security | None, refused: Callable[[PeerError], None]) -> dict[str, Desk]:
    """Where others introduce themselves; none if this node knows the certificates of its peers."""
    if security is None or not security.introduces:
        return {}

    async def meet(credential: bytes) -> tuple[int, bytes]:
        if security.introduced(credential) is None:
            refused(TrustError("an introduction by a key that is not known here", reason="introduction"))
            return 403, b""
        return 200, b""

    return {PATH: Desk(CREDENTIAL_BYTES, meet)}


async def introduce(security: Security, peer: NodeName, address: Address) -> None:
    """Make the two nodes known to each other. A TrustError if either does not know the other's key."""
    async with asyncio.timeout(HANDSHAKE_SECONDS):
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=asking())
        try:
            shown = credential_shown(certificate_shown(writer))
            if shown is None or security.introduced(shown.raw) != peer:
                text = "no key of ours" if shown is None else f"the key {shown.fingerprint}"
                raise TrustError(f"{address} shows {text}, which is not {peer}'s", reason="key")
            writer.write(
                f"POST {PATH} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {CREDENTIAL_BYTES}\r\n\r\n".encode()
            )
            writer.write(security.credential)
            status = (await reader.readline()).split(b" ")
            if status[1:2] != [b"200"]:
                raise TrustError(f"{peer} does not know this node's key", reason="key-refused")
        finally:
            writer.transport.abort()
