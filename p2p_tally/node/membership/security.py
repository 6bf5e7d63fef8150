"""Who may connect, by the members' list: each member's key, and no other. A key that is taken away counts at once."""

import ssl
from functools import lru_cache

from p2p_tally.ids import NodeName
from p2p_tally.node.membership.roll import Roll
from p2p_tally.trust import certificates


class ListSecurity:
    """The keys of one node's list. A context is made anew when the list or this node's key has changed."""

    introduces = False  # the list has everybody's credential

    def __init__(self, roll: Roll) -> None:
        self._roll = roll
        self._accepting = lru_cache(maxsize=1)(self._make_accepting)
        self._dialling = lru_cache(maxsize=64)(self._make_dialling)

    def accepting(self) -> ssl.SSLContext:
        return self._accepting(self._roll.members.digest, self.credential)

    def dialling(self, peer: NodeName) -> ssl.SSLContext | None:
        return self._dialling(peer, self._roll.members.digest, self.credential)

    def owner(self, key: bytes | None) -> NodeName | None:
        return self._roll.members.owner(key)

    @property
    def credential(self) -> bytes:
        found = self._roll.identity.credential
        return found.key + found.proof

    def introduced(self, credential: bytes) -> NodeName | None:
        return self.owner(credential[:32])

    def _make_accepting(self, digest: str, own: bytes) -> ssl.SSLContext:  # noqa: ARG002 - what it depends on
        members = self._roll.members.current.values()
        return certificates.accepting(self._roll.identity.file, [member.credential for member in members])

    def _make_dialling(self, peer: NodeName, digest: str, own: bytes) -> ssl.SSLContext | None:  # noqa: ARG002
        member = self._roll.members.current.get(peer)
        return None if member is None else certificates.dialling(self._roll.identity.file, member.credential)
