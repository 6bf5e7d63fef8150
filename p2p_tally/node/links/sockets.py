"""The kernel's byte counters for the socket of a link (on Linux only), and how to end a connection at once."""

import os
import socket
import struct
from dataclasses import dataclass
from typing import Any, Protocol

# Offsets in struct tcp_info of linux/tcp.h: options (all versions), bytes_acked and bytes_received (since Linux 4.1),
# segs_out and segs_in (4.2), bytes_sent and bytes_retrans (4.19).
_OPTIONS_AT, _BYTES_AT, _SEGMENTS_AT, _SENT_AT = 5, 120, 136, 200
_TWO_LONG, _TWO_SHORT, _LONG = struct.Struct("=QQ"), struct.Struct("=II"), struct.Struct("=Q")
_TIMESTAMPS = 1

IPV4_HEADER, IPV6_HEADER, TCP_HEADER, TIMESTAMP_OPTION = 20, 40, 20, 12


class HasSocket(Protocol):
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


def extra_info(link: HasSocket, name: str) -> Any:
    """What the transport of a connection says of it; None if the connection has ended."""
    try:
        return link.get_extra_info(name)
    except AttributeError:  # uvloop: TLS has broken, and its transport has nothing left to ask
        return None


@dataclass(frozen=True)
class KernelCount:
    """Bytes of connections: of the stream alone, and on the wire with TCP and IP headers and retransmissions.

    The wire bytes are computed from the kernel's count of segments, including acknowledgements: each has 40 bytes of
    headers, 60 over IPv6, and 12 more with TCP timestamps, which are usual. The first segment of a connection has a few
    bytes more, which are not counted.
    """

    sent: int = 0  # acknowledged by the peer
    received: int = 0
    wire_sent: int = 0
    wire_received: int = 0

    def __add__(self, other: "KernelCount") -> "KernelCount":
        return KernelCount(
            self.sent + other.sent,
            self.received + other.received,
            self.wire_sent + other.wire_sent,
            self.wire_received + other.wire_received,
        )


class Meter:
    """Reads the kernel's counters of one connection, also after the connection was closed, until the meter is closed.

    It has its own descriptor of the socket: the transport closes its descriptor as soon as the peer disconnects, and
    the counters would be lost. The kernel sends the last segment only when all descriptors are closed, so close the
    meter soon.
    """

    def __init__(self, link: HasSocket) -> None:
        found = extra_info(link, "socket")
        self._socket: socket.socket | None = None
        if found is not None and hasattr(socket, "TCP_INFO") and found.fileno() >= 0:
            self._socket = socket.socket(fileno=os.dup(found.fileno()))

    def count(self) -> KernelCount | None:
        """The bytes so far; None where the kernel does not count them."""
        if self._socket is None:
            return None
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SENT_AT + _LONG.size)
        if len(info) < _BYTES_AT + _TWO_LONG.size:
            return None
        acknowledged, received = _TWO_LONG.unpack_from(info, _BYTES_AT)
        if len(info) < _SENT_AT + _LONG.size:
            return KernelCount(acknowledged, received)
        header = TCP_HEADER + (TIMESTAMP_OPTION if info[_OPTIONS_AT] & _TIMESTAMPS else 0)
        header += IPV6_HEADER if self._socket.family == socket.AF_INET6 else IPV4_HEADER
        segments_out, segments_in = _TWO_SHORT.unpack_from(info, _SEGMENTS_AT)
        (sent,) = _LONG.unpack_from(info, _SENT_AT)  # includes retransmissions
        return KernelCount(acknowledged, received, sent + header * segments_out, received + header * segments_in)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def cut(link: HasSocket) -> None:
    """End a connection at once; queued bytes are lost."""
    found = extra_info(link, "socket")
    if found is not None and found.fileno() >= 0:
        with socket.socket(fileno=os.dup(found.fileno())) as copy:
            try:
                copy.shutdown(socket.SHUT_RDWR)
            except OSError:  # it had ended already
                return


def watch_for_silence(link: HasSocket, seconds: int) -> None:
    """Let the kernel probe an idle connection, so that it notices when the other machine has disappeared."""
    found = extra_info(link, "socket")
    if found is None or found.fileno() < 0 or not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    with socket.socket(fileno=os.dup(found.fileno())) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, seconds // 3))
        copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // 3))
        copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)
