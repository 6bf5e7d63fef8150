"""Every byte sent and received: payload (what the paper counts) and framed (what the socket is handed).

Booked by edge and stage for each round; `settle` gives a round's totals and folds them into the run's, so that a
ledger's size follows the number of edges, never the number of rounds.
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
    """One node's bytes. Keys name the peer at the other end of the edge."""

    sent: Book = field(default_factory=dict)
    received: Book = field(default_factory=dict)
    _round_sent: Book = field(default_factory=dict)
    _round_received: Book = field(default_factory=dict)

    def book_sent(self, peer: NodeName, stage: Stage, payload: int, framed: int) -> None:
        _book(self._round_sent, peer, stage, payload, framed)

    def book_received(self, peer: NodeName, stage: Stage, payload: int, framed: int) -> None:
        _book(self._round_received, peer, stage, payload, framed)

    def settle(self) -> dict[Stage, Count]:
        """What was sent since the last call, by stage; from now on it is part of the run's totals."""
        by_stage: dict[Stage, Count] = {}
        for (_, stage), count in self._round_sent.items():
            by_stage.setdefault(stage, Count()).take(count)
        for book, into in ((self._round_sent, self.sent), (self._round_received, self.received)):
            for key, count in book.items():
                into.setdefault(key, Count()).take(count)
            book.clear()
        return by_stage

    def total_sent(self, stage: Stage | None = None) -> Count:
        """The run's total so far, settled rounds only."""
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
