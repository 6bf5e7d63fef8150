"""Fills the book of one node's page: from each round a row, from the rest what it is when somebody looks."""

import time
from collections.abc import Callable
from typing import Any

from p2p_tally.config import Federation
from p2p_tally.learning.consensus import Answer, votes_of
from p2p_tally.learning.methods import method_of
from p2p_tally.node.links.transport import Clock
from p2p_tally.node.node import Node
from p2p_tally.node.page.budget import budget
from p2p_tally.node.page.views import Decode, probe_views
from p2p_tally.node.position import PAUSED, WAITING
from p2p_tally.node.reports import RoundReport
from p2p_tally.page.book import Book
from p2p_tally.page.verdict import ENDED, stands_still
from p2p_tally.page.votes import COMPARED, vote_record
from p2p_tally.protocol.ledger import Count
from p2p_tally.protocol.messages import Stage
from p2p_tally.protocol.peers import MERGING

# The kinds of bytes that the page shows; what is not named here is the rest.
VOTES = (Stage.VOTE, Stage.READY)
MERGES = (*MERGING, Stage.ANNOUNCE, Stage.HANDOVER)

# The share of the last round in the usual time of a round.
NEWEST = 0.2


class NodeFeed:
    """Listens to the rounds of one node. Between them it does work only when `refresh` is called."""

    def __init__(
        self,
        node: Node,
        status: Callable[[], dict[str, Any]],
        decode: Decode | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`status`: what /status shows. `decode`: tokens as text, where the probes are text."""
        self.book = Book()
        self._node = node
        self._status = status
        self._decode = decode
        self._clock = clock
        self._votes_sent = 0  # payload bytes, since this process began
        self._merges_sent = 0
        self._pace: float | None = None  # seconds that a round usually takes
        self._last_round = clock()
        self._heard: RoundReport | None = None  # the last round with votes

    def record(self, report: RoundReport, payload: int) -> None:
        """A round is finished. `payload`: bytes sent since the run began, also before the node resumed."""
        self._votes_sent += _payload(report.sent, VOTES)
        self._merges_sent += _payload(report.sent, MERGES)
        seconds = sum(report.seconds.values())
        self._pace = seconds if self._pace is None else (1 - NEWEST) * self._pace + NEWEST * seconds
        self._last_round = self._clock()
        if report.voters and not self._node.method.sends.by_class:  # what is shown are votes on probes
            self._heard = report
        if report.merged:
            self.book.add_merge(self._node.name, report.round)
        if report.evaluation is not None:
            accuracy = round(100 * report.evaluation.accuracy, 2)
            rest = payload - self._votes_sent - self._merges_sent
            row = [report.round, accuracy, self._votes_sent, self._merges_sent, rest]
            self.book.add_point(self._node.name, row)

    def refresh(self) -> None:
        """Bring the book up to date."""
        if not self.book.about:
            self.book.describe(self._about())
        self.book.put_state(self._node.name, self._state())
        if self._heard is not None:
            self._show_votes(self._heard)
            self._heard = None

    def _about(self) -> dict[str, Any]:
        node = self._node
        votes, classes = node.learner.probes.votes_per_round, node.learner.classes
        return describe(node.federation, classes) | {
            "own": node.name,
            "budget": budget(node.federation, node.topology, votes, classes, len(node.learner.parameters)),
        }

    def _state(self) -> dict[str, Any]:
        status, waited = self._status(), self._clock() - self._last_round
        phase = status["phase"]
        if phase == WAITING and self._node.position.stopping:
            phase = "stopped"  # before its first round
        ended = phase in ENDED
        at_rest = ended or phase == PAUSED
        return {
            "state": phase if ended or phase in (WAITING, PAUSED) else "playing",
            "phase": phase,
            "round": status["round"],
            "accuracy": status["accuracy"],
            "missing": [] if ended else status["missing"],
            "links": self._links(status["links"], ended),
            "pace": None if self._pace is None else round(self._pace, 4),
            "still": round(waited) if not at_rest and stands_still(waited, self._pace) else 0,
        }

    def _links(self, links: dict[str, Any], ended: bool) -> dict[str, Any]:
        """The state of each link, and the bytes sent and received over it, of whole rounds. `ended`: none is needed."""
        ledger = self._node.ledger
        carried = {str(peer): [0, 0] for peer in links}
        for place, book in enumerate((ledger.sent, ledger.received)):
            for (peer, _), count in book.items():
                if peer in carried:
                    carried[peer][place] += count.framed
        return {peer: ["idle" if ended else link["state"], *carried[peer]] for peer, link in links.items()}

    def _show_votes(self, report: RoundReport) -> None:
        probes, classes = self._node.learner.probes, self._node.learner.classes
        votes = {
            str(voter): votes_of(_first(answer)) for voter, answer in zip(report.voters, report.answers, strict=True)
        }
        views = probe_views(probes.sample(report.answered)[0], probes.examples.probes_each, self._decode)
        self.book.add_votes(vote_record(report.answered, votes, probes.labels_of(report.answered), views, classes))


def _payload(sent: dict[Stage, Count], stages: tuple[Stage, ...]) -> int:
    return sum(count.payload for stage, count in sent.items() if stage in stages)


def _first(answer: Answer) -> Answer:
    """The part of an answer that is shown."""
    if isinstance(answer, tuple):
        return answer[0][:COMPARED], answer[1][:COMPARED]
    return answer[:COMPARED]


def describe(federation: Federation, classes: int) -> dict[str, Any]:
    """What a run is, in the words of its options."""
    return {
        "method": method_of(federation).shown_as,
        "rounds": federation.rounds,
        "nodes": federation.nodes,
        "topology": federation.topology,
        "data": str(federation.data),
        "model": str(federation.model),
        "classes": classes,
    }
