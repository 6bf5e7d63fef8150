"""The state that a peer hands over, as it arrives piece by piece. No clock, no sockets."""

import hashlib

from p2p_tally.errors import PeerError
from p2p_tally.protocol.frames import CHUNK_BYTES
from p2p_tally.protocol.messages import Piece, State


def pieces(data: bytes) -> list[Piece]:
    """The tensors of a state, as they are sent."""
    return [
        Piece(part, data[start : start + CHUNK_BYTES]) for part, start in enumerate(range(0, len(data), CHUNK_BYTES))
    ]


def piece_lengths(size: int) -> list[int]:
    """The bytes of each piece of a state."""
    return [min(CHUNK_BYTES, size - start) for start in range(0, size, CHUNK_BYTES)]


def digest_of(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


class ArrivingState:
    """One state from one peer. Pieces come in order, because a link keeps its order."""

    def __init__(self, head: State) -> None:
        self.head = head
        self._data = bytearray()
        self._parts = 0

    def add(self, piece: Piece) -> None:
        """The next piece; a PeerError if it is not the next, or if these are more bytes than announced."""
        if piece.part != self._parts:
            raise PeerError(f"piece {piece.part} of a state, {self._parts} is next", reason="handover")
        if len(self._data) + len(piece.data) > self.head.size:
            raise PeerError(f"more than the {self.head.size} bytes of a state", reason="handover")
        self._parts += 1
        self._data += piece.data
        if self.complete and digest_of(bytes(self._data)) != self.head.digest:
            raise PeerError("a state whose digest is not that of its bytes", reason="handover")

    @property
    def complete(self) -> bool:
        return len(self._data) == self.head.size

    @property
    def arrived(self) -> int:
        """Bytes so far."""
        return len(self._data)

    def data(self) -> bytes:
        return bytes(self._data)
