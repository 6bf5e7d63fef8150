"""The messages of one round as a table: who sends how many bytes to whom, at which stage. Knows no time.

The exact engine notes messages as its nodes send them (`Noted`). The stacked engine sends none: its table follows from
the graph and the sizes (`table_of`). Tests check that both are the same, row by row.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from p2p_tally.ids import NodeName
from p2p_tally.node.flows import Flow
from p2p_tally.node.links.outbox import Outbox, framed_bytes
from p2p_tally.protocol import frames
from p2p_tally.protocol.messages import Announce, Message, Piece, Ready, Relayed, Shard, Stage, State, Vote

# (sender, receiver, stage, part, framed bytes, origin, hops) of one message; nodes as ranks.
Row = tuple[int, int, int, int, int, int, int]


class Messages(NamedTuple):
    """The messages of a round, a column each [M]; sorted by sender, and for each sender by receiver."""

    sender: np.ndarray
    receiver: np.ndarray
    stage: np.ndarray
    part: np.ndarray
    size: np.ndarray  # framed bytes
    origin: np.ndarray  # who wrote it: the sender, unless it is passed on
    hops: np.ndarray  # links that it has passed when it arrives

    @classmethod
    def of(cls, columns: np.ndarray) -> "Messages":
        """From columns [7, M] in any order."""
        order = np.lexsort((columns[5], columns[3], columns[2], columns[1], columns[0]))
        return cls(*columns[:, order])

    def where(self, chosen: np.ndarray) -> "Messages":
        return Messages(*(column[chosen] for column in self))


def table_of(flows: Iterable[Flow]) -> Messages:
    """The table of a round whose flows are known."""
    parts = [np.empty((7, 0), np.int64)]
    for message, sender, receiver, origin, hops in flows:
        length, count = len(frames.encode(message)), len(sender)
        plain, masked = (length + frames.websocket_header(length, masked=mask) for mask in (False, True))
        size = np.where(sender < receiver, masked, plain)  # of two neighbours the one with the smaller rank dials
        stage, part = np.full(count, message.stage), np.full(count, _part(message))
        parts.append(np.stack([sender, receiver, stage, part, size, origin, hops]))
    return Messages.of(np.concatenate(parts, axis=1))


class Noted:
    """Collects the messages that nodes send, by round."""

    def __init__(self, names: Iterable[NodeName]) -> None:
        self._ranks = {name: rank for rank, name in enumerate(names)}
        self._rows: dict[int, list[Row]] = {}
        self._handing: dict[tuple[NodeName, NodeName], int] = {}  # the round before which a newcomer gets its state

    def note(self, outbox: Outbox, receiver: NodeName, message: Message) -> None:
        """A node has sent this message."""
        sender = outbox.name
        ends = sender, receiver
        if isinstance(message, State):
            self._handing[ends] = message.round + 1
        round = self._handing[ends] if isinstance(message, State | Piece) else _round(message)
        if round is None:
            return  # nobody waits for it
        length = len(frames.encode(message))
        rank, origin, hops = self._ranks[sender], self._ranks[sender], 1
        if isinstance(message, Relayed):
            origin, hops = message.origin, message.hops
        size = framed_bytes(length, masked=outbox.transport.masks(receiver))
        row = rank, self._ranks[receiver], int(message.stage), _part(message), size
        self._rows.setdefault(round, []).append((*row, origin, hops))

    def take(self, round: int) -> Callable[[], Messages]:
        """The messages of a round, which is over."""
        rows = self._rows.pop(round, [])
        return lambda: Messages.of(np.array(rows, np.int64).reshape(-1, 7).T)


def _round(message: Message) -> int | None:
    if isinstance(message, Relayed):
        return message.message.round
    return message.round if isinstance(message, Vote | Ready | Announce | Shard) else None


def _part(message: Message) -> int:
    """Which run of parameters it is. A vote and an announcement have one part."""
    return message.part if isinstance(message, Shard | Piece) else 0


HANDOVER, VOTES, MERGES = (
    (Stage.HANDOVER,),
    (Stage.VOTE, Stage.READY),
    (Stage.ANNOUNCE, Stage.ROLL, Stage.VECTOR, Stage.SCATTER, Stage.GATHER, Stage.CHECK, Stage.VERDICT),
)
