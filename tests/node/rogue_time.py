"""A federation with a member that lies in merges, in memory and in virtual time: how many deadlines each merge takes.

Nothing takes time but waiting in vain, so these are whole waits and no seconds of a machine. Used by tests, and by
scripts/rogue_merges.py.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from rogue import Tamper, make_rogue

from p2p_tally.config import Federation
from p2p_tally.ids import ranked_names
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.setup import make_learner, prepare
from p2p_tally.node.links.memory import MemoryNetwork, MemoryTransport
from p2p_tally.node.node import Node
from p2p_tally.node.reports import RoundReport
from p2p_tally.protocol.deadlines import Deadlines
from p2p_tally.protocol.ledger import Count
from p2p_tally.protocol.messages import Stage
from p2p_tally.runner.simulation.virtual_time import VirtualTimeLoop


@dataclass
class Played:
    """What the honest nodes saw."""

    deadlines: list[float] = field(default_factory=list)  # of each merge: how many the slowest of them took
    completed: int = 0
    due: int = 0
    models: int = 0
    accuracy: float = 0.0  # in the mean, at the end
    sent: dict[Stage, Count] = field(default_factory=dict)


class Taken:
    """Notes the rounds of one honest node."""

    def __init__(self, played: Played, merges: dict[int, float]) -> None:
        self._played, self._merges = played, merges

    def wants_all(self, _round: int) -> bool:
        return False

    def book(self, sent: dict[Stage, Count]) -> None:
        for stage, count in sent.items():
            self._played.sent.setdefault(stage, Count()).add(count.payload, count.framed, count.messages)

    async def record(self, _node: Node, report: RoundReport) -> None:
        self.book(report.sent)
        if report.due:
            self._played.due += 1
            self._played.completed += report.merged
            self._merges[report.round] = max(self._merges.get(report.round, 0.0), report.seconds["merge"])


def play_in_memory(federation: Federation, lies: Mapping[int, Tamper]) -> Played:
    """All rounds, with deadlines of one second. `lies`: by the ranks of those that lie."""
    task, topology = prepare(federation), make_topology(federation)
    played, merges = Played(), dict[int, float]()
    network, names = MemoryNetwork(), ranked_names(federation.nodes)

    async def play() -> None:
        clock = asyncio.get_running_loop().time
        nodes = [
            Node(
                name,
                make_learner(task, name, rank, "cpu"),
                topology,
                MemoryTransport(network, name),
                Taken(Played(), {}) if rank in lies else Taken(played, merges),
                clock=clock,
                deadlines=Deadlines(fixed=1.0),
            )
            for rank, name in enumerate(names)
        ]
        for rank, tamper in lies.items():
            make_rogue(nodes[rank], tamper)
        for node in nodes:
            await node.transport.start(node.step)
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(node.run())
        learners = [node.learner for rank, node in enumerate(nodes) if rank not in lies]
        played.models = len({learner.export().tobytes() for learner in learners})
        played.accuracy = float(np.mean([learner.evaluate().accuracy for learner in learners]))

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(play())
    played.deadlines = [merges[round] for round in sorted(merges)]
    return played
