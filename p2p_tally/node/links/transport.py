"""The interface between a node and its links. The memory and the WebSocket transport implement it."""

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Protocol

from p2p_tally.ids import NodeName, name_key
from p2p_tally.protocol.messages import Hello


class Events(Protocol):
    """What a transport reports to its node. Called on the event loop's thread; must not block and must not raise."""

    def deliver(self, peer: NodeName, frame: bytes) -> bool:
        """A frame came from this peer. Returns False if it is no valid message, or one too many: the link is ended."""
        ...

    def link_up(self, peer: NodeName, hello: Hello) -> None:
        """The link to this peer is up; `hello` is what the peer sent."""
        ...

    def link_down(self, peer: NodeName) -> None:
        """The link has ended, or cannot be made; the transport tries again. Not called if the link is not needed."""
        ...

    def why_closed(self, peer: NodeName) -> str:
        """Why there may be no link to this peer now; empty: there may."""
        ...


class Transport(Protocol):
    """Sends frames to neighbours by name. Each link keeps its frames in order."""

    async def start(self, events: Events) -> None: ...

    def send(self, peer: NodeName, frame: bytes) -> bool:
        """Queue a frame; False if there is no open link, or its queue is full."""
        ...

    async def drained(self, peer: NodeName) -> None:
        """Wait until the link has room for the next large frame, or has ended."""
        ...

    def want(self, peers: Collection[NodeName]) -> None:
        """From now on only links to these peers are needed. Before the first call all links are."""
        ...

    async def linked(self, peers: Collection[NodeName], seconds: float | None) -> list[NodeName]:
        """Wait at most so many seconds for links that are being made. Returns the peers that still have none."""
        ...

    def received(self, peer: NodeName) -> int | None:
        """Bytes that have come over an open link, including parts of messages; None: not known."""
        ...

    def open_links(self) -> list[NodeName]:
        """The peers with an open link."""
        ...

    def masks(self, peer: NodeName) -> bool:
        """Whether this node masks what it sends to this peer: the side that has dialled does."""
        ...

    async def close(self) -> None:
        """Send what is queued, then end all links."""
        ...


@lru_cache(maxsize=65_536)
def dials(node: NodeName, peer: NodeName) -> bool:
    """Whether `node` dials: of two neighbours the one with the smaller name. With TLS the other may dial, too."""
    return name_key(node) < name_key(peer)


Clock = Callable[[], float]
