"""The parameter exchange over the memory transport: the same bits at every node, or nothing at any."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName, in_order, ranked_names
from p2p_tally.learning.feedback import ErrorFeedback
from p2p_tally.node.links.memory import MemoryNetwork, MemoryTransport
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.merges.all_reduce import AllReduce, participants
from p2p_tally.node.merges.contributions import PLAIN, Sources
from p2p_tally.node.merges.exchange import Merged, Peers
from p2p_tally.node.merges.mixing import Mixing
from p2p_tally.node.position import Position
from p2p_tally.node.step.step import Step
from p2p_tally.protocol import frames, scores
from p2p_tally.protocol import segments as cutting
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.deadlines import Deadlines
from p2p_tally.protocol.frames import CHUNK_BYTES, Limits
from p2p_tally.protocol.ledger import Ledger
from p2p_tally.protocol.masks import from_mask, to_mask
from p2p_tally.protocol.messages import Announce, Hello, Message, Shard, Stage, Withdraw
from p2p_tally.protocol.segments import runs, segments
from p2p_tally.topologies import build

SMALL_RUN = 4  # parameters, in place of 65,536
SOON = 0.03  # a deadline that a test lets pass
GUARD = 10.0  # whoever hangs is cut off here, and the test fails


# What becomes of a run that a member is about to send: another one, none, or an exception.
Tamper = Callable[[NodeName, Shard], Shard | None]


class TamperedOutbox(Outbox):
    """An outgoing side that a test may have a hand in."""

    tamper: Tamper | None = None

    async def stream(self, peer: NodeName, message: Message, frame: bytes) -> None:
        sent = self.tamper(peer, message) if self.tamper and isinstance(message, Shard) else message
        if sent is not None:
            await super().stream(peer, sent, frame if sent is message else frames.encode(sent))


class GivenWeights:
    """A graph as mixing sees it: the weights of each member."""

    def __init__(self, weights: dict[NodeName, float]) -> None:
        self._weights = weights

    def weights(self, _member: str, _round: int) -> dict[NodeName, float]:
        return self._weights

    def members_at(self, _round: int) -> list[NodeName]:
        return list(self._weights)


class Member:
    """A node of a merge, without a model."""

    def __init__(
        self,
        name: NodeName,
        members: list[NodeName],
        network: MemoryNetwork,
        patience: float | None = None,
        least: int = 1,
    ) -> None:
        self.name = name
        self.heard: list[tuple[NodeName, Message]] = []
        self.transport = MemoryTransport(network, name)
        self.ledger = Ledger()
        self.outbox = TamperedOutbox(name, self.transport, self.ledger)
        self.deadlines = Deadlines(patience)
        federation = Federation(rounds=1000, warmup=0, merge_every=4)
        self.step = Step(
            name,
            federation,
            build("mesh", members),
            self.transport,
            self.outbox,
            Position(federation),
            BallotFormat("byte", 16, 10),
            lambda _: None,
            self.deadlines,
            lambda: 0.0,
        )
        self.roster, self.arrivals = self.step.roster, self.step.inbox.arrivals
        refuse, gather = self.step.inbox.refuse, self.step.gather
        self._peers = Peers(name, self.roster, self.outbox, gather, refuse, lambda _: least)

    async def all_reduce(
        self, round: int, vector: np.ndarray, format: ChangeFormat = PLAIN, feedback: ErrorFeedback | None = None
    ) -> Merged:
        return await AllReduce(self._peers, Sources(format, feedback)).merge(round, vector)

    async def mix(
        self, round: int, vector: np.ndarray, weights: dict[NodeName, float], format: ChangeFormat = PLAIN
    ) -> Merged:
        graph: Any = GivenWeights(weights)
        return await Mixing(self._peers, graph, format).merge(round, vector)

    def deliver(self, peer: NodeName, frame: bytes) -> bool:
        self.heard.append((peer, frames.decode(frame, Limits.of(16, 100, merging=True))))
        return self.step.deliver(peer, frame)

    def link_up(self, peer: NodeName, hello: Hello) -> None:
        raise AssertionError("a memory network has no links")

    def link_down(self, peer: NodeName) -> None:
        self.step.link_down(peer)

    def withdrawals(self) -> set[NodeName]:
        return {peer for peer, message in self.heard if isinstance(message, Withdraw)}


async def make(
    count: int, patience: float | None = None, network: MemoryNetwork | None = None, least: int = 1
) -> list[Member]:
    """Members, each behind its door. Without patience they wait for ever: who is not told, hangs."""
    names, network = ranked_names(count), network or MemoryNetwork()
    members = [Member(name, names, network, patience, least) for name in names]
    for member in members:
        await member.transport.start(member)
    return members


async def all_reduce(members: list[Member], vectors: list[np.ndarray], round: int = 4) -> list[np.ndarray | None]:
    async with asyncio.timeout(GUARD):
        results = await asyncio.gather(
            *(member.all_reduce(round, vector) for member, vector in zip(members, vectors, strict=True))
        )
    return [result.average for result in results]


async def mix(
    members: list[Member], vectors: list[np.ndarray], weights: list[dict[NodeName, float]], round: int = 4
) -> list[np.ndarray | None]:
    async with asyncio.timeout(GUARD):
        results = await asyncio.gather(
            *(member.mix(round, vector, own) for member, vector, own in zip(members, vectors, weights, strict=True))
        )
    return [result.average for result in results]


def make_vectors(count: int, length: int, seed: int = 0) -> list[np.ndarray]:
    """Of very different sizes, so that the order of a sum shows in its last bits."""
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.integers(-3, 4, (count, 1))
    return list((rng.standard_normal((count, length)) * scales).astype(np.float32))


def plain_mean(vectors: list[np.ndarray]) -> np.ndarray:
    total = np.zeros(len(vectors[0]), np.float32) + vectors[0]
    for vector in vectors[1:]:
        total = total + vector
    return total / np.float32(len(vectors))


def bits(vector: np.ndarray | None) -> bytes | None:
    return None if vector is None else vector.tobytes()


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "RUN", SMALL_RUN)


@contextmanager
def runs_of(length: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "RUN", length)
        yield


# --- how a vector is cut


@given(st.integers(0, 10_000), st.integers(1, 70))
def test_segments_cover_exactly_and_differ_by_at_most_one(length: int, parts: int) -> None:
    cut = segments(length, parts)
    assert len(cut) == parts
    assert [index for piece in cut for index in range(piece.start, piece.stop)] == list(range(length))
    lengths = [piece.stop - piece.start for piece in cut]
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(1, 30))
def test_runs_cover_a_segment(start: int, length: int, run: int) -> None:
    with runs_of(run):
        cut = runs(slice(start, start + length))
    assert [index for piece in cut for index in range(piece.start, piece.stop)] == list(range(start, start + length))
    assert all(piece.stop - piece.start == run for piece in cut[:-1])
    assert all(0 < piece.stop - piece.start <= run for piece in cut[-1:])


def test_a_run_fills_a_frame() -> None:
    assert cutting.RUN * 4 == CHUNK_BYTES


# --- who takes part


@given(st.integers(1, 40), st.data())
def test_a_mask_says_who_is_present(count: int, data: st.DataObject) -> None:
    members = ranked_names(count)
    present = data.draw(st.sets(st.sampled_from(members), min_size=1))
    mask = to_mask(present, members)
    assert len(mask) == (count + 7) // 8
    assert from_mask(mask, members) == present


def test_a_mask_of_any_length_is_read() -> None:
    members = ranked_names(10)
    assert from_mask(b"", members) == set()
    assert from_mask(b"\x80", members) == {"node-0"}
    assert from_mask(b"\xff" * 100, members) == set(members)


def test_who_takes_part() -> None:
    members = ranked_names(4)
    zero, one, two, three = members
    everybody = to_mask(members, members)
    without_two = to_mask([zero, one, three], members)
    assert participants(dict.fromkeys(members, everybody), members) == members
    assert participants({zero: everybody, one: everybody, three: everybody}, members) == [zero, one, three]
    assert participants({**dict.fromkeys(members, everybody), three: without_two}, members) == [zero, one, three]
    assert participants({zero: without_two, two: everybody}, members) == [zero]
    assert participants({zero: b""}, members) == []


# --- all-reduce


LENGTHS: dict[str, Callable[[int, int], int]] = {
    "0": lambda n, run: 0,
    "1": lambda n, run: 1,
    "N - 1": lambda n, run: n - 1,
    "N": lambda n, run: n,
    "RUN - 1": lambda n, run: run - 1,
    "RUN": lambda n, run: run,
    "RUN + 1": lambda n, run: run + 1,
    "N RUN": lambda n, run: n * run,
    "N RUN + 1": lambda n, run: n * run + 1,
    "3 N RUN - 1": lambda n, run: 3 * n * run - 1,
    "5 N RUN + 3": lambda n, run: 5 * n * run + 3,
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 12])
async def test_everyone_ends_with_the_bits_of_the_plain_mean(count: int, length: str, small_runs: None) -> None:
    size = LENGTHS[length](count, SMALL_RUN)
    members, vectors = await make(count), make_vectors(count, size)
    before = [vector.copy() for vector in vectors]
    results = await all_reduce(members, vectors)
    expected = plain_mean(vectors)
    assert all(bits(result) == bits(expected) for result in results)
    assert all(result is not None and result.dtype == np.float32 for result in results)
    assert all(bits(vector) == bits(old) for vector, old in zip(vectors, before, strict=True))
    # Exactly 2 (N - 1) / N |W| sent a node on average, and nothing lost on the way.
    for member in members:
        member.ledger.settle()
    for total in ("total_sent", "total_received"):
        counts = [getattr(member.ledger, total)(stage) for member in members for stage in (Stage.SCATTER, Stage.GATHER)]
        assert sum(count.payload for count in counts) == 2 * (count - 1) * 4 * size
    sent = sum(member.ledger.total_sent().framed for member in members)
    assert sent == sum(member.ledger.total_received().framed for member in members)
    assert set().union(*(member.arrivals for member in members)) <= {"recorded", "early"}


def test_the_order_of_these_sums_shows() -> None:
    """Else the test above could not tell the order of names from another."""
    vectors = make_vectors(12, 200)
    assert bits(plain_mean(vectors)) != bits(plain_mean(vectors[::-1]))
    by_text = [vectors[rank] for rank in sorted(range(12), key=str)]  # node-10 before node-2
    assert bits(plain_mean(vectors)) != bits(plain_mean(by_text))


async def test_runs_of_the_real_size() -> None:
    members, vectors = await make(2), make_vectors(2, 2 * cutting.RUN + 3)
    results = await all_reduce(members, vectors)
    assert {bits(result) for result in results} == {bits(plain_mean(vectors))}
    shards = [message for _, message in members[0].heard if isinstance(message, Shard)]
    assert max(len(shard.data) for shard in shards) == CHUNK_BYTES


@given(st.integers(1, 6), st.integers(0, 60), st.integers(1, 9), st.integers(0, 2**32))
@settings(max_examples=60)
def test_any_numbers_of_nodes_parameters_and_runs(count: int, length: int, run: int, seed: int) -> None:
    async def check() -> None:
        members, vectors = await make(count), make_vectors(count, length, seed)
        assert {bits(result) for result in await all_reduce(members, vectors)} == {bits(plain_mean(vectors))}

    with runs_of(run):
        asyncio.run(check())


class SlowNetwork(MemoryNetwork):
    """Links of uneven speed: each keeps its frames in order, and takes a random number of turns for each."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = random.Random(seed)
        self._queues: dict[tuple[NodeName, NodeName], asyncio.Queue[bytes]] = {}
        self.pumps: list[asyncio.Task[None]] = []

    def carry(self, sender: NodeName, receiver: NodeName, frame: bytes) -> None:
        if (sender, receiver) not in self._queues:
            queue = self._queues[sender, receiver] = asyncio.Queue()
            turns = self._generator.choice([0, 1, 5, 40])
            self.pumps.append(asyncio.create_task(self._pump(sender, receiver, queue, turns)))
        self._queues[sender, receiver].put_nowait(frame)

    async def _pump(self, sender: NodeName, receiver: NodeName, queue: asyncio.Queue[bytes], turns: int) -> None:
        while True:
            frame = await queue.get()
            for _ in range(self._generator.randint(0, turns)):
                await asyncio.sleep(0)
            self.receivers[receiver].deliver(sender, frame)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["all_reduce", "mix"])
