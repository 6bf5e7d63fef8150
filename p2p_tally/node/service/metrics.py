"""The Prometheus metrics of a node. All names and labels are here; docs/operating.md explains them."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from p2p_tally.node.links.state import STATES
from p2p_tally.node.links.websocket import WebSocketTransport
from p2p_tally.node.node import Node
from p2p_tally.node.position import PAUSED
from p2p_tally.node.reports import RoundReport

PHASE_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)


class Metrics:
    """What is counted for the metrics only, round by round."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._phases = Histogram(
            "p2p_tally_phase_seconds",
            "Seconds of a round by phase",
            ["phase"],
            buckets=PHASE_BUCKETS,
            registry=self.registry,
        )
        self.accuracy: float | None = None  # share, when last evaluated
        self.checkpoint_failures = 0
        self.skipped_merges = 0

    def observe(self, report: RoundReport) -> None:
        for phase, seconds in report.seconds.items():
            self._phases.labels(phase).observe(seconds)
        self.skipped_merges += report.due and not report.merged
        if report.evaluation is not None:
            self.accuracy = report.evaluation.accuracy

    def checkpoint_failed(self) -> None:
        self.checkpoint_failures += 1


class NodeCollector:
    """What the node counts for itself, read at each scrape."""

    def __init__(self, node: Node, transport: WebSocketTransport, metrics: Metrics) -> None:
        self._node = node
        self._transport = transport
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        node, step = self._node, self._node.step
        yield GaugeMetricFamily("p2p_tally_round", "Last round finished", node.position.round)
        paused = node.position.phase == PAUSED
        yield GaugeMetricFamily("p2p_tally_paused", "1 while too few members are there to play a round", paused)
        if self._metrics.accuracy is not None:
            yield GaugeMetricFamily("p2p_tally_accuracy", "Test accuracy, share", self._metrics.accuracy)
        missed = CounterMetricFamily("p2p_tally_missed", "Deadlines that a neighbour let pass", labels=["peer"])
        for peer in self._transport.peers:
            missed.add_metric([peer], step.roster[peer].missed)
        yield missed
        yield from self._scores()
        arrivals = CounterMetricFamily("p2p_tally_arrivals", "Messages by what became of them", labels=["result"])
        for result, count in sorted(step.inbox.arrivals.items()):
            arrivals.add_metric([result], count)
        yield arrivals
        refusals = CounterMetricFamily("p2p_tally_handshakes_refused", "Handshakes refused", labels=["reason"])
        for reason, count in sorted(self._transport.refusals.items()):
            refusals.add_metric([reason], count)
        yield refusals
        yield from self._bytes()
        links = GaugeMetricFamily("p2p_tally_link_up", "1 where the link to a neighbour is up", labels=["peer"])
        for peer, state in self._transport.peers.items():
            if state.state != "idle":
                links.add_metric([peer], state.state == "up")
        yield links
        counts = GaugeMetricFamily("p2p_tally_links", "Links by state", labels=["state"])
        for name in STATES:
            counts.add_metric([name], sum(state.state == name for state in self._transport.peers.values()))
        yield counts
        yield CounterMetricFamily("p2p_tally_merges_skipped", "Merges not completed", self._metrics.skipped_merges)
        yield CounterMetricFamily(
            "p2p_tally_checkpoint_failures", "Checkpoints the disk did not take", self._metrics.checkpoint_failures
        )

    def _scores(self) -> Iterator[Metric]:
        scores = GaugeMetricFamily("p2p_tally_score", "What a member has cost: 10 nothing, -100 most", labels=["peer"])
        offences = CounterMetricFamily("p2p_tally_offences", "What lowered scores", labels=["peer", "offence"])
        for peer, score in self._node.step.scores().items():
            scores.add_metric([peer], score.value)
            for offence, count in sorted(score.counts.items()):
                offences.add_metric([peer, offence], count)
        yield scores
        yield offences

    def _bytes(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "p2p_tally_bytes",
            "Bytes by kind, direction and accounting (payload or framed)",
            labels=["kind", "direction", "accounting"],
        )
        ledger = self._node.ledger
        for direction, book in (("sent", ledger.sent), ("received", ledger.received)):
            totals: dict[tuple[str, str], int] = {}
            for (_, stage), count in book.items():
                for accounting, value in (("payload", count.payload), ("framed", count.framed)):
                    key = stage.name.lower(), accounting
                    totals[key] = totals.get(key, 0) + value
            for (kind, accounting), value in sorted(totals.items()):
                family.add_metric([kind, direction, accounting], value)
        yield family
        kernel = self._transport.kernel_total()
        stream = CounterMetricFamily(
            "p2p_tally_stream_bytes", "Bytes the kernel carried over links", labels=["direction"]
        )
        stream.add_metric(["sent"], kernel.sent)
        stream.add_metric(["received"], kernel.received)
        yield stream
        wire = CounterMetricFamily(
            "p2p_tally_wire_bytes", "Bytes over links with TCP and IP headers and retransmissions", labels=["direction"]
        )
        wire.add_metric(["sent"], kernel.wire_sent)
        wire.add_metric(["received"], kernel.wire_received)
        yield wire
