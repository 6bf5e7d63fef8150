"""Frames of WebSockets (RFC 6455), to bytes and back. No sockets, no clock.

Bytes are read where they are needed: a long frame straight into a buffer of its own, which is then the message. Frames
without extensions only, as a link has them.
"""

import base64
import hashlib
import struct
from enum import IntEnum

import numpy as np

from p2p_tally.protocol.parameter_frames import TAIL

VERSION = "13"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

# Bytes of the buffer for headers and short frames.
SHORT_BUFFER = 4096
MOST_IN_CONTROL = 125

_LEN1, _LEN2, _LEN3 = struct.Struct("!BB"), struct.Struct("!BBH"), struct.Struct("!BBQ")
_TWO, _EIGHT = struct.Struct("!H"), struct.Struct("!Q")
_FINAL, _RESERVED, _OPCODE, _MASKED, _LENGTH = 0x80, 0x70, 0x0F, 0x80, 0x7F
# The key of frames that this side masks. Keys are there so that no page in a browser chooses the bytes that a proxy
# sees; a node is no browser. This key leaves the bytes as they are, and nobody has to go through them.
_OWN_KEY = bytes(4)


_ALIGNED = 64


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


_OPCODES = frozenset(Opcode)

PROTOCOL_ERROR, INVALID_TEXT, TOO_BIG = 1002, 1007, 1009
# Codes below 3000 that a close frame may have.
_CLOSE_CODES = frozenset((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014))

Payload = bytes | memoryview
Message = tuple[int, Payload]  # its opcode; a memoryview is of a buffer that nobody else has