async def test_links_of_uneven_speed_change_nothing(kind: str, seed: int, small_runs: None) -> None:
    """A node that is ahead of another in good faith is never too far ahead; also in the merge after this one."""
    slow = SlowNetwork(seed)
    members = await make(5, network=slow)
    weights = [{member.name: 0.2 for member in members} for _ in members]
    for round in (4, 8):
        vectors = make_vectors(5, 5 * SMALL_RUN * 6 + 2, seed + round)
        if kind == "mix":
            results = await mix(members, vectors, weights, round)
        else:
            results = await all_reduce(members, vectors, round)
            assert bits(results[0]) == bits(plain_mean(vectors))
        assert len({bits(result) for result in results}) == 1
        assert results[0] is not None
    for member in members:
        assert set(member.arrivals) <= {"recorded", "early"}
    for pump in slow.pumps:
        pump.cancel()


# --- somebody is missing


@pytest.mark.parametrize(("away", "least", "merges"), [(1, 3, True), (2, 3, False), (3, 2, False), (3, 1, True)])
async def test_too_few_keep_their_parameters(away: int, least: int, merges: bool, small_runs: None) -> None:
    """Two halves of a federation would otherwise become two models."""
    members = await make(4, least=least)
    present = members[away:]
    for member in present:
        for absent in members[:away]:
            member.link_down(absent.name)
    vectors = make_vectors(4, 50)[away:]
    expected = bits(plain_mean(vectors)) if merges else None
    assert [bits(result) for result in await all_reduce(present, vectors)] == [expected] * len(present)


