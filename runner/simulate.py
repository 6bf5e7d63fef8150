"""N nodes in one process over the memory transport: the same Node code, the same frames, in lockstep."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import torch

from p2p_tally.config import Federation, NodeSettings
from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.learning.consensus import mean_pairwise_kl, measure
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.schedule import evaluates
from p2p_tally.learning.setup import Task, make_learner, pick_device, prepare
from p2p_tally.node.memory import MemoryNetwork, MemoryTransport
from p2p_tally.node.node import Node, RoundReport
from p2p_tally.protocol.ledger import Count
from p2p_tally.protocol.messages import Stage
from runner.folder import RunFolder
from runner.record import RoundLine, Run
from topologies import Topology, TopologyError, build

# Probes on which the peers are compared at an evaluated round: enough for a share within a few per cent.
COMPARED_PROBES = 256

OnLine = Callable[[RoundLine], None]


def simulate(federation: Federation, settings: NodeSettings | None = None, on_line: OnLine | None = None) -> Run:
    """Run a federation in this process. `on_line` hears of each evaluated round; `settings.out` keeps the files."""
    settings = settings or NodeSettings()
    threads = torch.get_num_threads()
    # One thread for every node, as a daemon has it: other counts sum floats in another order.
    torch.set_num_threads(1)
    try:
        return asyncio.run(_simulate(federation, settings, on_line or (lambda _: None)))
    finally:
        torch.set_num_threads(threads)


def make_topology(federation: Federation) -> Topology:
    try:
        return build(
            federation.topology,
            ranked_names(federation.nodes),
            degree=federation.degree,
            seed=federation.seed,
        )
    except TopologyError as error:
        raise ConfigError(str(error)) from None


async def _simulate(federation: Federation, settings: NodeSettings, on_line: OnLine) -> Run:
    topology = make_topology(federation)
    task = prepare(federation, root=settings.data_root, download=settings.download)
    device = pick_device(settings.device)
    names = ranked_names(federation.nodes)
    learners = [make_learner(task, name, rank, device) for rank, name in enumerate(names)]
    run = Run(task.federation, [str(name) for name in names])
    folder = RunFolder(Path(settings.out)) if settings.out else None
    try:
        if folder:
            folder.begin(task.federation, settings)
            run.folder = folder.path
        started = time.perf_counter()
        recorder = LockstepRecorder(task, learners, run, [on_line] + ([folder.add] if folder else []))
        network = MemoryNetwork()
        nodes = [
            Node(name, learner, topology, MemoryTransport(network, name), recorder)
            for name, learner in zip(names, learners, strict=True)
        ]
        for node in nodes:  # every door is open before the first frame is sent
            await node.transport.start(node)
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(node.run())
        run.seconds = time.perf_counter() - started
        run.parameters_sha256 = [learner.parameters.sha256() for learner in learners]
        if folder:
            for name, learner in zip(names, learners, strict=True):
                learner.save_model(folder.path / f"{name}.safetensors")
            folder.finish(run)
    finally:
        if folder:
            folder.close()
    return run


class LockstepRecorder:
    """Holds every node at an evaluated round until all are there, so that the peers can be compared as they are."""

    def __init__(self, task: Task, learners: list[Learner], run: Run, listeners: list[OnLine]) -> None:
        self.federation = task.federation
        self.learners = learners
        self.run = run
        self.listeners = listeners
        self._classes = task.classes
        pool = task.probes.examples
        count = max(1, min(len(pool), COMPARED_PROBES // pool.probes_each))
        self._probes, self._labels = pool.take(torch.arange(count))
        self._reports: dict[str, RoundReport] = {}
        self._all_here = asyncio.Event()
        self._total = Count()
        self._since: dict[Stage, Count] = {}
        self._seconds: dict[str, float] = {}

    async def record(self, node: Node, report: RoundReport) -> None:
        for stage, count in report.sent.items():
            self._total.take(count)
            self._since.setdefault(stage, Count()).take(count)
        for phase, seconds in report.seconds.items():
            self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
        if not evaluates(self.federation, report.round):
            return
        self._reports[node.name] = report
        if len(self._reports) < len(self.learners):
            await self._all_here.wait()
            return
        line = self._line(report.round)
        self.run.lines.append(line)
        for listen in self.listeners:
            listen(line)
        self._reports = {}
        self._since, self._seconds = {}, {}
        self._all_here.set()
        self._all_here = asyncio.Event()

    def _line(self, round: int) -> RoundLine:
        nodes = len(self.learners)
        evaluations = [self._reports[name].evaluation for name in self.run.names]
        logs = torch.stack([learner.log_probabilities(self._probes) for learner in self.learners])  # [N, P, C]
        labels = None if self._labels is None else self._labels.flatten().numpy()
        measures = measure(logs.argmax(-1).numpy(), self._classes, labels)
        return RoundLine(
            round=round,
            accuracy=[100 * evaluation.accuracy for evaluation in evaluations if evaluation],
            loss=[evaluation.loss for evaluation in evaluations if evaluation],
            merged=any(report.merged for report in self._reports.values()),
            plurality_right=measures.plurality_right,
            agreement=measures.agreement,
            margin=measures.margin,
            pairwise_kl=mean_pairwise_kl(logs),
            payload_bytes=self._total.payload / nodes,
            framed_bytes=self._total.framed / nodes,
            sent={
                stage.name.lower(): {"payload": count.payload / nodes, "framed": count.framed / nodes}
                for stage, count in self._since.items()
            },
            seconds={phase: seconds / nodes for phase, seconds in self._seconds.items()},
        )
