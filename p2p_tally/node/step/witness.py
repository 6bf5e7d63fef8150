"""What a node's rounds need to know of whoever signs its ballots, and keeps those of others. The door only."""

from typing import Protocol

from p2p_tally.ids import NodeName
from p2p_tally.protocol.barrier import Arrival
from p2p_tally.protocol.evidence_messages import Witnessed


class Witness(Protocol):
    def sent(self, round: int, ballot: bytes) -> None:
        """This node has sent its ballot of a round to its neighbours."""
        ...

    def heard(self, peer: NodeName, round: int, ballot: bytes) -> None:
        """A ballot came over a peer's own link."""
        ...

    def receive(self, peer: NodeName, message: Witnessed) -> Arrival:
        """A message about signed ballots; or a PeerError."""
        ...

    def link_up(self, peer: NodeName) -> None:
        """A new link: what came over the last one may be from an earlier start of the peer."""
        ...
