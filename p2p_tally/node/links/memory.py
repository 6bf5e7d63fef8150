"""Neighbours in one process: a frame is handed to the receiver at once. For the simulator and for tests."""

from collections import deque
from collections.abc import Collection

from p2p_tally.ids import NodeName
from p2p_tally.node.links.transport import Events


class MemoryNetwork:
    """The place where the transports of one process find each other."""

    def __init__(self) -> None:
        self.doors: dict[NodeName, Events] = {}
        # A receiver may answer or pass on: that waits its turn, so that a long way is no deep stack.
        self._under_way: deque[tuple[NodeName, NodeName, bytes]] = deque()
        self._delivering = False

    def carry(self, sender: NodeName, receiver: NodeName, frame: bytes) -> None:
        """Deliver a frame, and all that is sent because of it."""
        self._under_way.append((sender, receiver, frame))
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._under_way:
                sender, receiver, frame = self._under_way.popleft()
                if receiver in self.doors:
                    self.doors[receiver].deliver(sender, frame)
        finally:
            self._delivering = False


class MemoryTransport:
    """One node's side of a memory network."""

    def __init__(self, network: MemoryNetwork, name: NodeName) -> None:
        self._network = network
        self._name = name

    async def start(self, events: Events) -> None:
        self._network.doors[self._name] = events

    def send(self, peer: NodeName, frame: bytes) -> bool:
        if peer not in self._network.doors:
            return False
        self._network.carry(self._name, peer, frame)
        return True

    async def drained(self, peer: NodeName) -> None:
        """A frame is delivered when `send` returns."""

    def want(self, peers: Collection[NodeName]) -> None:
        """Everybody is always in reach."""

    async def linked(self, peers: Collection[NodeName], patience: float | None) -> list[NodeName]:  # noqa: ARG002
        return []

    def received(self, peer: NodeName) -> int | None:  # noqa: ARG002
        return None

    def open_links(self) -> list[NodeName]:
        return [peer for peer in self._network.doors if peer != self._name]

    async def close(self) -> None:
        self._network.doors.pop(self._name, None)
