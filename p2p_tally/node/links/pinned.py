"""Security by fingerprints: each peer's is given on the command line, and nobody else has a link."""

import ssl
from collections.abc import Mapping

from p2p_tally.errors import ConfigError, TrustError
from p2p_tally.ids import NodeName
from p2p_tally.trust.certificates import accepting, check_credential, dialling
from p2p_tally.trust.identity import Identity
from p2p_tally.trust.keys import Credential


class PinnedKeys:
    """The keys with these fingerprints. Their certificates become known as the nodes introduce themselves."""

    introduces = True

    def __init__(self, identity: Identity, pins: Mapping[NodeName, str]) -> None:
        self._identity = identity
        self._names: dict[str, NodeName] = {identity.fingerprint: NodeName("this node itself")}
        for name, fingerprint in pins.items():
            if fingerprint in self._names:
                raise ConfigError(f"--peers: {name} has the fingerprint of {self._names[fingerprint]}: {fingerprint}")
            self._names[fingerprint] = name
        del self._names[identity.fingerprint]
        self._known: dict[NodeName, Credential] = {}
        self._owners: dict[bytes, NodeName] = {}
        self._accepting: ssl.SSLContext | None = None
        self._dialling: dict[NodeName, ssl.SSLContext] = {}

    @property
    def credential(self) -> bytes:
        return self._identity.credential.raw

    def accepting(self) -> ssl.SSLContext:
        if self._accepting is None:
            self._accepting = accepting(self._identity.file, self._known.values())
        return self._accepting

    def dialling(self, peer: NodeName) -> ssl.SSLContext | None:
        if peer in self._known and peer not in self._dialling:
            self._dialling[peer] = dialling(self._identity.file, self._known[peer])
        return self._dialling.get(peer)

    def owner(self, key: bytes | None) -> NodeName | None:
        return None if key is None else self._owners.get(key)

    def introduced(self, credential: bytes) -> NodeName | None:
        try:
            shown = Credential.from_raw(credential)
            name = self._names.get(shown.fingerprint)
            if name is None:
                return None
            check_credential(shown)
        except TrustError:
            return None
        if name not in self._known:
            self._known[name] = shown
            self._owners[shown.key] = name
            self._accepting = None
        return name
