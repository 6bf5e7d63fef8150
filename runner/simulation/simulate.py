"""A whole federation in one process, by either engine.

`exact` is N nodes over the memory transport: the same Node code, the same frames, in lockstep. `stacked` is one
batched model (stacked.py): the same rounds and bytes, floats that differ in their last digits, many more peers.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol

import torch

from p2p_tally.config import EngineName, Federation, NodeSettings, SimulationSettings
from p2p_tally.ids import ranked_names
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.schedule import evaluates
from p2p_tally.learning.setup import Task, make_learner, pick_device, prepare
from p2p_tally.node.links.memory import MemoryNetwork, MemoryTransport
from p2p_tally.node.node import Node
from p2p_tally.node.reports import RoundReport
from p2p_tally.runner.runs.folder import RunFolder
from p2p_tally.runner.runs.provenance import here, one_or_each
from p2p_tally.runner.runs.round_lines import Lines, OnLine
from p2p_tally.runner.runs.run import Run
from p2p_tally.runner.simulation.checkpoints import Keepable, Keeper, State, checkpoints_of
from p2p_tally.runner.stacked.engine import Stacked, is_faster
from p2p_tally.topologies import Topology

log = logging.getLogger(__name__)


class Engine(Keepable, Protocol):
    """What plays the rounds of a federation."""

    def play(self, lines: Lines) -> None:
        """All rounds, or those that are left; a line for each evaluated one."""
        ...

    def peers(self) -> Iterable[Learner]:
        """The learners in name order, each good until the next is asked for."""
        ...


def simulate(
    federation: Federation,
    settings: NodeSettings | None = None,
    on_line: OnLine | None = None,
    engine: EngineName | None = None,
    resume: bool = False,
) -> Run:
    """Run a federation in this process. `on_line` hears of each evaluated round; `settings.out` keeps the files.

    `engine` wins over the settings' own. With `resume`, `settings.out` holds a run that was interrupted: it goes on
    from its last checkpoint, to the same bits and the same record as if nothing had happened.
    """
    given: dict[str, Any] = dict(settings or NodeSettings())
    chosen = SimulationSettings.parse(given | ({"engine": engine} if engine else {}))
    threads = torch.get_num_threads()
    # One thread for every node, as a daemon has it: other counts sum floats in another order. The stacked engine
    # spreads its peers over threads of its own instead, which changes no sum.
    torch.set_num_threads(1)
    try:
        return _simulate(federation, chosen, on_line or (lambda _: None), threads, resume)
    finally:
        torch.set_num_threads(threads)


def _simulate(federation: Federation, settings: SimulationSettings, on_line: OnLine, threads: int, resume: bool) -> Run:
    if settings.out is not None:
        federation.check_names()  # its folder holds a config.toml
    topology = make_topology(federation)
    task = prepare(federation, root=settings.data_root, download=settings.download)
    device = pick_device(settings.device)
    names = [str(name) for name in ranked_names(federation.nodes)]
    engine = _choose_engine(settings.engine, task, device)
    players: Engine = Stacked(task, topology, device, threads) if engine == "stacked" else Exact(task, topology, device)
    run = Run(task.federation, names)
    run.made = replace(
        here(engine, device),
        classes=task.classes,
        private=sum(len(shard) for shard in task.shards),
        probes=len(task.probes.examples),
        test=len(task.test),
    )
    if settings.out is None:
        started = time.perf_counter()
        players.play(Lines(task, run, [on_line]))
        run.seconds = time.perf_counter() - started
        _take_models(run, players)
        return run
    folder = RunFolder.reopen(settings.out) if resume else RunFolder(settings.out)
    try:
        played = settings.model_copy(update={"engine": engine})
        folder.begin(task.federation, played)  # config.toml alone reruns it, by the same engine
        run.folder = folder.path
        lines = Lines(task, run, [on_line, folder.add])
        checkpoints = checkpoints_of(folder, task, topology, engine)
        keeper = Keeper(players, lines, folder, checkpoints, settings.checkpoint_seconds)
        lines.listeners.append(keeper.hear)
        if resume:
            keeper.take_up()
        players.play(lines)
        run.seconds = keeper.seconds_played
        _take_models(run, players)
        folder.finish(run)
        folder.drop_checkpoints()
    finally:
        folder.close()
    return run


def _take_models(run: Run, players: Engine) -> None:
    """What a run notes of its final models; into its folder, if it has one, the models themselves."""
    sizes = []
    for name, learner in zip(run.names, players.peers(), strict=True):
        sizes.append(len(learner.parameters))
        run.parameters_sha256.append(learner.parameters.sha256())
        if run.folder is not None:
            learner.save_model(run.folder / f"{name}.safetensors")
    run.made = replace(run.made, parameters=one_or_each(sizes))


def _choose_engine(wanted: EngineName, task: Task, device: str) -> EngineName:
    if wanted != "auto":
        return wanted
    engine: EngineName = "stacked" if is_faster(task) else "exact"
    log.info("--engine auto: %s for %d nodes on %s", engine, task.federation.nodes, device)
    return engine


class Exact:
    """The nodes themselves, each with its learner, in one event loop."""

    def __init__(self, task: Task, topology: Topology, device: str) -> None:
        self.names = ranked_names(task.federation.nodes)
        self.learners = [make_learner(task, name, rank, device) for rank, name in enumerate(self.names)]
        self.recorder = LockstepRecorder(self.learners)
        network = MemoryNetwork()
        self.nodes = [
            Node(name, learner, topology, MemoryTransport(network, name), self.recorder)
            for name, learner in zip(self.names, self.learners, strict=True)
        ]

    def play(self, lines: Lines) -> None:
        self.recorder.lines = lines
        asyncio.run(self._play())

    async def _play(self) -> None:
        for node in self.nodes:  # every door is open before the first frame is sent
            await node.transport.start(node.step)
        async with asyncio.TaskGroup() as group:
            for node in self.nodes:
                # Nodes that go on from a checkpoint said where they are when the run began.
                group.create_task(node.run(announce=node.position.round == 0))

    def peers(self) -> Iterable[Learner]:
        return self.learners

    def state(self) -> State:
        tensors = {
            f"{node.name}/{key}": tensor.detach().cpu()
            for node in self.nodes
            for key, tensor in node.learner.state().items()
        }
        return State(tensors, {node.name: node.position.notes() for node in self.nodes})

    def restore(self, round: int, state: State) -> None:
        for node in self.nodes:
            node.position.restore(round, state.notes[node.name])
            node.learner.restore({key: state.tensors[f"{node.name}/{key}"] for key in node.learner.state()})


class LockstepRecorder:
    """Holds every node at an evaluated round until all are there, so that the peers can be compared as they are."""

    def __init__(self, learners: list[Learner]) -> None:
        self.learners = learners
        self.lines: Lines  # set when the rounds are played
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