class Violation(Exception):
    """The other side does not keep to the protocol; `code`: for the close frame that says so."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def accept_key(key: str) -> str:
    """What the accepting side answers to the key of a request."""
    return base64.b64encode(hashlib.sha1(key.strip().encode() + _GUID, usedforsecurity=False).digest()).decode()


def header(opcode: int, length: int, *, masked: bool) -> bytes:
    """The header of a frame that is a whole message."""
    first, mask = _FINAL | opcode, _MASKED if masked else 0
    if length < 126:
        start = _LEN1.pack(first, mask | length)
    elif length < 65_536:
        start = _LEN2.pack(first, mask | 126, length)
    else:
        start = _LEN3.pack(first, mask | 127, length)
    return start + _OWN_KEY if masked else start


def close_payload(code: int, text: bytes) -> bytes:
    return _TWO.pack(code) + text


def read_close(payload: Payload) -> tuple[int, str]:
    """Code and text of a close frame; 0 if it has none. Or a Violation."""
    if not payload:
        return 0, ""
    code = _TWO.unpack_from(payload)[0] if len(payload) > 1 else 0
    if code < 3000 and code not in _CLOSE_CODES:
        raise Violation(PROTOCOL_ERROR, f"a close frame with the code {code}")
    try:
        return code, bytes(payload[2:]).decode()
    except UnicodeDecodeError:
        raise Violation(INVALID_TEXT, "a close frame with a text that is no UTF-8") from None


def unmask(payload: bytearray | memoryview, key: bytes) -> None:
    """In place."""
    data = np.frombuffer(payload, np.uint8)
    whole = len(data) // 4 * 4
    words = data[:whole].view(np.uint32)
    words ^= np.frombuffer(key, np.uint32)
    data[whole:] ^= np.frombuffer(key, np.uint8)[: len(data) - whole]


def _aligned(length: int) -> memoryview:
    """A new buffer. Where it is the frame of parameters, these lie so that they can be computed with as they are."""
    spare = np.empty(length + _ALIGNED, np.uint8)
    start = (TAIL - length - int(spare.__array_interface__["data"][0])) % _ALIGNED
    return spare[start : start + length].data


class FrameReader:
    """Reads the frames of one connection. Its caller reads into `space()`, and says how much with `advance`."""

    def __init__(self, limit: int) -> None:
        """`limit`: messages of this length and longer are refused."""
        self.violation: Violation | None = None  # from then on nothing is read
        self._limit = limit
        self._short = memoryview(bytearray(SHORT_BUFFER))
        self._end = 0  # bytes in it
        self._long: memoryview | None = None  # the payload of a long frame that has come in part
        self._filled = 0
        self._first = 0  # of that frame: its first byte, and its key
        self._key = b""
        self._parts: bytearray | None = None  # of a message in several frames
        self._kind = 0

    def space(self) -> memoryview:
        """Where to read the next bytes to; never empty."""
        return self._short[self._end :] if self._long is None else self._long[self._filled :]

    def advance(self, count: int) -> list[Message]:
        """So many bytes have been read. Returns the messages that are complete now."""
        found: list[Message] = []
        if self.violation is not None:
            return found
        try:
            if self._long is None:
                self._end += count
                self._take_from_short(found)
            else:
                self._filled += count
                if self._filled == len(self._long):
                    self._end_long(found)
        except Violation as error:
            self.violation = error
            self._end, self._long, self._parts = 0, None, None
        return found

    def _take_from_short(self, found: list[Message]) -> None:
        """Take all frames that are complete; of the next one keep what has come."""
        at = 0
        while self._end - at >= 2:
            first, second = self._short[at], self._short[at + 1]
            length, start = second & _LENGTH, at + 2
            if length == 126:
                start += 2
            elif length == 127:
                start += 8
            masked = second & _MASKED
            if masked:
                start += 4
            if start > self._end:
                break
            if length == 126:
                (length,) = _TWO.unpack_from(self._short, at + 2)
            elif length == 127:
                (length,) = _EIGHT.unpack_from(self._short, at + 2)
            self._check(first, length)
            key = bytes(self._short[start - 4 : start]) if masked else b""
            stop = start + length
            if stop - at > SHORT_BUFFER:
                self._begin_long(first, key, length, start)
                return
            if stop > self._end:
                break
            payload = bytes(self._short[start:stop])
            if any(key):
                unmasked = bytearray(payload)
                unmask(unmasked, key)
                payload = bytes(unmasked)
            at = stop
            self._end_frame(first, payload, found)
        if at:
            left = self._end - at
            self._short[:left] = bytes(self._short[at : self._end])
            self._end = left

    def _begin_long(self, first: int, key: bytes, length: int, start: int) -> None:
        came = self._end - start
        self._long = _aligned(length)
        self._long[:came] = self._short[start : self._end]
        self._filled, self._first, self._key, self._end = came, first, key, 0

    def _end_long(self, found: list[Message]) -> None:
        payload = self._long
        assert payload is not None
        self._long = None
        if any(self._key):
            unmask(payload, self._key)
        self._end_frame(self._first, payload, found)

    def _check(self, first: int, length: int) -> None:
        """Whether a frame with this header may come now."""
        opcode = first & _OPCODE
        if first & _RESERVED:
            raise Violation(PROTOCOL_ERROR, "a frame with reserved bits")
        if opcode not in _OPCODES:
            raise Violation(PROTOCOL_ERROR, f"a frame with the opcode {opcode}")
        if opcode >= Opcode.CLOSE:
            if length > MOST_IN_CONTROL or not first & _FINAL:
                raise Violation(PROTOCOL_ERROR, "a control frame that is too long, or in parts")
            return
        if (opcode == Opcode.CONTINUATION) != (self._parts is not None):
            raise Violation(PROTOCOL_ERROR, "parts of messages out of order")
        whole = length + len(self._parts or b"")
        if whole >= self._limit:
            raise Violation(TOO_BIG, f"a message of {whole} bytes, less than {self._limit} are accepted")

    def _end_frame(self, first: int, payload: Payload, found: list[Message]) -> None:
        opcode, final = first & _OPCODE, first & _FINAL
        if self._parts is None or opcode >= Opcode.CLOSE:
            if final:
                found.append((opcode, payload))
            else:
                self._parts, self._kind = bytearray(payload), opcode
            return
        self._parts += payload
        if final:
            found.append((self._kind, bytes(self._parts)))
            self._parts = None
