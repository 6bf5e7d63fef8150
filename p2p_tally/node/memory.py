"""Neighbours in one process: a frame is handed to the receiver at once. For the simulator and for tests."""

from p2p_tally.ids import NodeName
from p2p_tally.node.transport import Events


class MemoryNetwork:
    """The place where the transports of one process find each other."""

    def __init__(self) -> None:
        self.doors: dict[NodeName, Events] = {}


class MemoryTransport:
    """One node's side of a memory network."""

    def __init__(self, network: MemoryNetwork, name: NodeName) -> None:
        self._network = network
        self._name = name

    async def start(self, events: Events) -> None:
        self._network.doors[self._name] = events

    def send(self, peer: NodeName, frame: bytes) -> bool:
        receiver = self._network.doors.get(peer)
        if receiver is None:
            return False
        receiver.deliver(self._name, frame)
        return True

    async def drained(self, peer: NodeName) -> None:
        """A frame is delivered when `send` returns."""

    async def close(self) -> None:
        self._network.doors.pop(self._name, None)
