"""Neighbours in one process: a frame is handed to the receiver at once. For the simulator and for tests."""

from collections import deque
from collections.abc import Collection

from p2p_tally.ids import NodeName
from p2p_tally.node.links.transport import Events, dials


class MemoryNetwork:
    """Connects the transports of one process."""

    def __init__(self) -> None:
        self.receivers: dict[NodeName, Events] = {}
        # A receiver may send in turn. Those frames are queued, so that a long chain of messages is no deep recursion.
        self._queue: deque[tuple[NodeName, NodeName, bytes]] = deque()
        self._delivering = False

    def carry(self, sender: NodeName, receiver: NodeName, frame: bytes) -> None:
        """Deliver a frame, and all frames that are sent because of it."""
        self._queue.append((sender, receiver, frame))
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._queue:
                sender, receiver, frame = self._queue.popleft()
                if receiver in self.receivers:
                    self.receivers[receiver].deliver(sender, frame)
        finally:
            self._delivering = False


class MemoryTransport:
    """One node's side of a memory network."""

    def __init__(self, network: MemoryNetwork, name: NodeName) -> None:
        self._network = network
        self._name = name

    async def start(self, events: Events) -> None:
        self._network.receivers[self._name] = events

    def send(self, peer: NodeName, frame: bytes) -> bool:
        if peer not in self._network.receivers:
            return False
        self._network.carry(self._name, peer, frame)
        return True

    async def drained(self, peer: NodeName) -> None:
        """Nothing is queued: a frame has been delivered when `send` returns."""

    def want(self, peers: Collection[NodeName]) -> None:
        """All peers are always linked."""

    async def linked(self, peers: Collection[NodeName], seconds: float | None) -> list[NodeName]:  # noqa: ARG002
        return []

    def received(self, peer: NodeName) -> int | None:  # noqa: ARG002
        return None

    def open_links(self) -> list[NodeName]:
        return [peer for peer in self._network.receivers if peer != self._name]

    def masks(self, peer: NodeName) -> bool:
        return dials(self._name, peer)

    async def close(self) -> None:
        self._network.receivers.pop(self._name, None)
