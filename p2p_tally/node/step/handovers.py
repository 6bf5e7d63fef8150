"""What comes in of hand-overs: who asks this node for its state, and the states that others give to this node."""

import asyncio

from p2p_tally.errors import PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.position import Position
from p2p_tally.protocol.barrier import Arrival
from p2p_tally.protocol.handover import ArrivingState
from p2p_tally.protocol.messages import Fetch, Handed, Piece, State
from p2p_tally.topologies import Topology


class Handovers:
    """The hand-overs of one node. A state that it does not expect, or of another size than its own, is refused."""

    def __init__(self, name: NodeName, topology: Topology, position: Position, size: int) -> None:
        """`size`: bytes of the tensors of a state."""
        self.asked: dict[NodeName, int] = {}  # who has asked, and after which round it wants the state
        self.changed = asyncio.Event()
        self._name = name
        self._topology = topology
        self._position = position
        self._size = size
        self._expected: NodeName | None = None  # whom this node has asked
        self._arriving: dict[NodeName, ArrivingState] = {}

    def receive(self, peer: NodeName, message: Handed) -> Arrival:
        """Or a PeerError."""
        match message:
            case Fetch():
                self.asked[peer] = message.round
            case State():
                if peer not in (self._expected, self._donor):
                    raise PeerError("a state that this node does not expect", reason="handover")
                if message.size != self._size:
                    raise PeerError(f"a state of {message.size} bytes instead of {self._size}", reason="handover")
                self._arriving[peer] = ArrivingState(message)
            case Piece():
                return self._add(peer, message)
        self.changed.set()
        return Arrival.RECORDED

    @property
    def _donor(self) -> str | None:
        """Who gives this node a state without being asked, when it next joins; None: nobody."""
        entry = self._topology.next_entry(self._name, self._position.round + 1)
        return None if entry is None else next(iter(self._topology.donors(self._name, entry)), None)

    def _add(self, peer: NodeName, piece: Piece) -> Arrival:
        arriving = self._arriving.get(peer)
        if arriving is None:
            return Arrival.LATE  # it belongs to a state that was refused or given up
        try:
            arriving.add(piece)
        except PeerError:
            self.forget(peer)
            raise
        finally:
            self.changed.set()
        return Arrival.RECORDED

    # --- for the node that gets a state

    def expect(self, peer: NodeName | None) -> None:
        """This node has asked this peer."""
        self._expected = peer

    def arriving(self, peer: NodeName) -> ArrivingState | None:
        return self._arriving.get(peer)

    def forget(self, peer: NodeName) -> None:
        self._arriving.pop(peer, None)

    # --- for the node that gives one

    def take_asked(self, round: int) -> list[NodeName]:
        """The peers that want the state after this round, or after an earlier one. They are not returned again."""
        ready = [peer for peer, wanted in self.asked.items() if wanted <= round]
        for peer in ready:
            del self.asked[peer]
        return ready