@pytest.mark.parametrize("absent", range(4))
async def test_one_that_does_not_announce_itself_is_left_out(
    absent: int, small_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "REGAINED", 0.0)  # on a busy machine many of these short deadlines pass
    members, vectors = await make(4, SOON), make_vectors(4, 50)
    gone = members.pop(absent)
    vectors.pop(absent)
    results = await all_reduce(members, vectors)
    assert {bits(result) for result in results} == {bits(plain_mean(vectors))}
    for member in members:
        assert member.roster.silent == {gone.name}
        assert member.roster.missed == {gone.name: 1}
    # From then on nobody waits for it.
    for member in members:
        member.deadlines.fixed = None
    results = await all_reduce(members, vectors, round=8)
    assert {bits(result) for result in results} == {bits(plain_mean(vectors))}


async def test_one_that_another_cannot_reach_is_left_out_by_all(small_runs: None) -> None:
    """node-0 has no link to node-3: so it says, and all four agree on the other three."""
    members, vectors = await make(4), make_vectors(4, 50)
    members[0].link_down(members[3].name)
    results = await all_reduce(members, vectors)
    assert [bits(result) for result in results[:3]] == [bits(plain_mean(vectors[:3]))] * 3
    assert results[3] is None


async def test_alone(small_runs: None) -> None:
    members, vectors = await make(3, SOON), make_vectors(3, 10)
    (result,) = await all_reduce(members[:1], vectors[:1])
    assert bits(result) == bits(vectors[0])


