"""Cuts a stream into WebSocket frames (RFC 6455), so that a proxy can repeat them or change their order.

Knows the header of a frame and nothing of what is in it. A stream that is no WebSocket stays one piece.
"""

from collections.abc import Iterator

BINARY = 2
_LONGEST = 1 << 24  # a frame that says to be longer is none


class Splitter:
    """One direction of one connection: an HTTP head, then frames."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._head = True
        self._lost = False  # what comes is not understood: it is passed on as it is

    def feed(self, data: bytes) -> Iterator[tuple[bool, bytes]]:
        """Whole pieces, and whether each is a frame with a message of an application."""
        if self._lost:
            yield False, data
            return
        self._rest += data
        if self._head:
            end = self._rest.find(b"\r\n\r\n")
            if end < 0:
                return
            yield False, self._take(end + 4)
            self._head = False
        while (length := self._frame()) is not None:
            if length > _LONGEST:
                self._lost = True
                yield False, self._take(len(self._rest))
                return
            if length > len(self._rest):
                return
            opcode = self._rest[0] & 0x0F
            yield opcode == BINARY, self._take(length)

    def rest(self) -> bytes:
        """What is no whole piece; for the end of the stream."""
        return self._take(len(self._rest))

    def _take(self, count: int) -> bytes:
        piece = bytes(self._rest[:count])
        del self._rest[:count]
        return piece

    def _frame(self) -> int | None:
        """The length of the next frame, header included; None while the header is not there."""
        rest = self._rest
        if len(rest) < 2:
            return None
        length, mask, header = rest[1] & 0x7F, 4 * (rest[1] >> 7), 2
        if length >= 126:
            width = 2 if length == 126 else 8
            if len(rest) < 2 + width:
                return None
            length, header = int.from_bytes(rest[2 : 2 + width], "big"), 2 + width
        return header + mask + length


def payload_start(frame: bytes) -> int:
    """Where the contents of a frame begin."""
    length = frame[1] & 0x7F
    return 2 + (2 if length == 126 else 8 if length == 127 else 0) + 4 * (frame[1] >> 7)
