"""A whole federation in one process, by one of two engines.

`exact` is N nodes that exchange their frames in memory: the Node code of a daemon, round by round. `stacked` is one
batched model (stacked/engine.py): the same rounds and bytes, floats that differ in their last digits, many more peers.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol

import torch

from p2p_tally.attacks.board import Board
from p2p_tally.attacks.kinds import check_attacks, knows_others, liars, withholds
from p2p_tally.config import EngineName, Federation, NodeSettings, SimulationSettings
from p2p_tally.defence.exam import by_majority
from p2p_tally.ids import NodeName, ranked_names
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.schedule import evaluates
from p2p_tally.learning.setup import Task, make_learner, pick_device, prepare
from p2p_tally.learning.start import check_frozen, frozen_tensors
from p2p_tally.node.conduct import Conduct
from p2p_tally.node.links.memory import MemoryNetwork, MemoryTransport
from p2p_tally.node.node import Node
from p2p_tally.node.reports import RoundReport
from p2p_tally.protocol.deadlines import Deadlines
from p2p_tally.protocol.ledger import Count
from p2p_tally.protocol.messages import Stage
from p2p_tally.runner.clock.clock import Played
from p2p_tally.runner.clock.messages import Noted
from p2p_tally.runner.clock.setup import make_clock
from p2p_tally.runner.runs.folder import RunFolder
from p2p_tally.runner.runs.provenance import one_or_each, record_provenance
from p2p_tally.runner.runs.round_lines import OnLine, RoundLog, Survey
from p2p_tally.runner.runs.run import Run, cell_name
from p2p_tally.runner.simulation.checkpoints import EngineState, Resumable, RunCheckpoints, checkpoints_of
from p2p_tally.runner.simulation.event_loop import carrying_interrupts, run_to_end
from p2p_tally.runner.simulation.virtual_time import VirtualTimeLoop
from p2p_tally.runner.simulation.workers import Workers, check_workers
from p2p_tally.runner.stacked.engine import Stacked, is_faster
from p2p_tally.topologies import Topology
from p2p_tally.tracking.services import check_installed
from p2p_tally.tracking.tracker import open_tracker

log = logging.getLogger(__name__)


# Called with the log that the lines of a run are written to, which it may listen to, and the graph.
Watch = Callable[[RoundLog, Topology], None]


class Engine(Resumable, Protocol):
    """What plays the rounds of a federation."""

    def play(self, lines: RoundLog) -> None:
        """All rounds, or those after the restored one; a line for each evaluated round."""
        ...

    def distrusted(self, honest: int) -> list[int]:
        """The ranks that most of the first `honest` peers do not trust as voters."""
        ...

    def peers(self) -> Iterable[Learner]:
        """The learners in name order; each is valid until the next one is taken."""
        ...


def simulate(
    federation: Federation,
    settings: NodeSettings | None = None,
    on_line: OnLine | None = None,
    engine: EngineName | None = None,
    resume: bool = False,
    watch: Watch | None = None,
) -> Run:
    """Run a federation in this process. `on_line` is called for each evaluated round; files go into `settings.out`.
    `watch` is called once, before the first round.

    `engine` wins over the settings' own. With `resume`, `settings.out` holds an interrupted run: it continues from its
    last checkpoint, and ends with the same bits and the same files as a run without interruption.
    """
    given: dict[str, Any] = dict(settings or NodeSettings())
    chosen = SimulationSettings.parse(given | ({"engine": engine} if engine else {}))
    threads = torch.get_num_threads()
    # One thread, as in a daemon: with another count torch sums floats in another order. The stacked engine divides its
    # peers among threads of its own, which changes no sum.
    torch.set_num_threads(1)
    try:
        return _simulate(federation, chosen, on_line or (lambda _: None), threads, resume, watch or (lambda *_: None))
    finally:
        torch.set_num_threads(threads)


def _simulate(
    federation: Federation, settings: SimulationSettings, on_line: OnLine, threads: int, resume: bool, watch: Watch
) -> Run:
    if settings.out is not None:
        federation.check_names()  # its folder holds a config.toml
    check_installed(settings.log)
    topology = make_topology(federation)
    task = prepare(federation, root=settings.data_root, download=settings.download)
    device = pick_device(settings.device)
    names = [str(name) for name in ranked_names(federation.nodes)]
    engine_name = _choose_engine(settings.engine, task, device)
    check_attacks(task.federation, "stacked" if engine_name == "stacked" else "exact", task.classes)
    check_workers(task, engine_name, device, settings.workers or 1)
    engine: Engine = (
        Stacked(task, topology, device, settings.workers or threads)
        if engine_name == "stacked"
        else Exact(task, topology, device, settings.workers or 1)
    )
    clock = make_clock(task.federation, topology)
    provenance = replace(
        record_provenance(engine_name, device),
        classes=task.classes,
        private=sum(len(shard) for shard in task.shards),
        probes=len(task.probes.examples),
        test=len(task.test),
    )
    if settings.out is None:
        run = Run(task.federation, names, provenance=provenance)
        with closing(open_tracker(settings.log, None, cell_name(task.federation), task.federation)) as tracker:
            lines = RoundLog(task, run, [on_line, lambda line: tracker.add(line.as_json())], clock)
            watch(lines, topology)
            started = time.perf_counter()
            engine.play(lines)
            return _finished(run, engine, time.perf_counter() - started)
    folder = RunFolder.reopen(settings.out) if resume else RunFolder(settings.out)
    try:
        # Of `auto` the engine that was taken: config.toml alone then repeats the run.
        folder.begin(task.federation, settings.model_copy(update={"engine": engine_name}))
        run = Run(task.federation, names, folder=folder.path, provenance=provenance)
        lines = RoundLog(task, run, [on_line, folder.add], clock)
        files = checkpoints_of(folder, task, topology, engine_name)
        checkpoints = RunCheckpoints(engine, lines, folder, files, settings.checkpoint_seconds)
        lines.listen(checkpoints.on_line)
        if resume:
            checkpoints.resume()
        watch(lines, topology)
        engine.play(lines)
        run = _finished(run, engine, checkpoints.seconds_played)
        folder.finish(run)
        folder.drop_checkpoints()
        return run
    finally:
        folder.close()


def _finished(run: Run, engine: Engine, seconds: float) -> Run:
    """The run with what is known at its end, and its models: in its folder where it has one."""
    digests, sizes, models = [], [], []
    for name, learner in zip(run.names, engine.peers(), strict=True):
        digests.append(learner.parameters.sha256())
        sizes.append(len(learner.parameters))
        if run.folder is None:
            models.append(learner.model_file())
        else:
            learner.save_model(run.folder / f"{name}.safetensors")
    provenance = replace(run.provenance, parameters=one_or_each(sizes))
    distrusted = [run.names[rank] for rank in engine.distrusted(run.honest)]
    run = replace(run, distrusted=distrusted if run.federation.exam else None)
    return replace(run, parameters_sha256=digests, seconds=seconds, provenance=provenance, model_files=models)


# From here on the exact engine takes so long that it is worth saying.
MANY_NODES = 100


def _choose_engine(wanted: EngineName, task: Task, device: str) -> EngineName:
    if wanted == "exact" and task.federation.nodes >= MANY_NODES and is_faster(task):
        log.warning(
            "%d nodes, one after another: --engine auto plays the same rounds much faster, with other last digits",
            task.federation.nodes,
        )
    if wanted != "auto":
        return wanted
    engine: EngineName = "stacked" if is_faster(task) else "exact"
    log.info("--engine auto: %s for %d nodes on %s", engine, task.federation.nodes, device)
    return engine


class Exact:
    """The nodes themselves, each with its learner, in one event loop."""

    def __init__(self, task: Task, topology: Topology, device: str, workers: int = 1) -> None:
        self.names = ranked_names(task.federation.nodes)
        federation = task.federation
        self._workers = Workers(workers)
        board = Board(self.names[: federation.nodes - liars(federation)])
        conducts = [Conduct(federation, rank, board) for rank in range(federation.nodes)]
        self.learners = [
            make_learner(task, name, rank, device, conducts[rank].make_learner) for rank, name in enumerate(self.names)
        ]
        if federation.merge_every:
            check_frozen(federation, (frozen_tensors(learner.model) for learner in self.learners))
        self.noted = Noted(self.names)
        self.recorder = LockstepRecorder(dict(zip(self.names, self.learners, strict=True)), topology, self.noted)
        # Where messages may never come, deadlines must pass; they pass when nobody has anything left to do.
        falters = withholds(federation)
        self._make_loop = VirtualTimeLoop if falters else asyncio.new_event_loop
        network = MemoryNetwork()
        self.nodes = [
            Node(
                name,
                learner,
                topology,
                MemoryTransport(network, name),
                self.recorder,
                board.compute(name) if knows_others(federation) else self._workers.compute,
                deadlines=Deadlines(fixed=1.0) if falters else None,
                make_outbox=conduct.make_outbox(learner, topology),
            )
            for name, learner, conduct in zip(self.names, self.learners, conducts, strict=True)
        ]

    def play(self, lines: RoundLog) -> None:
        self.recorder.begin(lines)
        lines.clock.hear([node.outbox for node in self.nodes], self.noted)
        with self._workers:
            run_to_end(self._play(), self._make_loop)

    async def _play(self) -> None:
        for node in self.nodes:  # all can be reached before the first frame is sent
            await node.transport.start(node.step)
        async with asyncio.TaskGroup() as group:
            for node in self.nodes:
                # Nodes that resume from a checkpoint have announced themselves when the run began.
                group.create_task(carrying_interrupts(node.run(announce=node.position.round == 0)))

    def peers(self) -> Iterable[Learner]:
        return self.learners

    def distrusted(self, honest: int) -> list[int]:
        return by_majority([learner.voter.distrusted for learner in self.learners[:honest]])

    def state(self) -> EngineState:
        tensors = {
            f"{node.name}/{key}": tensor.detach().cpu()
            for node in self.nodes
            for key, tensor in node.learner.state().items()
        }
        return EngineState(tensors, {str(node.name): node.position.notes() for node in self.nodes})

    def restore(self, round: int, state: EngineState) -> None:
        for node in self.nodes:
            node.position.restore(round, state.notes[node.name])
            own = f"{node.name}/"
            node.learner.restore(
                {key.removeprefix(own): state.tensors[key] for key in state.tensors if key.startswith(own)}
            )


class LockstepRecorder:
    """Makes the nodes wait for each other at an evaluated round, so that the models of one round are compared."""

    def __init__(self, learners: Mapping[NodeName, Learner], topology: Topology, noted: Noted) -> None:
        self.learners = learners
        self._topology = topology
        self._noted = noted
        self._seconds: dict[int, dict[NodeName, dict[str, float]]] = {}  # of rounds that some still play
        self._lines: RoundLog | None = None
        self._reports: dict[NodeName, RoundReport] = {}
        self._all_here = asyncio.Event()

    def begin(self, lines: RoundLog) -> None:
        """Write the lines of the rounds that are played next into `lines`."""
        self._lines = lines

    def wants_all(self, _round: int) -> bool:
        """A round has all its messages, for the clock; where nothing takes time, nothing is gained by going on."""
        return True

    def book(self, _sent: dict[Stage, Count]) -> None:
        """Nobody asks a simulated node to stop."""

    async def record(self, node: Node, report: RoundReport) -> None:
        lines = self._lines
        assert lines is not None
        lines.book(report.sent, report.seconds)
        there = set(self._topology.members_at(report.round))
        self._tell_clock(lines, node, report, len(there))
        if not evaluates(node.federation, report.round):
            return
        self._reports[node.name] = report
        if len(self._reports) < len(there):
            await self._all_here.wait()
            return
        reports = [self._reports.get(name) for name in self.learners]
        learners = [learner for name, learner in self.learners.items() if name in there]
        logs = torch.stack([learner.log_probabilities(lines.probes) for learner in learners])  # [n, P, C]
        survey = Survey.of([found.evaluation if found else None for found in reports], logs)
        lines.write(report.round, survey, any(found.merged for found in reports if found))
        self._reports = {}
        self._all_here.set()
        self._all_here = asyncio.Event()

    def _tell_clock(self, lines: RoundLog, node: Node, report: RoundReport, members: int) -> None:
        """When the last member has played a round, it is over."""
        played = self._seconds.setdefault(report.round, {})
        played[node.name] = report.seconds
        if len(played) == members:
            del self._seconds[report.round]
            seconds = {self._topology.rank(name): spent for name, spent in played.items()}
            lines.clock.play(report.round, self._noted.take(report.round), Played.each(seconds))