@pytest.mark.parametrize("stage", [Stage.SCATTER, Stage.GATHER])
@pytest.mark.parametrize("part", [0, 2])
async def test_one_that_dies_inside_the_merge(stage: Stage, part: int, small_runs: None) -> None:
    """Its links break: the others drop the mean, or all have it. Nobody has a part of it, and nobody hangs."""
    members, vectors = await make(4), make_vectors(4, 4 * SMALL_RUN * 4)
    dying, others = members[1], [members[0], *members[2:]]
    sent: list[NodeName] = []

    def die_after_the_first(peer: NodeName, run: Shard) -> Shard:
        if (run.stage, run.part) == (stage, part):
            if sent:
                for member in others:
                    member.link_down(dying.name)
                raise ConnectionError("killed")
            sent.append(peer)
        return run

    dying.outbox.tamper = die_after_the_first
    async with asyncio.timeout(GUARD):
        results = await asyncio.gather(
            *(member.all_reduce(4, vector) for member, vector in zip(members, vectors, strict=True)),
            return_exceptions=True,
        )
    assert isinstance(results.pop(1), ConnectionError)
    assert all(isinstance(result, Merged) and result.average is None for result in results)
    # The next merge, without it, is whole.
    living = [vectors[0], *vectors[2:]]
    results = await all_reduce(others, living, round=8)
    assert {bits(result) for result in results} == {bits(plain_mean(living))}


