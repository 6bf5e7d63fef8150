"""How a node reaches its neighbours: the interface that the memory and the WebSocket transport implement."""

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Protocol

from p2p_tally.ids import NodeName, name_key
from p2p_tally.protocol.messages import Hello


class Events(Protocol):
    """What a transport tells its node. Calls come on the event loop's thread, never block and never raise."""

    def deliver(self, peer: NodeName, frame: bytes) -> bool:
        """A frame came, from the peer that the link vouches for. False: it was no message, and the link should end."""
        ...

    def link_up(self, peer: NodeName, hello: Hello) -> None:
        """There is a link to this peer, and it has said who it is."""
        ...

    def link_down(self, peer: NodeName) -> None:
        """The link is gone, or cannot be made; the transport tries again. Not said of one that is not needed now."""
        ...


class Transport(Protocol):
    """Frames to named neighbours. Each link keeps its frames in order."""

    async def start(self, events: Events) -> None: ...

    def send(self, peer: NodeName, frame: bytes) -> bool:
        """Queue a frame; False where there is no live link, or its queue is full."""
        ...

    async def drained(self, peer: NodeName) -> None:
        """Wait until the link has room for the next large frame, or is gone."""
        ...

    def want(self, peers: Collection[NodeName]) -> None:
        """From now on links to these peers are needed, and to no others; without a word all are."""
        ...

    async def linked(self, peers: Collection[NodeName], patience: float | None) -> list[NodeName]:
        """Wait for links that are being made; those of the peers that still have none when the time is up."""
        ...

    def received(self, peer: NodeName) -> int | None:
        """Bytes that have come over a live link, of messages that are not whole yet too; None: not known."""
        ...

    def open_links(self) -> list[NodeName]:
        """Who can be sent to now."""
        ...

    async def close(self) -> None:
        """Send what is queued, then end all links."""
        ...


@lru_cache(maxsize=65_536)
def dials(node: NodeName, peer: NodeName) -> bool:
    """Of two neighbours the one with the smaller name dials. It masks what it sends, as WebSocket clients must."""
    return name_key(node) < name_key(peer)


Clock = Callable[[], float]
