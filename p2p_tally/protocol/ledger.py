"""Counts every byte sent and received: payload (what the paper counts) and framed (what is written to the socket).

Bytes are counted by edge and stage. `settle` returns the totals of a round and adds them to those of the run, so the
size of a ledger depends on the number of edges and not on the number of rounds.
"""

from dataclasses import dataclass, field

from p2p_tally.ids import NodeName
from p2p_tally.protocol.messages import Stage


@dataclass(slots=True)
class Count:
    messages: int = 0
    payload: int = 0
    framed: int = 0

    def add(self, payload: int, framed: int, messages: int = 1) -> None:
        self.messages += messages
        self.payload += payload
        self.framed += framed

    def take(self, other: "Count") -> None:
        self.add(other.payload, other.framed, other.messages)


Book = dict[tuple[NodeName, Stage], Count]


@dataclass
class Ledger:
    """The bytes of one node. A key has the peer at the other end of the edge."""

    sent: Book = field(default_factory=dict)
    received: Book = field(default_factory=dict)
    _round_sent: Book = field(default_factory=dict)
    _round_received: Book = field(default_factory=dict)

    def book_sent(self, peer: NodeName, stage: Stage, payload: int, framed: int) -> None:
        _book(self._round_sent, peer, stage, payload, framed)

    def book_received(self, peer: NodeName, stage: Stage, payload: int, framed: int) -> None:
        _book(self._round_received, peer, stage, payload, framed)

    def settle(self) -> dict[Stage, Count]:
        """What was sent since the last call, by stage; it is added to the totals of the run."""
        by_stage: dict[Stage, Count] = {}
        for (_, stage), count in self._round_sent.items():
            by_stage.setdefault(stage, Count()).take(count)
        for book, into in ((self._round_sent, self.sent), (self._round_received, self.received)):
            for key, count in book.items():
                into.setdefault(key, Count()).take(count)
            book.clear()
        return by_stage

    def total_sent(self, stage: Stage | None = None) -> Count:
        """The total of the run so far, of settled rounds only."""
        return _total(self.sent, stage)

    def total_received(self, stage: Stage | None = None) -> Count:
        return _total(self.received, stage)


def _book(book: Book, peer: NodeName, stage: Stage, payload: int, framed: int) -> None:
    count = book.get((peer, stage))
    if count is None:
        count = book[peer, stage] = Count()
    count.add(payload, framed)


def _total(book: Book, stage: Stage | None) -> Count:
    total = Count()
    for (_, booked), count in book.items():
        if stage is None or booked is stage:
            total.take(count)
    return total