# --- somebody sends what is no run


def not_finite(run: np.ndarray) -> np.ndarray:
    bad = run.copy()
    bad[-1] = np.nan
    return bad


def infinite(run: np.ndarray) -> np.ndarray:
    bad = run.copy()
    bad[0] = -np.inf
    return bad


def too_short(run: np.ndarray) -> np.ndarray:
    return run[:-1] if len(run) > 1 else np.concatenate([run, run])


def too_long(run: np.ndarray) -> np.ndarray:
    return np.concatenate([run, run])


def spoilt(data: bytes, how: Callable[..., np.ndarray]) -> bytes:
    return how(np.frombuffer(data, "<f4")).tobytes()


def spoil(member: Member, stage: Stage, part: int, victims: list[NodeName], how: Callable[..., np.ndarray]) -> None:
    """Let a member send a bad run to some, at one place of the merge of round 4."""

    def send_bad(peer: NodeName, run: Shard) -> Shard:
        if (run.round, run.stage, run.part) == (4, stage, part) and peer in victims:
            return replace(run, data=spoilt(run.data, how))
        return run

    member.outbox.tamper = send_bad


REASONS = {not_finite: "not-finite", infinite: "not-finite", too_short: "shape", too_long: "shape"}


@pytest.mark.parametrize("how", REASONS)
@pytest.mark.parametrize("part", [0, 1, 3])
@pytest.mark.parametrize("count", [2, 4])
async def test_a_bad_run_is_refused_and_the_merge_dropped_by_all(
    count: int, part: int, how: Callable[..., np.ndarray], small_runs: None
) -> None:
    """One victim is enough: what it cannot sum nobody gets, and it says so at once. Nobody here has a deadline."""
    members, vectors = await make(count), make_vectors(count, count * SMALL_RUN * 4)
    liar, victim = members[1], members[0]
    spoil(liar, Stage.SCATTER, part, [victim.name], how)
    results = await all_reduce(members, vectors)
    assert all(result is None for result in results)
    assert victim.arrivals[REASONS[how]] == 1
    assert all(member.withdrawals() == {other.name for other in members if other is not member} for member in members)
    # What is left of it is not in the way of the next.
    results = await all_reduce(members, vectors, round=8)
    assert {bits(result) for result in results} == {bits(plain_mean(vectors))}


@pytest.mark.parametrize("seed", range(8))
async def test_after_a_broken_merge_the_next_is_whole_over_uneven_links_too(seed: int, small_runs: None) -> None:
    """Runs of the broken one are still on their way, and must not fill the room of the next one's."""
    slow = SlowNetwork(seed)
    members = await make(5, network=slow)
    vectors = make_vectors(5, 5 * SMALL_RUN * 6)
    spoil(members[1], Stage.SCATTER, 3, [members[0].name], not_finite)
    assert all(result is None for result in await all_reduce(members, vectors))
    results = await all_reduce(members, vectors, round=8)
    assert {bits(result) for result in results} == {bits(plain_mean(vectors))}
    assert all(member.arrivals["too-far-ahead"] == 0 for member in members)
    for pump in slow.pumps:
        pump.cancel()


