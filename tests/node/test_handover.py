"""Hand-overs: a donor that fails, states that are refused, a node that asks, and members that come at run time."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import kill_at, make_daemons, run_all, small

from p2p_tally.config import Federation
from p2p_tally.errors import PeerError
from p2p_tally.ids import NodeName, ranked_names
from p2p_tally.learning.graph import graph_of, make_topology
from p2p_tally.learning.handed_over import handed_bytes
from p2p_tally.learning.setup import make_learner, prepare
from p2p_tally.node.handover import state_bytes, state_size, take_state
from p2p_tally.node.links.memory import MemoryNetwork, MemoryTransport
from p2p_tally.node.node import Node
from p2p_tally.node.reports import RoundReport
from p2p_tally.node.step.handovers import Handovers
from p2p_tally.protocol.barrier import Arrival
from p2p_tally.protocol.frames import CHUNK_BYTES
from p2p_tally.protocol.handover import ArrivingState, digest_of, piece_lengths, pieces
from p2p_tally.protocol.messages import Fetch, Piece, Stage, State
from p2p_tally.runner.simulation.simulate import Exact
from p2p_tally.topologies import Epochs, build

METHODS = ["tally", "fedavg", "fedprox", "diloco", "feddf", "fedmd", "local"]
DATA = bytes(range(256)) * 3000  # several pieces


def head(data: bytes = DATA, **fields: Any) -> State:
    return State(**{"round": 4, "warmup": 2, "merged_at": 4, "size": len(data), "digest": digest_of(data), **fields})


# --- the state as bytes


@pytest.mark.parametrize("options", [{}, {"merge_precision": "int8"}, {"merge_every": 0}], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_what_is_handed_over_is_all_that_the_next_merge_depends_on(method: str, options: dict[str, Any]) -> None:
    task = prepare(small(method=method, **options))
    donor, newcomer = (make_learner(task, name, rank, "cpu") for rank, name in enumerate(ranked_names(2)))
    for learner in (donor, newcomer):
        learner.train()
    if task.federation.merge_every:
        donor.merge(donor.export() + 1.0, donor.export() * 0.5)
    own = {key: tensor.clone() for key, tensor in newcomer.state().items()}
    data = state_bytes(donor)
    assert len(data) == state_size(newcomer) == handed_bytes(task.federation, len(donor.parameters))
    take_state(newcomer, data)
    theirs, ours = donor.state(), newcomer.state()
    for key in newcomer.handed_over():
        assert torch.equal(ours[key], theirs[key]), key
    for key in ("generator", "optimiser.mean", "optimiser.step"):
        assert torch.equal(ours[key], own[key]), key
    if donor.feedback is not None and newcomer.feedback is not None:
        assert newcomer.feedback.name == donor.feedback.name
        assert not newcomer.feedback.residual.any()


def test_pieces_make_the_state_again() -> None:
    arriving = ArrivingState(head())
    cut = pieces(DATA)
    assert [len(piece.data) for piece in cut] == piece_lengths(len(DATA)) and len(cut) == 3
    for piece in cut:
        assert not arriving.complete
        arriving.add(piece)
    assert arriving.complete and arriving.data() == DATA
    assert ArrivingState(head(b"")).complete


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ([Piece(1, b"1")], "piece 1 of a state, 0 is next"),
        ([pieces(DATA)[0], pieces(DATA)[0]], "piece 0 of a state, 1 is next"),
        ([Piece(0, DATA + b"1")], "more than the 768000 bytes"),
        ([Piece(0, bytes(len(DATA)))], "digest"),
    ],
)
def test_a_bad_piece_is_refused(sent: list[Piece], said: str) -> None:
    arriving = ArrivingState(head())
    with pytest.raises(PeerError, match=said):
        for piece in sent:
            arriving.add(piece)


# --- what comes in


def box(size: int = len(DATA), join: str = "node-2@5") -> Handovers:
    federation = small(nodes=3, join=join)
    node = Exact(prepare(federation), make_topology(federation), "cpu").nodes[2]
    return Handovers(node.name, node.topology, node.position, size)


A, B = NodeName("node-0"), NodeName("node-1")


def test_a_state_comes_from_the_donor_alone_unless_another_was_asked() -> None:
    inbox = box()
    assert inbox.receive(A, head()) is Arrival.RECORDED
    with pytest.raises(PeerError, match="does not expect"):
        inbox.receive(B, head())
    assert inbox.receive(B, Piece(0, b"1")) is Arrival.LATE
    inbox.expect(B)
    assert inbox.receive(B, head()) is Arrival.RECORDED


def test_a_state_of_another_size_is_refused_before_it_is_held() -> None:
    with pytest.raises(PeerError, match=f"instead of {len(DATA)}"):
        box().receive(A, head(size=len(DATA) + 4))


def test_after_a_bad_piece_nothing_is_left() -> None:
    inbox = box()
    inbox.receive(A, head())
    with pytest.raises(PeerError):
        inbox.receive(A, Piece(3, b"1"))
    assert inbox.arriving(A) is None


def test_who_asks_gets_it_after_the_round_it_names() -> None:
    inbox = box()
    inbox.receive(A, Fetch(7))
    assert inbox.take_asked(6) == []
    assert inbox.take_asked(8) == [A]
    assert inbox.take_asked(9) == []


# --- donors that fail, over real sockets


async def run_but_killed(federation: Federation, out: Path, killed: int, at: int) -> list[Any]:
    """The nodes in the end; one is killed before it votes in round `at`."""
    daemons = make_daemons(federation, out, barrier_timeout=2)
    kill_at(daemons[killed], at)
    async with asyncio.timeout(100):
        await asyncio.gather(*(daemon.run() for daemon in daemons), return_exceptions=True)
    return daemons


async def test_a_donor_that_dies_before_is_replaced_by_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = small(nodes=4, rounds=12, merge_every=3, join="node-3@7")
    with caplog.at_level(logging.INFO):
        daemons = await run_but_killed(federation, tmp_path, killed=0, at=4)
    assert any(getattr(record, "event", "") == "handed-over" for record in caplog.records)
    assert daemons[1].node.ledger.total_sent(Stage.HANDOVER).payload == state_size(daemons[1].learner)
    assert len({daemon.learner.parameters.sha256() for daemon in daemons[1:]}) == 1
    assert all(daemon.node.position.phase == "done" for daemon in daemons[1:])


async def test_where_nobody_gives_anything_it_begins_with_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = small(nodes=2, rounds=8, merge_every=2, join="node-1@5")
    daemons = await run_but_killed(federation, tmp_path, killed=0, at=3)
    assert any(getattr(record, "event", "") == "own-parameters" for record in caplog.records)
    assert daemons[1].node.position.round == 8


async def test_a_state_with_nan_is_refused_and_the_next_is_asked(tmp_path: Path) -> None:
    federation = small(nodes=4, rounds=8, method="local", join="node-3@5")
    daemons = make_daemons(federation, tmp_path, barrier_timeout=5)
    results = await run_all(daemons)
    assert all(result["finished"] for result in results)
    learner = make_learner(prepare(small(nodes=4)), A, 0, "cpu")
    bad = torch.full((len(learner.parameters),), torch.nan).numpy().tobytes()
    before = learner.parameters.sha256()
    with pytest.raises(PeerError, match="NaN"):
        take_state(learner, bad)
    assert learner.parameters.sha256() == before


async def test_a_newcomer_that_is_late_asks_and_comes_in_a_later_round(tmp_path: Path) -> None:
    """The others do not wait for it longer than once; it begins where they are then."""
    federation = small(nodes=4, rounds=400, merge_every=50, join="node-3@60", eval_every=399)
    daemons = make_daemons(federation, tmp_path, barrier_timeout=1)
    began = asyncio.Event()
    daemons[0].node.position.listen(lambda round, _: began.set() if round > 70 else None)
    async with asyncio.timeout(100):
        early = asyncio.gather(*(daemon.run() for daemon in daemons[:3]))
        await began.wait()
        late = asyncio.create_task(daemons[3].run())
        results = [*await early, await late]
    assert all(result["finished"] for result in results)
    assert len({result["parameters_sha256"] for result in results}) == 1  # the last round merges


# --- members that come at run time


class Silent:
    def wants_all(self, _round: int) -> bool:
        return False

    def book(self, _sent: object) -> None: ...

    async def record(self, node: Node, report: RoundReport) -> None:
        pass


class Growing:
    """Nodes in memory that begin as two, and others that join while these play."""

    def __init__(self, **options: Any) -> None:
        self.federation = small(nodes=4, rounds=12, merge_every=4, **options)
        self.task = prepare(self.federation)
        self.network = MemoryNetwork()
        self.names = ranked_names(4)
        self.nodes: list[Node] = []

    def graph(self, *ranks: int) -> Any:
        return graph_of(self.federation, [self.names[rank] for rank in ranks])

    def add(self, rank: int, *epochs: tuple[int, Any]) -> Node:
        learner = make_learner(self.task, self.names[rank], rank, "cpu")
        transport = MemoryTransport(self.network, self.names[rank])
        self.nodes.append(Node(self.names[rank], learner, Epochs(epochs), transport, Silent()))
        return self.nodes[-1]

    async def run(self, *nodes: Node) -> None:
        for node in nodes:
            await node.transport.start(node.step)
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(node.run())

    def at(self, node: Node, round: int, change: Callable[[], object]) -> None:
        """Do something when a node is about to vote in a round."""
        node.position.listen(lambda played, phase: change() if (played, phase) == (round, "vote") else None)


@pytest.mark.parametrize("options", [{}, {"topology": "ring", "hops": "all"}, {"method": "fedmd"}], ids=str)
async def test_members_come_and_go_at_run_time(options: dict[str, Any]) -> None:
    """The federation does not know them when it begins. All have the change before its round."""
    growing = Growing(**options)
    first, second = growing.graph(1, 3), growing.graph(0, 1, 3)
    old = [growing.add(1, (1, first)), growing.add(3, (1, first))]
    running: list[asyncio.Task[None]] = []

    def join() -> None:
        new = growing.add(0, (1, first), (7, second))
        running.append(asyncio.create_task(growing.run(new)))

    for node in old:
        growing.at(node, 3, lambda node=node: node.step.members_changed(7, growing.graph(0, 1, 3)))
        growing.at(node, 8, lambda node=node: node.step.members_changed(11, growing.graph(0, 1)))
    growing.at(old[0], 5, join)
    growing.at(old[0], 8, lambda: growing.nodes[-1].step.members_changed(11, growing.graph(0, 1)))
    async with asyncio.timeout(60):
        await growing.run(*old)
        await running[0]
    newcomer = growing.nodes[-1]
    assert [node.position.round for node in (*old, newcomer)] == [12, 10, 12]
    assert all(node.position.phase == "done" for node in growing.nodes)
    assert newcomer.learner.parameters.sha256() == old[0].learner.parameters.sha256()
    assert newcomer.ledger.total_received(Stage.HANDOVER).payload == state_size(newcomer.learner)
    assert old[0].step.roster[old[1].name].finished  # it left for good


async def test_a_change_that_comes_late_holds_from_the_next_round() -> None:
    growing = Growing()
    node = growing.add(1, (1, growing.graph(1)))
    found: list[int] = []
    growing.at(node, 6, lambda: found.append(node.step.members_changed(3, growing.graph(1))))
    async with asyncio.timeout(30):
        await growing.run(node)
    assert found == [7]


async def test_a_node_that_missed_merges_fetches_the_state_of_a_neighbour() -> None:
    """It asks while the other plays; the other answers when its next round begins."""
    growing = Growing()
    ring = build("mesh", growing.names[:2])
    there, back = growing.add(0, (1, ring)), growing.add(1, (1, ring))
    fetched: list[bool] = []

    async def come_back() -> None:
        fetched.append(await back.handover.fetch())
        assert back.position.merged_at == 8
        await back.run(announce=False)

    running: list[asyncio.Task[None]] = []
    await back.transport.start(back.step)
    there.step.roster[back.name].let_deadline_pass()  # it is away: nobody waits for it
    growing.at(there, 9, lambda: running.append(asyncio.create_task(come_back())))
    original = there.compute

    async def compute(work: Any, *arguments: Any) -> Any:
        await asyncio.sleep(0)  # let the other run
        return await original(work, *arguments)

    there.compute = compute  # type: ignore[method-assign]
    async with asyncio.timeout(30):
        await growing.run(there)
        await running[0]
    assert fetched == [True]
    assert back.learner.parameters.sha256() == there.learner.parameters.sha256()  # both were in the last merge
    assert back.ledger.total_received(Stage.HANDOVER).payload == state_size(back.learner) < CHUNK_BYTES
