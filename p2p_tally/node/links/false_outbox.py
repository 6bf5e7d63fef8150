"""The outbox of a node that lies about who is sent what. What it really sends is what it counts."""

from collections.abc import Callable

from p2p_tally.attacks.messages import FalseMessages
from p2p_tally.ids import NodeName
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.links.transport import Transport
from p2p_tally.protocol import frames
from p2p_tally.protocol.ledger import Ledger
from p2p_tally.protocol.messages import Message


class FalseOutbox(Outbox):
    """`rank`: of a peer."""

    def __init__(
        self,
        name: NodeName,
        transport: Transport,
        ledger: Ledger,
        lies: FalseMessages,
        rank: Callable[[str], int],
    ) -> None:
        super().__init__(name, transport, ledger)
        self._lies = lies
        self._rank = rank

    def send(self, peer: NodeName, message: Message, frame: bytes) -> bool:
        said = self._lies.said(self._rank(peer), message)
        if said is None:
            return True  # withheld, and not counted
        return super().send(peer, said, frame if said is message else frames.encode(said))
