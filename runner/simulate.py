"""A whole federation in one process, by either engine.

`exact` is N nodes over the memory transport: the same Node code, the same frames, in lockstep. `stacked` is one
batched model (stacked.py): the same rounds and bytes, floats that differ in their last digits, many more peers.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Protocol, get_args

import torch

from p2p_tally.config import Federation, NodeSettings
from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.schedule import check_graph, evaluates
from p2p_tally.learning.setup import Task, make_learner, pick_device, prepare
from p2p_tally.node.memory import MemoryNetwork, MemoryTransport
from p2p_tally.node.node import Node, RoundReport
from runner.folder import RunFolder
from runner.lines import Lines, OnLine
from runner.record import Run
from runner.stacked import Stacked, is_faster
from topologies import Topology, TopologyError, build

log = logging.getLogger(__name__)

EngineName = Literal["exact", "stacked", "auto"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)


class Engine(Protocol):
    """What plays the rounds of a federation."""

    def play(self, lines: Lines) -> None:
        """All rounds; a line for each evaluated one."""
        ...

    def peers(self) -> Iterable[Learner]:
        """The learners in name order, each good until the next is asked for."""
        ...


def simulate(
    federation: Federation,
    settings: NodeSettings | None = None,
    on_line: OnLine | None = None,
    engine: EngineName = "exact",
) -> Run:
    """Run a federation in this process. `on_line` hears of each evaluated round; `settings.out` keeps the files."""
    engine = check_engine(engine)
    settings = settings or NodeSettings()
    threads = torch.get_num_threads()
    # One thread for every node, as a daemon has it: other counts sum floats in another order. The stacked engine
    # spreads its peers over threads of its own instead, which changes no sum.
    torch.set_num_threads(1)
    try:
        return _simulate(federation, settings, on_line or (lambda _: None), engine, threads)
    finally:
        torch.set_num_threads(threads)


def check_engine(name: str) -> EngineName:
    for engine in ENGINES:
        if name == engine:
            return engine
    raise ConfigError(f"--engine {name}: accepted is exact, stacked or auto")


def make_topology(federation: Federation) -> Topology:
    try:
        topology = build(
            federation.topology,
            ranked_names(federation.nodes),
            degree=federation.degree,
            seed=federation.seed,
        )
    except TopologyError as error:
        raise ConfigError(str(error)) from None
    check_graph(federation, topology)
    return topology


def _simulate(federation: Federation, settings: NodeSettings, on_line: OnLine, engine: EngineName, threads: int) -> Run:
    topology = make_topology(federation)
    task = prepare(federation, root=settings.data_root, download=settings.download)
    device = pick_device(settings.device)
    names = [str(name) for name in ranked_names(federation.nodes)]
    players = _engine(engine, task, topology, device, threads)
    run = Run(task.federation, names)
    folder = RunFolder(Path(settings.out)) if settings.out else None
    try:
        if folder:
            folder.begin(task.federation, settings)
            run.folder = folder.path
        started = time.perf_counter()
        players.play(Lines(task, run, [on_line] + ([folder.add] if folder else [])))
        run.seconds = time.perf_counter() - started
        for name, learner in zip(names, players.peers(), strict=True):
            run.parameters_sha256.append(learner.parameters.sha256())
            if folder:
                learner.save_model(folder.path / f"{name}.safetensors")
        if folder:
            folder.finish(run)
    finally:
        if folder:
            folder.close()
    return run


def _engine(engine: EngineName, task: Task, topology: Topology, device: str, threads: int) -> Engine:
    if engine == "auto":
        engine = "stacked" if is_faster(task) else "exact"
        log.info("--engine auto: %s for %d nodes on %s", engine, task.federation.nodes, device)
    return Stacked(task, topology, device, threads) if engine == "stacked" else Exact(task, topology, device)


class Exact:
    """The nodes themselves, each with its learner, in one event loop."""

    def __init__(self, task: Task, topology: Topology, device: str) -> None:
        self.names = ranked_names(task.federation.nodes)
        self.learners = [make_learner(task, name, rank, device) for rank, name in enumerate(self.names)]
        self.topology = topology

    def play(self, lines: Lines) -> None:
        asyncio.run(self._play(LockstepRecorder(self.learners, lines)))

    async def _play(self, recorder: "LockstepRecorder") -> None:
        network = MemoryNetwork()
        nodes = [
            Node(name, learner, self.topology, MemoryTransport(network, name), recorder)
            for name, learner in zip(self.names, self.learners, strict=True)
        ]
        for node in nodes:  # every door is open before the first frame is sent
            await node.transport.start(node)
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(node.run())

    def peers(self) -> Iterable[Learner]:
        return self.learners


class LockstepRecorder:
    """Holds every node at an evaluated round until all are there, so that the peers can be compared as they are."""

    def __init__(self, learners: list[Learner], lines: Lines) -> None:
        self.learners = learners
        self.lines = lines
        self._reports: dict[str, RoundReport] = {}
        self._all_here = asyncio.Event()

    async def record(self, node: Node, report: RoundReport) -> None:
        self.lines.book(report.sent, report.seconds)
        if not evaluates(node.federation, report.round):
            return
        self._reports[node.name] = report
        if len(self._reports) < len(self.learners):
            await self._all_here.wait()
            return
        reports = [self._reports[name] for name in self.lines.run.names]
        logs = torch.stack([learner.log_probabilities(self.lines.probes) for learner in self.learners])  # [N, P, C]
        evaluations = [report.evaluation for report in reports if report.evaluation]
        self.lines.write(report.round, evaluations, any(report.merged for report in reports), logs)
        self._reports = {}
        self._all_here.set()
        self._all_here = asyncio.Event()
