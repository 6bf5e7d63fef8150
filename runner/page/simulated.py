"""Fills the book of a page from a simulation: its lines, and the votes at each evaluated round."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from p2p_tally.ids import NodeName
from p2p_tally.learning.setup import make_model
from p2p_tally.node.page.budget import budget
from p2p_tally.node.page.feed import MERGES, VOTES, describe
from p2p_tally.node.page.views import Decode, decoder, probe_views
from p2p_tally.page.book import Book
from p2p_tally.page.votes import COMPARED, vote_record
from p2p_tally.runner.page.server import PageServer
from p2p_tally.runner.runs.round_lines import RoundLog
from p2p_tally.runner.runs.run import RoundLine
from p2p_tally.runner.simulation.simulate import Watch
from p2p_tally.topologies import Epochs, Topology

# Of larger federations only the first nodes are shown.
MOST_NODES = 64

# The share of the last line in the usual time of a round.
NEWEST = 0.2


class SimulationFeed:
    """Takes the lines of one simulation. A line is booked when it comes; its votes only when somebody looks."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._names: list[str] = []  # of the nodes that are shown
        self._nodes = 0  # all of them
        self._last_rounds: dict[str, int] = {}  # that each of them plays
        self._links: dict[str, list[str]] = {}
        self._sent = [0.0, 0.0]  # by votes and by merges, payload of a peer on average
        self._last = 0  # round
        self._pace: float | None = None
        self._decode: Decode | None = None
        self._votes: tuple[int, RoundLog, dict[str, Any]] | None = None

    def begin(self, lines: RoundLog, topology: Topology, parameters: int, before: Sequence[RoundLine] = ()) -> None:
        """Before the first round. `before`: the lines of a run that continues after an interruption."""
        federation, classes = lines.run.federation, lines.task.classes
        self._names = lines.run.names[:MOST_NODES]
        self._nodes = federation.nodes
        self._last_rounds = {name: topology.last_round(name, federation.rounds) for name in self._names}
        self._decode = decoder(lines.task.tokenizer)
        # Of graphs that never repeat the first, unless members change: then all links are shown that are ever used.
        several = isinstance(topology, Epochs)
        graph = topology.union(federation.rounds if several else min(federation.rounds, topology.period or 1))
        shown = set(self._names)
        self._links = {name: sorted(shown.intersection(graph.neighbors(name))) for name in self._names}
        sizes = lines.task.probes.votes_per_round, classes, parameters
        about = describe(federation, classes) | {"budget": budget(federation, topology, *sizes)}
        self._book.describe(about | {"shown": len(self._names)})
        for name in self._names:
            self._book.put_state(name, self._state("waiting", 0, None))
        for line in before:
            self.take(line)

    def take(self, line: RoundLine, log: RoundLog | None = None, votes: Any = None) -> None:
        """A line is there; `votes` [n, P] on the probes of `log`, of those who took part."""
        for place, stages in enumerate((VOTES, MERGES)):
            names = {stage.name.lower() for stage in stages}
            self._sent[place] += sum(counts["payload"] for kind, counts in line.sent.items() if kind in names)
        # The seconds of a line are those of a node, and one process plays them all.
        seconds = sum(line.seconds.values()) * self._nodes / max(1, line.round - self._last)
        self._pace = seconds if self._pace is None else (1 - NEWEST) * self._pace + NEWEST * seconds
        self._last = line.round
        rest = max(0.0, line.payload_bytes - sum(self._sent))
        sent = [round(value) for value in (*self._sent, rest)]
        for name, accuracy in zip(self._names, line.accuracy, strict=False):
            last = self._last_rounds[name]
            if not math.isfinite(accuracy):  # it does not take part
                if line.round > last:
                    self._book.put_state(name, self._state("done", last, None))
                continue
            known = round(accuracy, 2)
            if line.merged:
                self._book.add_merge(name, line.round)
            self._book.add_point(name, [line.round, known, *sent])
            state = self._state("done" if line.round == last else "playing", line.round, known)
            self._book.put_state(name, state | {"links": self._carried(name, line.framed_bytes)})
        if log is not None and votes is not None:
            self._votes = line.round, log, dict(zip(log.voters, votes, strict=True))

    def refresh(self) -> None:
        if self._votes is None:
            return
        (round, log, votes), self._votes = self._votes, None
        views = probe_views(log.probes, log.task.probes.examples.probes_each, self._decode)
        cast = {name: votes[name][:COMPARED] for name in self._names if name in votes}
        self._book.add_votes(vote_record(round, cast, log.labels, views, log.task.classes))

    def _state(self, state: str, round: int, accuracy: float | None) -> dict[str, Any]:
        return {
            "state": state,
            "phase": "",
            "round": round,
            "accuracy": accuracy,
            "missing": [],
            "links": {},
            "pace": self._pace,
            "still": 0,
        }

    def _carried(self, name: str, framed: float) -> dict[str, Any]:
        """A simulation counts bytes by peer and not by link: here each link carries the same."""
        peers = self._links[name]
        each = int(framed / max(1, len(peers)))
        return {peer: ["up", each, each] for peer in peers}


@contextmanager
def simulation_page() -> Iterator[Watch]:
    """A page for a simulation in this process. Yields what `simulate` takes as `watch`."""
    book = Book()
    feed = SimulationFeed(book)
    with PageServer(book, feed.refresh) as server:
        server.announce()

        def watch(lines: RoundLog, topology: Topology) -> None:
            first = lines.run.names[0]
            parameters = sum(one.numel() for one in make_model(lines.task, NodeName(first), 0).parameters())
            server.call(feed.begin, lines, topology, parameters, list(lines.run.lines))
            lines.listen(lambda line: server.call(feed.take, line, lines, lines.votes))

        yield watch
