"""How a node reaches its neighbours: the interface that the memory and the WebSocket transport implement."""

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from p2p_tally.ids import NodeName, name_key

# Called for each frame that comes in, with the peer that the link vouches for. It never raises and never blocks.
Deliver = Callable[[NodeName, bytes], None]


class Transport(Protocol):
    """Frames to named neighbours. Each link keeps its frames in order."""

    async def start(self, deliver: Deliver) -> None: ...

    def send(self, peer: NodeName, frame: bytes) -> bool:
        """Queue a frame; False where there is no live link, or its queue is full."""
        ...

    async def drained(self, peer: NodeName) -> None:
        """Wait until the link has room for the next large frame."""
        ...

    async def close(self) -> None: ...


@lru_cache(maxsize=65_536)
def dials(node: NodeName, peer: NodeName) -> bool:
    """Of two neighbours the one with the smaller name dials. It masks what it sends, as WebSocket clients must."""
    return name_key(node) < name_key(peer)
