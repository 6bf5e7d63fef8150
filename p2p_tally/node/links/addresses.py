"""Addresses on the command line: HOST:PORT, NAME=HOST:PORT for a peer with a name, and behind it #FINGERPRINT."""

import ipaddress
import os
import re
from dataclasses import dataclass

from p2p_tally.errors import ConfigError, TrustError
from p2p_tally.ids import NodeName, node_name
from p2p_tally.trust.keys import read_fingerprint

# In the place of the address of a peer that nobody can dial.
DIAL_ONLY = "dial-only"

_PORT = re.compile("[0-9]{1,5}")
_HOST_NAME = re.compile(r"[^\s/:\[\]]+")


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str, flag: str) -> Address:
    host, _, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not _is_host(host) or not _PORT.fullmatch(port) or int(port) >= 65_536:
        raise ConfigError(f"{flag} {text}: accepted is HOST:PORT, the port from 0 to 65535")
    return Address(host, int(port))


def _is_host(text: str) -> bool:
    """A host name or an IP address. Only IPv6 addresses have colons, so a URL or a missing comma is an error."""
    if ":" not in text:
        return _HOST_NAME.fullmatch(text) is not None
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class PeerAddress:
    address: Address | None  # None: nobody can dial it
    fingerprint: str | None = None  # None: links to it are plain


def parse_peers(text: str) -> dict[NodeName, PeerAddress]:
    """Peers by name. The name of a peer without one is its address."""
    peers: dict[NodeName, PeerAddress] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        where, hash_sign, typed = item.partition("#")
        name, equals, address = where.rpartition("=")
        undialled = bool(equals and hash_sign) and address.strip() == DIAL_ONLY
        parsed = None if undialled else parse_address(address, "--peers")
        peer = node_name(name if equals else str(parsed))
        if peer in peers:
            raise ConfigError(f"--peers {text}: {peer} is there twice")
        peers[peer] = PeerAddress(parsed, _fingerprint(typed, peer) if hash_sign else None)
    return peers


def _fingerprint(typed: str, peer: NodeName) -> str:
    try:
        return read_fingerprint(typed)
    except TrustError as error:
        raise ConfigError(f"--peers: the fingerprint of {peer}: {error}") from None


def why_unreachable(error: Exception) -> str:
    """Why a connection failed, as the system says it, without what the libraries add around it."""
    number = error.errno if isinstance(error, OSError) else None
    if number and number > 0:
        return os.strerror(number)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = error.strerror if isinstance(error, OSError) else None  # if a name does not resolve, errno is negative
    return text or str(error) or type(error).__name__
