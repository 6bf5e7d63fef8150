"""Checkpoints of a simulation: all peers in one file, written at an evaluated round when enough time has passed.

A checkpoint holds the engine's state and the bytes sent so far. The lines up to its round are in rounds.jsonl.
"""

import json
import logging
import time
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.ids import digest
from p2p_tally.learning.methods import METHODS, method_of
from p2p_tally.learning.schedule import evaluates
from p2p_tally.learning.setup import Task
from p2p_tally.learning.start_file import start_digests
from p2p_tally.node.links.transport import Clock
from p2p_tally.node.service.checkpoint import Checkpoint, Checkpoints
from p2p_tally.protocol.ledger import Count
from p2p_tally.runner.runs.folder import CHECKPOINTS, RunFolder, read_lines
from p2p_tally.runner.runs.round_lines import RoundLog
from p2p_tally.runner.runs.run import RoundLine
from p2p_tally.topologies import Topology

log = logging.getLogger(__name__)

# The least time to the next checkpoint, in durations of the last one: writing them takes a twentieth of a run at most.
LEAST_PAUSE = 19


@dataclass(frozen=True)
class EngineState:
    """Everything that the next round of all peers depends on."""

    tensors: dict[str, Tensor]  # on the CPU
    notes: dict[str, Any]  # what is not a tensor, for JSON


class Resumable(Protocol):
    """An engine that is between two rounds."""

    def state(self) -> EngineState: ...

    def restore(self, round: int, state: EngineState) -> None:
        """The inverse of `state`, bit for bit; the next round is the one after `round`."""
        ...


class RunCheckpoints:
    """Writes the checkpoints of a run into its folder, and resumes the run from the newest undamaged one."""

    def __init__(
        self,
        engine: Resumable,
        lines: RoundLog,
        folder: RunFolder,
        checkpoints: Checkpoints,
        seconds: float,
        clock: Clock = time.perf_counter,
    ) -> None:
        """`seconds`: the least time between two checkpoints; 0 for no checkpoints."""
        self._engine = engine
        self._lines = lines
        self._folder = folder
        self._checkpoints = checkpoints
        self._seconds = seconds
        self._clock = clock
        self._began = clock()
        self._due = self._began + seconds

    @property
    def seconds_played(self) -> float:
        """Since the run began, without the time between its interruption and its resumption."""
        return self._clock() - self._began

    def on_line(self, line: RoundLine) -> None:
        """After an evaluated round: write a checkpoint if one is due."""
        now = self._clock()
        if not self._seconds or now < self._due or line.round == self._lines.run.federation.rounds:
            return
        try:
            self._folder.sync()  # a run cannot be resumed from a checkpoint without the lines before it
        except OSError as error:
            log.error("checkpoint not written: %s", error.strerror)
            self._due = now + self._seconds
            return
        state = self._engine.state()
        notes = {
            "engine": state.notes,
            "sent": asdict(self._lines.total),
            "clock": self._lines.clock.state(),
            "seconds": self.seconds_played,
        }
        self._checkpoints.save(Checkpoint(line.round, state.tensors, notes))
        after = self._clock()
        self._due = after + max(self._seconds, LEAST_PAUSE * (after - now))

    def resume(self) -> int:
        """Restore the newest usable checkpoint and return its round; 0 where there is none and the run starts again."""
        written = read_lines(self._folder.path / "rounds.jsonl")
        for checkpoint in self._checkpoints.newest_first():
            round = checkpoint.round
            if [line.round for line in written if line.round <= round] != _evaluated(self._lines.run.federation, round):
                log.warning("checkpoint of round %d passed over: rounds.jsonl lacks lines before it", round)
                continue
            self._lines.resume(self._folder.go_back_to(round), Count(**checkpoint.notes["sent"]))
            self._lines.clock.restore(checkpoint.notes.get("clock", {}))
            self._engine.restore(round, EngineState(checkpoint.tensors, checkpoint.notes["engine"]))
            self._began = self._clock() - checkpoint.notes["seconds"]
            log.info("going on after round %d", round)
            return round
        log.warning("no checkpoint to go on from: beginning at round 1")
        self._folder.go_back_to(0)
        return 0


def checkpoints_of(folder: RunFolder, task: Task, topology: Topology, engine: str) -> Checkpoints:
    """The checkpoints in a run's folder; those of other options, other probes or another engine are not used."""
    options = json.dumps(task.federation.model_dump(mode="json"), sort_keys=True)
    may_change = [*_own_method(task), *_edges_of_file(topology), *start_digests(task.federation)]
    whose = digest(engine.encode(), options.encode(), task.probes.digest().encode(), *may_change)
    return Checkpoints(folder.path / CHECKPOINTS, whose)


def _own_method(task: Task) -> list[bytes]:
    """What a user's own method declares, which may have changed since; the project's own go by their names."""
    method = method_of(task.federation)
    return [] if method.name in METHODS else [method.agreed_value().encode()]


def _edges_of_file(topology: Topology) -> list[bytes]:
    """The edges of a graph that was read from a file, which may have changed; other graphs follow from the options."""
    if not topology.name.startswith("file:"):
        return []
    return sorted("\t".join(sorted(edge)).encode() for edge in topology.graph().edges)


def _evaluated(federation: Federation, upto: int) -> list[int]:
    return [round for round in range(1, upto + 1) if evaluates(federation, round)]
