"""A member that lies in merges: an honest node whose outgoing messages are changed.

Each kind is a function of the receiver and the message, which returns what is sent instead: the same message, another,
or none. Used by tests, and by scripts/rogue_merges.py.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from p2p_tally.defence.verdicts import DIGEST
from p2p_tally.ids import NodeName
from p2p_tally.node.node import Node
from p2p_tally.protocol import frames
from p2p_tally.protocol.messages import Announce, Message, Shard, Stage, Withdraw

LIAR = 4  # the rank of the member that lies

Tamper = Callable[[NodeName, Message], Message | None]


def values(message: Shard) -> np.ndarray:
    return np.frombuffer(message.data, "<f4").copy()


def with_values(message: Shard, new: np.ndarray) -> Shard:
    return replace(message, data=new.astype("<f4").tobytes())


def shards(stage: Stage, change: Callable[[NodeName, Shard], Message | None]) -> Tamper:
    """Changes the runs of one stage only."""

    def tamper(peer: NodeName, message: Message) -> Message | None:
        return change(peer, message) if isinstance(message, Shard) and message.stage is stage else message

    return tamper


def scaled(stage: Stage, factor: float) -> Tamper:
    return shards(stage, lambda _, message: with_values(message, values(message) * np.float32(factor)))


def number(peer: NodeName) -> int:
    return int(peer.removeprefix("node-"))


def in_one_half(peer: NodeName) -> bool:
    return number(peer) % 2 == 0


def nan(_: NodeName, message: Shard) -> Shard:
    return with_values(message, np.full_like(values(message), np.nan))


def too_short(_: NodeName, message: Shard) -> Shard:
    return replace(message, data=message.data[:-4] or b"12345678")


def nothing(_: NodeName, __: Message) -> None:
    return None


def announces(change: Callable[[NodeName, Announce], Message | None]) -> Tamper:
    return lambda peer, message: change(peer, message) if isinstance(message, Announce) else message


def empty_mask(_: NodeName, message: Message) -> Message:
    if isinstance(message, Announce):
        return replace(message, present=bytes(len(message.present)))
    if isinstance(message, Shard) and message.stage is Stage.ROLL and message.part == 0:
        return replace(message, data=bytes([len(message.data) - 1]) + bytes(len(message.data) - 1))
    return message


def two_masks(peer: NodeName, message: Message) -> Message:
    """Tells each half that it cannot reach the other."""
    if isinstance(message, Announce):
        half = 0b10101000 if in_one_half(peer) else 0b01010100
        return replace(message, present=bytes([half | 0b1000]))
    if isinstance(message, Shard) and message.stage is Stage.ROLL and message.part == 0:
        half = 0b10101000 if in_one_half(peer) else 0b01010100
        return replace(message, data=bytes([1, half]))
    return message


def does_not_hear(peer: int) -> Tamper:
    """In its roll it leaves one honest member out, which hears it."""

    def tamper(_: NodeName, message: Message) -> Message:
        if not isinstance(message, Shard) or message.stage is not Stage.ROLL or message.part:
            return message
        return replace(message, data=message.data[:1] + bytes([message.data[1] & ~(0x80 >> peer)]) + message.data[2:])

    return tamper


def withdraws(_: NodeName, message: Message) -> Message:
    return Withdraw(message.round) if isinstance(message, Shard) else message


def blames(peer: NodeName, message: Shard) -> Shard:
    """In its verdict it accuses one honest member, and at others another one."""
    if message.part:
        return message
    return replace(message, data=bytes([17]) + bytes(16) + (b"\x40" if in_one_half(peer) else b"\x20"))


def mean_for_each(peer: NodeName, message: Shard) -> Shard:
    return with_values(message, values(message) + np.float32(0.1 * number(peer)))


def stands_by_a_false_mean() -> Tamper:
    """Also the digest of its segment that it shows is that of the false mean: only the claims of others tell."""
    digest = b""

    def tamper(peer: NodeName, message: Message) -> Message:
        nonlocal digest
        if not isinstance(message, Shard):
            return message
        if message.stage is Stage.GATHER:
            message = with_values(message, values(message) * np.float32(-5))
            digest = hashlib.sha256(message.data).digest()[:DIGEST]
        elif message.stage is Stage.CHECK and message.part % 2 == 0:
            start = LIAR * DIGEST
            message = replace(message, data=message.data[:start] + digest + message.data[start + DIGEST :])
        return message

    return tamper


# What one member does in every merge.
KINDS: dict[str, Tamper] = {
    "parameters of 1e30": scaled(Stage.SCATTER, 1e30),
    "parameters times 100": scaled(Stage.SCATTER, 100),
    "parameters times -10": scaled(Stage.SCATTER, -10),
    "a false mean": scaled(Stage.GATHER, -5),
    "a false mean that it stands by": stands_by_a_false_mean(),
    "another mean for each": shards(Stage.GATHER, mean_for_each),
    "a false mean for one half": shards(
        Stage.GATHER, lambda peer, message: scaled(Stage.GATHER, -5)(peer, message) if in_one_half(peer) else message
    ),
    "announced to one half": announces(lambda peer, message: message if in_one_half(peer) else None),
    "other masks to two halves": two_masks,
    "an empty mask": empty_mask,
    "NaN contributed": shards(Stage.SCATTER, nan),
    "NaN as mean": shards(Stage.GATHER, nan),
    "contributions of the wrong length": shards(Stage.SCATTER, too_short),
    "means of the wrong length": shards(Stage.GATHER, too_short),
    "contributions withheld": shards(Stage.SCATTER, nothing),
    "means withheld": shards(Stage.GATHER, nothing),
    "means withheld from one": shards(Stage.GATHER, lambda peer, message: None if number(peer) == 1 else message),
    "withdrawn": withdraws,
    "rolls withheld": shards(Stage.ROLL, nothing),
    "verdicts withheld": shards(Stage.VERDICT, nothing),
    "checks withheld": shards(Stage.CHECK, nothing),
    "false checks": shards(Stage.CHECK, lambda _, message: replace(message, data=bytes(len(message.data)))),
    "two honest members blamed": shards(Stage.VERDICT, blames),
    "one honest member not heard": does_not_hear(1),
    "garbled verdicts": shards(Stage.VERDICT, lambda _, message: replace(message, data=b"\xff" * 9)),
}


def withholds_at_random(seed: int, share: float) -> Tamper:
    """Of what it sends in merges, to whomever, it withholds this share."""
    rng = np.random.default_rng(seed)
    return lambda _, message: None if isinstance(message, Shard) and rng.random() < share else message


def make_rogue(node: Node, tamper: Tamper) -> None:
    """From now on this node lies."""
    outbox = node.outbox
    send = outbox.send

    def sent(peer: NodeName, message: Message, frame: bytes) -> bool:
        changed = tamper(peer, message)
        if changed is None:
            return True
        return send(peer, changed, frame if changed is message else frames.encode(changed))

    outbox.send = sent  # type: ignore[method-assign]