@pytest.mark.parametrize("how", REASONS)
@pytest.mark.parametrize("part", [0, 1, 3])
async def test_a_bad_mean_is_refused(part: int, how: Callable[..., np.ndarray], small_runs: None) -> None:
    """Handed out to all by one that lies about its sum: none of the others takes it."""
    members, vectors = await make(4), make_vectors(4, 4 * SMALL_RUN * 4)
    spoil(members[2], Stage.GATHER, part, [member.name for member in members], how)
    results = await all_reduce(members, vectors)
    del results[2]  # a liar may believe what it likes
    assert all(result is None for result in results)
    results = await all_reduce(members, vectors, round=8)
    assert {bits(result) for result in results} == {bits(plain_mean(vectors))}


@pytest.mark.parametrize("part", [0, 1, 3])
async def test_a_bad_mean_for_one_leaves_no_mixture(part: int, small_runs: None) -> None:
    members, vectors = await make(4), make_vectors(4, 4 * SMALL_RUN * 4)
    spoil(members[2], Stage.GATHER, part, [members[0].name], not_finite)
    results = await all_reduce(members, vectors)
    assert results[0] is None
    assert {bits(result) for result in results} <= {None, bits(plain_mean(vectors))}


@pytest.mark.parametrize("at", range(12))
async def test_nan_anywhere_in_ones_own_parameters_spoils_nobodys(at: int) -> None:
    """In whosesoever segment it lies, also in that of its own node: it is nobody's mean."""
    members, vectors = await make(3), make_vectors(3, 12)
    vectors[1][at] = np.nan
    assert [bits(result) for result in await all_reduce(members, vectors)] == [None] * 3


@pytest.mark.parametrize("at", range(6))
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
async def test_a_sum_that_overflows_is_nobodys_mean(at: int) -> None:
    members, vectors = await make(3), make_vectors(3, 6)
    for vector in vectors:
        vector[at] = 3e38
    assert [bits(result) for result in await all_reduce(members, vectors)] == [None] * 3


async def test_parameters_of_another_length(small_runs: None) -> None:
    members, vectors = await make(3), make_vectors(3, 40)
    results = await all_reduce(members, [vectors[0], vectors[1][:-7], vectors[2]])
    assert all(result is None for result in results)


# --- mixing with neighbours


def ring(count: int) -> list[dict[NodeName, float]]:
    """Uneven weights over each closed neighbourhood, listed in no order."""
    names = ranked_names(count)
    return [
        {names[(rank + 1) % count]: 0.25, names[rank - 1]: 0.3, names[rank]: 0.45} for rank in range(count)
    ]  # fmt: skip


def weighted(vectors: dict[NodeName, np.ndarray], weights: dict[NodeName, float]) -> np.ndarray:
    """The sum in order of name, over those that are there."""
    closed = in_order(vectors)
    scale = 1.0 / sum(weights[name] for name in closed)
    total = np.zeros(len(next(iter(vectors.values()))), np.float32)
    for name in closed:
        total = total + vectors[name] * np.float32(weights[name] * scale)
    return total


@pytest.mark.parametrize("length", [0, 1, SMALL_RUN - 1, SMALL_RUN, SMALL_RUN + 1, 7 * SMALL_RUN + 2])
@pytest.mark.parametrize("count", [3, 5, 12])
async def test_mixing_on_a_ring_is_the_weighted_sum(count: int, length: int, small_runs: None) -> None:
    members, vectors, weights = await make(count), make_vectors(count, length), ring(count)
    results = await mix(members, vectors, weights)
    by_name = {member.name: vector for member, vector in zip(members, vectors, strict=True)}
    for result, own in zip(results, weights, strict=True):
        assert bits(result) == bits(weighted({name: by_name[name] for name in own}, own))
    for member in members:
        member.ledger.settle()
        assert member.ledger.total_sent(Stage.VECTOR).payload == 2 * 4 * length
        assert member.ledger.total_received(Stage.VECTOR).payload == 2 * 4 * length


