"""What the kernel knows of a link's socket: its byte counters, and how to cut it. Linux counts; elsewhere nothing."""

import os
import socket
import struct
from dataclasses import dataclass
from typing import Any, Protocol

# struct tcp_info of linux/tcp.h: bytes_acked and bytes_received, since Linux 4.1.
_BYTES_AT = 120
_BYTES = struct.Struct("=QQ")


class HasSocket(Protocol):
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


@dataclass(frozen=True)
class KernelCount:
    """Bytes of the stream: without TCP and IP headers, without retransmissions."""

    sent: int
    received: int


def kernel_count(link: HasSocket) -> KernelCount | None:
    """What the kernel has carried for this connection so far; None where it does not say."""
    found = link.get_extra_info("socket")
    if found is None or not hasattr(socket, "TCP_INFO") or found.fileno() < 0:
        return None
    with socket.socket(fileno=os.dup(found.fileno())) as copy:
        info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_AT + _BYTES.size)
    if len(info) < _BYTES_AT + _BYTES.size:
        return None
    acknowledged, received = _BYTES.unpack_from(info, _BYTES_AT)
    return KernelCount(acknowledged, received)


def cut(link: HasSocket) -> None:
    """End a connection at once, whatever is still queued on it."""
    found = link.get_extra_info("socket")
    if found is not None and found.fileno() >= 0:
        with socket.socket(fileno=os.dup(found.fileno())) as copy:
            try:
                copy.shutdown(socket.SHUT_RDWR)
            except OSError:  # it had ended already
                return


def watch_for_silence(link: HasSocket, seconds: int) -> None:
    """Let the kernel probe a quiet connection, so that a vanished machine is noticed without a message of ours."""
    found = link.get_extra_info("socket")
    if found is None or found.fileno() < 0 or not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    with socket.socket(fileno=os.dup(found.fileno())) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, seconds // 3))
        copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // 3))
        copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)
