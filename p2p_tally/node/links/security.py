"""Who is at the other end of a connection: TLS by keys that this node knows, and nobody else's.

The transport asks a `Security` and knows nothing of lists, files or fingerprints. Without one, links are plain.
"""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from p2p_tally.errors import HandshakeError, TrustError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.sockets import HasSocket, extra_info
from p2p_tally.trust.certificates import key_of


class Security(Protocol):
    """Which keys open links. It is asked anew for every connection, so that a key taken away counts at once."""

    def accepting(self) -> ssl.SSLContext:
        """For a connection that comes in: accepts the keys that are known now, and connections without one."""
        ...

    def dialling(self, peer: NodeName) -> ssl.SSLContext | None:
        """For a connection to this peer: accepts its key and no other. None: its key is not known (yet)."""
        ...

    def owner(self, key: bytes | None) -> NodeName | None:
        """Whose key this is now; None: nobody's."""
        ...

    @property
    def introduces(self) -> bool:
        """Whether two nodes show each other their credentials before a link is made (/introduce)."""
        ...

    @property
    def credential(self) -> bytes:
        """This node's own: its public key and its proof."""
        ...

    def introduced(self, credential: bytes) -> NodeName | None:
        """Somebody has shown this credential. Whose it is; None: nobody's that this node knows."""
        ...


@dataclass(frozen=True)
class Desk:
    """What somebody without a known key may post at the port of links."""

    most: int  # bytes of what is posted
    answer: Callable[[bytes], Awaitable[tuple[int, bytes]]]  # status and body; a status of 200 ends a stranger's limits


def key_shown(connection: HasSocket) -> bytes | None:
    """The key that the other end has shown, and proved to own."""
    return key_of(certificate_shown(connection))


def certificate_shown(connection: HasSocket) -> bytes | None:
    """The certificate of the other end; None if it has shown none, or the connection has ended."""
    found = extra_info(connection, "ssl_object")
    return None if found is None else found.getpeercert(binary_form=True)


def owner_shown(security: Security, connection: HasSocket) -> NodeName:
    """Who is at the other end, or a HandshakeError."""
    key = key_shown(connection)
    if key is None:
        raise HandshakeError("a link without a certificate", reason="no-certificate")
    owner = security.owner(key)
    if owner is None:
        raise HandshakeError("a link by a key that is nobody's any more", reason="key")
    return owner


# By what OpenSSL calls it: what went wrong, as a reason to count and a text.
_PLAIN = ("plain-text", "it does not speak TLS")
_OLD = ("tls-version", "it offers no TLS 1.3")
_REASONS = {
    "CERTIFICATE_VERIFY_FAILED": ("key", "it shows a key that is not known here"),
    "HTTP_REQUEST": _PLAIN,
    "HTTPS_PROXY_REQUEST": _PLAIN,
    "WRONG_VERSION_NUMBER": _PLAIN,
    "UNSUPPORTED_PROTOCOL": _OLD,
    "VERSION_TOO_LOW": _OLD,
    "TLSV1_ALERT_PROTOCOL_VERSION": _OLD,
    "TLSV1_ALERT_UNKNOWN_CA": ("key-refused", "it does not know this node's key"),
    "TLSV1_ALERT_DECRYPT_ERROR": ("key-refused", "it does not know this node's key"),
}


def tls_refusal(error: BaseException) -> TrustError:
    """A TLS handshake that failed: the reason that is counted, and the text that is logged. Not for long, perhaps: keys
    are replaced, and lists become known to one node sooner than to another."""
    seen: BaseException | None = error
    while seen is not None:
        named = getattr(seen, "reason", None) if isinstance(seen, ssl.SSLError) else None  # aiohttp's have none
        if named is not None:
            reason, text = _REASONS.get(named, ("tls", f"no TLS handshake of ours: {named}"))
            return TrustError(text, reason=reason)
        seen = seen.__cause__ or seen.__context__ or getattr(seen, "os_error", None)
    return TrustError("it ended within its TLS handshake", reason="tls-unfinished")
