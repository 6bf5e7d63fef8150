"""What somebody on the network between two daemons sees of a whole run: nothing but TLS.

Two daemons in two network namespaces, with every packet between them written down. A simulation of the same federation,
which has the same bits, gives what to search for: the frames of votes, the parameters of every merge, the probes, the
words of requests and hellos. The search must find none of these with TLS; on a second run with plain links it must find
them, which tests the search.

A third capture is of found, invite, join and the run that follows. There the probes travel, with the options and the
members' list; the files in the founder's home say what to search for, and that the search finds it in them.

    sudo python scripts/wire_capture.py

It needs Linux, `ip` and the rights of root, to make the namespaces and to listen to them.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from p2p_tally.config import Federation, ServiceSettings, write_options
from p2p_tally.ids import NodeName, ranked_names
from p2p_tally.learning.setup import prepare
from p2p_tally.node.links.memory import MemoryNetwork
from p2p_tally.protocol import frames
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.messages import Shard, Vote
from p2p_tally.runner.simulation.simulate import simulate
from p2p_tally.trust.identity import make_identity

FEDERATION = {"nodes": 2, "rounds": 12, "warmup": 2, "merge_every": 4, "local_steps": 2, "batch": 8, "ballot": "byte"}
NAMES = ranked_names(2)
SPACES = [f"p2pt-{os.getpid()}-{number}" for number in range(2)]
ADDRESSES = ["10.213.77.1", "10.213.77.2"]
PORT = 7001
WINDOW = 8  # bytes in a row that are taken for a find
WORDS = (b"/p2p-tally", b"Sec-WebSocket", b"merge_every", b"probe set", b"node-0", b"node-1")
# Probes are known to both sides before, and never sent; the others are sent in plain text where links are plain.
SENT = ("words", "votes", "parameters")


@dataclass(frozen=True)
class Needles:
    """What to search for, as runs of bytes."""

    votes: frozenset[bytes]
    parameters: frozenset[bytes]
    probes: frozenset[bytes]
    digests: list[str]  # of the parameters that the daemons must end with


def windows(data: bytes, step: int) -> Iterator[bytes]:
    """Runs of bytes that say something: zeros and the like are everywhere."""
    for at in range(0, len(data) - WINDOW + 1, step):
        run = data[at : at + WINDOW]
        if len(set(run)) >= 4:
            yield run


def needles(federation: Federation) -> Needles:
    votes: set[bytes] = set()
    parameters: set[bytes] = set()
    limits = Limits(1 << 24)
    carry = MemoryNetwork.carry

    def listen(self: MemoryNetwork, sender: NodeName, receiver: NodeName, frame: bytes) -> None:
        message = frames.decode(frame, limits)
        if isinstance(message, Vote):
            votes.update(windows(frame, 1))
        elif isinstance(message, Shard):
            parameters.update(windows(message.data, 4))
        carry(self, sender, receiver, frame)

    setattr(MemoryNetwork, "carry", listen)  # noqa: B010 - for this process only
    simulated = simulate(federation)
    pool, _ = (examples := prepare(federation).probes.examples).take(torch.arange(len(examples)))
    probes = frozenset(windows(pool.float().numpy().tobytes()[: 1 << 22], 4))
    return Needles(frozenset(votes), frozenset(parameters), probes, simulated.parameters_sha256)


def found(capture: bytes, needles: Needles) -> dict[str, int]:
    """How many runs of each kind are in the capture."""
    runs = {capture[at : at + WINDOW] for at in range(len(capture) - WINDOW + 1)}
    return {
        "words": sum(word in capture for word in WORDS),
        "votes": len(runs & needles.votes),
        "parameters": len(runs & needles.parameters),
        "probes": len(runs & needles.probes),
    }


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"ip {' '.join(arguments)}: {done.stderr.strip()}; this needs the rights of root and network namespaces"
        )


@contextmanager
def two_hosts() -> Iterator[None]:
    """Two network namespaces with a cable between them."""
    ends = [f"v{os.getpid()}-{number}" for number in range(2)]
    try:
        for space in SPACES:
            ip("netns", "add", space)
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for space, end, address in zip(SPACES, ends, ADDRESSES, strict=True):
            ip("link", "set", end, "netns", space)
            ip("-n", space, "addr", "add", f"{address}/24", "dev", end)
            ip("-n", space, "link", "set", end, "up")
            ip("-n", space, "link", "set", "lo", "up")
        yield
    finally:
        for space in SPACES:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def inside(space: str, *command: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(["ip", "netns", "exec", space, sys.executable, *command], text=True, **options)


def listen_to(file: Path) -> None:
    """Write down the TCP payload of every packet, until told to stop."""
    everything = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(0x0003))
    everything.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
    streams: dict[bytes, bytearray] = {}

    def stop(*_: object) -> None:
        file.write_bytes(b"".join(streams.values()))
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    print("listening", flush=True)
    while True:
        packet = everything.recv(1 << 17)
        if packet[12:14] != b"\x08\x00" or packet[23] != 6:  # IPv4, TCP
            continue
        segment = packet[14 + 4 * (packet[14] & 15) : 14 + int.from_bytes(packet[16:18], "big") or None]
        # By the ends of each direction, so that what one side says stays together.
        streams.setdefault(packet[26:34] + segment[:4], bytearray()).extend(segment[4 * (segment[12] >> 4) :])


def captured(federation: Federation, folder: Path, digests: list[str], *, secure: bool) -> bytes:
    """Every byte of TCP between the two daemons of a run."""
    folder.mkdir()
    capture = folder / "capture"
    ear = inside(SPACES[0], __file__, "--listen-to", str(capture), stdout=subprocess.PIPE)
    assert ear.stdout is not None and ear.stdout.readline() == "listening\n"
    write_options(folder / "federation.toml", federation, ServiceSettings(device="cpu", checkpoint_every=0))
    keys = {name: make_identity(folder / name) for name in NAMES}
    daemons = []
    for rank, (name, space, address) in enumerate(zip(NAMES, SPACES, ADDRESSES, strict=True)):
        pin = f"#{keys[NAMES[1 - rank]].fingerprint}" if secure else ""
        options = ["--config", str(folder / "federation.toml"), "--topology", "mesh", "--name", name]
        options += ["--rank", str(rank), "--listen", f"{address}:{PORT}", "--out", str(folder / f"out-{name}")]
        options += ["--peers", f"{NAMES[1 - rank]}={ADDRESSES[1 - rank]}:{PORT}{pin}"]
        options += ["--home", str(folder / name)] if secure else ["--insecure"]
        command = ("-m", "p2p_tally", "node", "--json", *options)
        log = (folder / f"{name}.log").open("w")
        daemons.append(inside(space, *command, stdout=subprocess.PIPE, stderr=log))
    ends = []
    for name, daemon in zip(NAMES, daemons, strict=True):
        text, _ = daemon.communicate(timeout=240)
        if daemon.returncode:
            sys.exit(f"{name} ended with {daemon.returncode}: {(folder / f'{name}.log').read_text()[-2000:]}")
        ends.append(json.loads(text)["parameters_sha256"])
    ear.terminate()
    ear.wait(30)
    if ends != digests:
        sys.exit("the daemons did not end with the parameters of the simulation: there is nothing to search for")
    return capture.read_bytes()


def joined(folder: Path) -> tuple[bytes, dict[str, bytes]]:
    """Every byte of TCP while a federation is founded and joined, and until it has played its rounds; and what went
    over it, by kind."""
    folder.mkdir()
    capture = folder / "capture"
    ear = inside(SPACES[0], __file__, "--listen-to", str(capture), stdout=subprocess.PIPE)
    assert ear.stdout is not None and ear.stdout.readline() == "listening\n"
    homes = [folder / name for name in ("alice", "bob")]
    shared = [f"--{key.replace('_', '-')}={value}" for key, value in FEDERATION.items() if key != "nodes"]
    own = [["--listen", f"{address}:{PORT}", "--device", "cpu"] for address in ADDRESSES]
    done(SPACES[0], "found", "--name", "alice", *shared, *own[0], "--home", str(homes[0]))
    line = done(SPACES[0], "invite", "bob", "--home", str(homes[0]))
    logs = [(folder / f"{home.name}.log").open("w") for home in homes]
    alice = inside(SPACES[0], "-m", "p2p_tally", "node", "--home", str(homes[0]), stderr=logs[0])
    words = ("join", line, *own[1], "--home", str(homes[1]))
    bob = inside(SPACES[1], "-m", "p2p_tally", *words, stderr=logs[1])
    for home, process in zip(homes, (alice, bob), strict=True):
        if process.wait(timeout=240):
            sys.exit(
                f"{home.name} ended with {process.returncode}: {(folder / f'{home.name}.log').read_text()[-2000:]}"
            )
    ear.terminate()
    ear.wait(30)
    (model,) = (homes[0] / "run").rglob("alice.safetensors")
    with np.load(homes[0] / "probes.npz") as archive:
        probes = b"".join(archive[name].tobytes() for name in archive.files)
    texts = [(homes[0] / file).read_bytes() for file in ("federation.toml", "members.jsonl")]
    sent = {"probes": probes, "options": texts[0], "list": texts[1], "parameters": last_merge(model)}
    return capture.read_bytes(), {**sent, "invitation": line.encode()}


def last_merge(model: Path) -> bytes:
    """The last round is a merge, so the model that is left is what went over the link."""
    return b"".join(tensor.numpy().tobytes() for tensor in load_file(model).values())


def done(space: str, *words: str) -> str:
    """A command that succeeds; returns what it prints."""
    process = inside(space, "-m", "p2p_tally", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=240)
    if process.returncode:
        sys.exit(f"{words[0]} ended with {process.returncode}: {err}")
    return str(out).strip()


def search_join(folder: Path) -> None:
    """Exit with a message if something of a join is in the clear."""
    capture, sent = joined(folder)
    runs = {capture[at : at + WINDOW] for at in range(len(capture) - WINDOW + 1)}
    wanted = {kind: set(windows(content[: 1 << 22], 1)) for kind, content in sent.items()}
    seen = {kind: len(runs & search) for kind, search in wanted.items()}
    sizes = {kind: len(search) for kind, search in wanted.items()}
    print(f"found, invite, join: {len(capture):,} bytes of TCP; of {sizes} runs found {seen}", flush=True)
    if len(capture) < len(sent["probes"]) or not all(sizes.values()):
        sys.exit("the capture is too short to have the probes in it: there is nothing to search for")
    if any(seen.values()):
        sys.exit("something of a join went over the network in the clear")


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--listen-to":
        listen_to(Path(sys.argv[2]))
    if os.geteuid() or not hasattr(socket, "AF_PACKET"):
        sys.exit("wire_capture.py needs Linux and the rights of root: it makes network namespaces and listens to them")
    federation = Federation.parse(FEDERATION)
    wanted = needles(federation)
    results = {}
    with tempfile.TemporaryDirectory() as folder, two_hosts():
        for kind in ("plain", "tls"):
            capture = captured(federation, Path(folder) / kind, wanted.digests, secure=kind == "tls")
            results[kind] = found(capture, wanted)
            print(f"{kind}: {len(capture):,} bytes of TCP; found {results[kind]}", flush=True)
        search_join(Path(folder) / "join")
    if not all(results["plain"][kind] for kind in SENT):
        sys.exit("the search does not find on plain links what goes over them")
    if any(results["tls"].values()):
        sys.exit("something went over TLS links in the clear")
    print("nothing in the clear")


if __name__ == "__main__":
    main()
