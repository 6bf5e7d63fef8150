"""Who a daemon is, where it and its peers are, and how they know each other: read from its settings."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from p2p_tally.config import DaemonSettings
from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName, node_name
from p2p_tally.node.links.addresses import Address, parse_address, parse_peers
from p2p_tally.node.links.pinned import PinnedKeys
from p2p_tally.node.links.security import Desk, Security
from p2p_tally.trust.identity import load_identity

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Whereabouts:
    """`listen`: None: nobody can dial this node. `security`: None: links are plain."""

    name: NodeName
    listen: Address | None
    peers: Mapping[NodeName, Address | None]  # None: nobody can dial it
    security: Security | None = None
    desks: Mapping[str, Desk] = field(default_factory=dict)  # what strangers may post, by path


def whereabouts(settings: DaemonSettings) -> Whereabouts:
    """From --name, --listen or --dial-only, and --peers: with their fingerprints links are TLS, otherwise plain."""
    peers = parse_peers(settings.peers)
    pins = {name: peer.fingerprint for name, peer in peers.items() if peer.fingerprint is not None}
    without = next((name for name in peers if name not in pins), None)
    if pins and without is not None:
        raise ConfigError(
            f"--peers: {without} has no fingerprint; accepted is NAME=HOST:PORT#FINGERPRINT for all or none"
        )
    listen = None if settings.dial_only else parse_address(settings.listen, "--listen")
    if settings.dial_only and not pins:
        raise ConfigError(
            "--dial-only: needs peers that are known by key; accepted is --peers NAME=HOST:PORT#FINGERPRINT"
        )
    if settings.dial_only and settings.name is None:
        raise ConfigError("--dial-only: a node without an address needs a --name")
    if listen is not None and not pins:
        check_reach(listen, "--listen", insecure=settings.insecure)
    name = node_name(settings.name or str(listen))
    if name in peers:
        raise ConfigError(f"--peers {settings.peers}: {name} is this node itself")
    security = _pinned(settings.home, pins) if pins else None
    return Whereabouts(name, listen, {peer: found.address for peer, found in peers.items()}, security)


def _pinned(home: Path | None, pins: Mapping[NodeName, str]) -> PinnedKeys:
    if home is None:
        raise ConfigError("--peers: fingerprints need this node's own key; add --home DIR")
    identity = load_identity(home)
    if identity is None:
        raise ConfigError(f"--home {home}: holds no key; make one: p2p-tally identity --home {home}")
    return PinnedKeys(identity, pins)


def check_reach(address: Address, flag: str, *, insecure: bool) -> None:
    """Plain text beyond this machine is a choice of the operator's, and said at every start."""
    if address.loopback:
        return
    if not insecure:
        raise ConfigError(
            f"{flag} {address}: reachable from other machines, and nothing there is encrypted or authenticated; "
            "listen on 127.0.0.1, or add --insecure where the network itself is trusted"
        )
    log.warning("--insecure: what goes over %s %s is plain text, and anyone who reaches it may speak", flag, address)
