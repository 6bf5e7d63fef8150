"""Names, digests and derived seeds: the small values that every layer uses."""

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NewType

from p2p_tally.errors import ConfigError

NodeName = NewType("NodeName", str)
Digest = NewType("Digest", str)

# A name travels in frames, file names and metric labels, so it is short and plain.
NAME_LENGTH = 64
_NAME = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:\-\[\]]*")  # brackets are those of [IPv6]:PORT


def node_name(text: str) -> NodeName:
    """`text` as a node name, or a ConfigError that says what a name may be."""
    if len(text) > NAME_LENGTH or not _NAME.fullmatch(text):
        raise ConfigError(
            f"name {text!r}: accepted are 1 to {NAME_LENGTH} letters, digits or . _ : - [ ], the first no . _ : - ]"
        )
    return NodeName(text)


def ranked_names(count: int) -> list[NodeName]:
    """The names of a federation that a harness makes: node-0, node-1, ..."""
    return [NodeName(f"node-{rank}") for rank in range(count)]


@lru_cache(maxsize=65_536)  # asked for every message of a round
def name_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """The order of names: digits count as numbers, so node-2 stands before node-10."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts if part)


def in_order(names: Iterable[NodeName]) -> list[NodeName]:
    """Names sorted the one way that sums, tallies and outputs use."""
    return sorted(names, key=name_key)


def file_name(name: NodeName) -> str:
    """A node's name as part of a path."""
    return name.replace(":", "_")


def digest(*parts: bytes | memoryview) -> Digest:
    """SHA-256 of the parts, each framed by its length so that no two lists of parts collide."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return Digest(hasher.hexdigest())


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose, independent of every other purpose of the same federation seed."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
