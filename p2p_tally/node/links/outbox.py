"""Sends messages: each is encoded once, sent to its receivers, and counted in the ledger."""

from collections.abc import Callable, Iterable

from p2p_tally.ids import NodeName
from p2p_tally.node.links.transport import Transport
from p2p_tally.protocol import frames
from p2p_tally.protocol.ledger import Ledger
from p2p_tally.protocol.messages import Message

Listener = Callable[[NodeName, Message], None]


class Outbox:
    """The outgoing messages of one node."""

    def __init__(self, name: NodeName, transport: Transport, ledger: Ledger) -> None:
        self.name = name
        self.transport = transport
        self.ledger = ledger
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call this function with every message that is sent, and its receiver."""
        self._listeners.append(listener)

    def broadcast(self, peers: Iterable[NodeName], message: Message) -> None:
        frame = frames.encode(message)
        for peer in peers:
            self.send(peer, message, frame)

    async def stream(self, peer: NodeName, message: Message, frame: bytes) -> None:
        """Send a large message, once the link's queue has room for it."""
        await self.transport.drained(peer)
        self.send(peer, message, frame)

    def send(self, peer: NodeName, message: Message, frame: bytes) -> bool:
        """Returns whether there was a link."""
        sent = self.transport.send(peer, frame)
        if sent:
            self.ledger.book_sent(
                peer, message.stage, message.payload, framed_bytes(len(frame), masked=self.transport.masks(peer))
            )
            for listener in self._listeners:
                listener(peer, message)
        return sent


# Makes the outbox of a node, from its name, its links and its ledger.
MakeOutbox = Callable[[NodeName, Transport, Ledger], Outbox]


def framed_bytes(length: int, *, masked: bool) -> int:
    """Bytes that a frame of this length takes on the socket, with its WebSocket header."""
    return length + frames.websocket_header(length, masked=masked)
