"""What a connection between two nodes carries, byte by byte: a program between them counts what both send.

python scripts/bench/connection.py [--rounds 30]
"""

import argparse
import asyncio
import contextlib
import logging
import socket
import tempfile
from collections import Counter
from pathlib import Path

import msgpack

from p2p_tally.config import DaemonSettings, Federation
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol.messages import Kind

BINARY, CLOSE = 2, 8
NAMES = "alice", "bob"  # the smaller name dials


def take_apart(stream: bytes) -> Counter[str]:
    """Bytes by their purpose: the HTTP upgrade, and WebSocket frames with their headers by kind of message."""
    upgrade = stream.index(b"\r\n\r\n") + 4
    found = Counter({"HTTP upgrade": upgrade})
    at = upgrade
    while at < len(stream):
        opcode, masked, length = stream[at] & 15, stream[at + 1] >> 7, stream[at + 1] & 127
        wide = {126: 2, 127: 8}.get(length, 0)
        if wide:
            length = int.from_bytes(stream[at + 2 : at + 2 + wide])
        mask_at = at + 2 + wide
        body_at = mask_at + 4 * masked
        body = stream[body_at : body_at + length]
        if masked:
            mask = stream[mask_at:body_at]
            body = bytes(byte ^ mask[place % 4] for place, byte in enumerate(body))
        name = "WebSocket close"
        if opcode == BINARY:
            name = f"`{Kind(msgpack.unpackb(body)[0]).name.lower()}`"
        found[name] += body_at + length - at
        at = body_at + length
    return found


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: bytearray) -> None:
    with contextlib.suppress(OSError):  # either end may close first
        while piece := await reader.read(65_536):
            seen += piece
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


async def run(federation: Federation, out: Path) -> tuple[list[dict[str, object]], list[bytes]]:
    """The results of both nodes, and what each sent."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in NAMES]
    ports = [listener.getsockname()[1] for listener in listeners]
    sent = bytearray(), bytearray()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", ports[1])
        await asyncio.gather(copy(reader, far_writer, sent[0]), copy(far_reader, writer, sent[1]))
        writer.close()
        far_writer.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    seen_ports = [ports[0], server.sockets[0].getsockname()[1]]
    daemons = []
    for rank, name in enumerate(NAMES):
        peer = 1 - rank
        values = {"name": name, "rank": rank, "listen": f"127.0.0.1:{ports[rank]}", "out": out, "device": "cpu"}
        values |= {"peers": f"{NAMES[peer]}=127.0.0.1:{seen_ports[peer]}"}
        daemons.append(Daemon(federation, DaemonSettings.parse(values), membership=True, inherited=listeners[rank]))
    async with server:
        results = await asyncio.gather(*(daemon.run() for daemon in daemons))
    return list(results), [bytes(stream) for stream in sent]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    federation = Federation(nodes=2, rounds=arguments.rounds, merge_every=0)
    with tempfile.TemporaryDirectory() as folder:
        results, streams = asyncio.run(run(federation, Path(folder)))
    parts = [take_apart(stream) for stream in streams]
    kinds = dict.fromkeys(kind for part in parts for kind in part)
    rows = {kind: [f"{part[kind]:,}" for part in parts] for kind in kinds}
    rows["carried"] = [f"{len(stream):,}" for stream in streams]
    for field in ("framed_bytes", "stream_bytes"):
        rows[f"`{field}` in the node's own JSON"] = [f"{result[field]:,}" for result in results]
    print(f"| | {NAMES[0]}, who dials | {NAMES[1]} |\n| --- | ---: | ---: |")
    for kind, counts in rows.items():
        print(f"| {kind} | {' | '.join(counts)} |")


if __name__ == "__main__":
    main()
