"""The inbox of a node that waits for the others, fed with frames of a peer: nothing that comes may raise.

Nothing is declared: an inbox counts what it refuses. Its node is made anew after some thousand frames.
"""

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from fuzzing.targets import Target, change_frame, messages
from p2p_tally.config import Federation
from p2p_tally.ids import NodeName, ranked_names
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.setup import make_learner, prepare
from p2p_tally.node.links.memory import MemoryNetwork, MemoryTransport
from p2p_tally.node.node import Node
from p2p_tally.protocol import frames
from p2p_tally.protocol.deadlines import Deadlines
from p2p_tally.protocol.messages import Stage, Vote

RENEWED = 5_000
STAGES = (Stage.VOTE, Stage.ANNOUNCE, Stage.SCATTER, Stage.GATHER)


class Idle:
    """The other end of a link: hears everything and answers nothing."""

    def deliver(self, _peer: NodeName, _frame: bytes) -> bool:
        return True


class Waiting:
    """A node that waits in some round for its neighbours; when the wait ends, it waits for the next stage."""

    def __init__(self, **options: Any) -> None:
        self._federation = Federation.parse(
            {"nodes": 5, "rounds": 400, "warmup": 0, "merge_every": 4, "local_steps": 1, **options}
        )
        self._task = prepare(self._federation)
        self._loop = asyncio.new_event_loop()
        self._fed = 0
        self._node: Node | None = None
        self._wait: asyncio.Task[Any] | None = None
        self._turn = 0

    def read(self, data: bytes) -> None:
        """A frame from the neighbour that its first byte chooses."""
        self._loop.run_until_complete(self._read(data))

    async def _read(self, data: bytes) -> None:
        if self._node is None or self._fed >= RENEWED:
            await self._renew()
        self._fed += 1
        node = self._node
        assert node is not None
        neighbours = node.step.neighbours(1)
        node.step.deliver(neighbours[data[0] % len(neighbours)] if data else neighbours[0], data[1:])
        if self._fed % 8 == 0:
            await self._go_on()

    async def _renew(self) -> None:
        await self._end_wait()
        names = ranked_names(self._federation.nodes)
        network = MemoryNetwork()
        for name in names[1:]:
            network.receivers[name] = Idle()  # type: ignore[assignment]
        learner = make_learner(self._task, names[0], 0, "cpu")
        topology = make_topology(self._federation, names)
        transport = MemoryTransport(network, names[0])
        self._node = Node(names[0], learner, topology, transport, _Silent(), deadlines=Deadlines(30))
        self._node.position.begin_round()
        self._fed, self._turn = 0, 0

    async def _go_on(self) -> None:
        node = self._node
        assert node is not None
        if self._wait is not None and self._wait.done():
            self._wait.result()  # a fault in the wait is a fault
            self._wait = None
        if self._wait is None:
            self._turn += 1
            stage = STAGES[self._turn % len(STAGES)]
            round = min(8 + self._turn // 16, self._federation.rounds)
            peers = node.step.votes.voters(round) if stage is Stage.VOTE else node.step.neighbours(round)
            self._wait = asyncio.create_task(node.step.gather(stage, round, 0, peers))
        await asyncio.sleep(0)

    async def _end_wait(self) -> None:
        if self._wait is not None:
            self._wait.cancel()
            await asyncio.gather(self._wait, return_exceptions=True)
            self._wait = None


class _Silent:
    async def record(self, _node: Node, _report: object) -> None: ...


def _change(size: int, rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """A third of the frames as they are, with another round; the others changed."""
    sender = bytes([int(rng.random() * 4)])
    if rng.random() < 0.35:
        ballot = bytes(int(rng.random() * 10) for _ in range(size))
        return sender + frames.encode(Vote(8 + int(rng.random() * 12), ballot))
    return sender + change_frame(rng, seeds)


def inbox_targets() -> list[Target]:
    plain = [frames.encode(message) for message in messages()]
    kinds = {
        "inbox-mesh": {},
        "inbox-ring": {"topology": "ring", "hops": 2},
        "inbox-coded": {"ballot": "coded", "merge_precision": "int8"},
    }
    return [
        Target(name, _Lazy(options).read, (), plain, partial(_change, 16), weight=1) for name, options in kinds.items()
    ]


class _Lazy:
    """Made when it is first fed: data sets take a second."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._waiting: Waiting | None = None

    def read(self, data: bytes) -> None:
        if self._waiting is None:
            self._waiting = Waiting(**self._options)
        self._waiting.read(data)