async def test_mixing_with_nobody(small_runs: None) -> None:
    members, vectors = await make(1), make_vectors(1, 9)
    (result,) = await mix(members, vectors, [{members[0].name: 1.0}])
    assert bits(result) == bits(vectors[0])


async def test_mixing_without_a_neighbour_that_is_gone(small_runs: None) -> None:
    members, vectors, weights = await make(5), make_vectors(5, 30), ring(5)
    gone = members[2].name
    for neighbour in (members[1], members[3]):
        neighbour.link_down(gone)
    by_name = {member.name: vector for member, vector in zip(members, vectors, strict=True) if member.name != gone}
    present = [rank for rank in range(5) if rank != 2]
    results = await mix(
        [members[rank] for rank in present],
        [vectors[rank] for rank in present],
        [weights[rank] for rank in present],
    )  # fmt: skip
    for rank, result in zip(present, results, strict=True):
        there = {name: by_name[name] for name in weights[rank] if name != gone}
        assert bits(result) == bits(weighted(there, weights[rank]))


@pytest.mark.parametrize("how", REASONS)
@pytest.mark.parametrize("part", [0, 2, 6])
async def test_a_bad_run_in_mixing_costs_its_receiver_the_merge_and_nobody_else(
    part: int, how: Callable[..., np.ndarray], small_runs: None
) -> None:
    members, vectors, weights = await make(5), make_vectors(5, 7 * SMALL_RUN), ring(5)
    spoil(members[1], Stage.VECTOR, part, [members[2].name], how)
    results = await mix(members, vectors, weights)
    assert results[2] is None
    assert members[2].arrivals[REASONS[how]] == 1
    by_name = {member.name: vector for member, vector in zip(members, vectors, strict=True)}
    for rank in (0, 1, 3, 4):
        expected = weighted({name: by_name[name] for name in weights[rank]}, weights[rank])
        assert bits(results[rank]) == bits(expected)


async def test_after_a_bad_run_nothing_more_is_expected_of_its_sender(small_runs: None) -> None:
    members, vectors = await make(2), make_vectors(2, 7 * SMALL_RUN)
    members[0].outbox.tamper = lambda _, run: replace(run, data=spoilt(run.data, not_finite)) if run.part == 0 else None
    even = {member.name: 0.5 for member in members}
    results = await mix(members, vectors, [even, even])
    assert results[1] is None
    assert results[0] is not None  # it got all of its neighbour's


async def test_a_neighbour_that_dies_while_mixing(small_runs: None) -> None:
    members, vectors, weights = await make(5), make_vectors(5, 7 * SMALL_RUN), ring(5)
    dying = members[1]

    def die(_peer: NodeName, run: Shard) -> Shard:
        if run.part == 3:
            for neighbour in (members[0], members[2]):
                neighbour.link_down(dying.name)
            raise ConnectionError("killed")
        return run

    dying.outbox.tamper = die
    async with asyncio.timeout(GUARD):
        results: list[Any] = await asyncio.gather(
            *(member.mix(4, vector, own) for member, vector, own in zip(members, vectors, weights, strict=True)),
            return_exceptions=True,
        )
    assert isinstance(results[1], ConnectionError)
    assert results[0].average is None and results[2].average is None
    by_name = {member.name: vector for member, vector in zip(members, vectors, strict=True)}
    for rank in (3, 4):  # their neighbours gave them everything
        expected = weighted({name: by_name[name] for name in weights[rank]}, weights[rank])
        assert bits(results[rank].average) == bits(expected)


# --- what goes over the wire


async def test_the_messages_of_a_merge_in_their_order(small_runs: None) -> None:
    members, vectors = await make(2), make_vectors(2, 2 * SMALL_RUN * 2)
    await all_reduce(members, vectors)
    names = [member.name for member in members]
    kinds = [
        (message.stage.name, message.part) if isinstance(message, Shard) else message
        for _, message in members[0].heard
    ]  # fmt: skip
    assert kinds[0] == Announce(4, to_mask(names, names))
    assert kinds[1:] == [("SCATTER", 0), ("SCATTER", 1), ("GATHER", 0), ("GATHER", 1)]
