"""Coded merges over the memory transport: identical bits, nothing lost, and whole parameters where bases differ."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_merge_exchange import GUARD, SMALL_RUN, Member, bits, make, make_vectors, plain_mean, ring, runs_of

from p2p_tally.ids import NodeName
from p2p_tally.learning.feedback import ErrorFeedback
from p2p_tally.node.merges.exchange import Merged
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.messages import Announce, Shard, Stage
from p2p_tally.protocol.peers import Event

DENSE = [ChangeFormat("bfloat16"), ChangeFormat("int8")]
SPARSE = [ChangeFormat("float32", 0.2), ChangeFormat("int8", 0.2)]
of_each_format = pytest.mark.parametrize("coding", [*DENSE, *SPARSE], ids=str)


class Peer:
    """A member of coded merges with its parameters and its error feedback."""

    def __init__(self, member: Member, vector: np.ndarray, coding: ChangeFormat) -> None:
        self.member = member
        self.vector = vector
        self.feedback = ErrorFeedback(torch.from_numpy(vector), common_start=False)
        self.coding = coding

    async def merge(self, round: int) -> Merged | None:
        merged = await self.member.all_reduce(round, self.vector, self.coding, self.feedback)
        if merged.average is not None:
            self.vector = merged.average.copy()
            if merged.kept is not None:
                self.feedback.settle(self.vector, merged.kept)
        return None if merged.average is None else merged

    def state(self) -> tuple[bytes, bytes, bytes]:
        return self.vector.tobytes(), self.feedback.base.tobytes(), self.feedback.residual.tobytes()


async def make_peers(count: int, length: int, coding: ChangeFormat, seed: int = 0) -> list[Peer]:
    members, vectors = await make(count), make_vectors(count, length, seed)
    return [Peer(member, vector, coding) for member, vector in zip(members, vectors, strict=True)]


async def merge(peers: list[Peer], round: int) -> list[Merged | None]:
    async with asyncio.timeout(GUARD):
        return list(await asyncio.gather(*(peer.merge(round) for peer in peers)))


def train(peers: list[Peer], seed: int) -> None:
    for rank, peer in enumerate(peers):
        step = np.random.default_rng([seed, rank]).standard_normal(len(peer.vector))
        peer.vector = (peer.vector + 0.01 * step).astype(np.float32)


def owed(peers: list[Peer]) -> np.ndarray:
    """What the peers' parameters come to, all that was kept back included."""
    return np.sum([peer.vector.astype(np.float64) + peer.feedback.residual for peer in peers], axis=0)


def sent(peer: Peer, stage: Stage = Stage.SCATTER) -> int:
    peer.member.ledger.settle()
    return peer.member.ledger.total_sent(stage).payload


# --- a full mesh


@of_each_format
@given(st.integers(1, 6), st.integers(0, 60), st.integers(1, 9), st.integers(0, 2**32))
@settings(max_examples=20)
def test_every_peer_has_the_same_bits_and_nothing_is_lost(
    coding: ChangeFormat, count: int, length: int, run: int, seed: int
) -> None:
    """n times the merged model, and what all kept back, is what all put in: in every merge of a run."""

    async def check() -> None:
        peers = await make_peers(count, length, coding, seed)
        for round in (4, 8, 12):
            before = owed(peers)
            assert None not in await merge(peers, round)
            assert len({peer.vector.tobytes() for peer in peers}) == 1
            assert len({peer.feedback.name for peer in peers}) == 1
            assert count == 1 or all((peer.feedback.base == peer.vector).all() for peer in peers)
            size = float(np.abs(before).max(initial=0.0)) + 1.0
            np.testing.assert_allclose(owed(peers), before, atol=1e-5 * size)
            train(peers, seed + round)

    with runs_of(run):
        asyncio.run(check())


@pytest.mark.parametrize("coding", DENSE, ids=str)
async def test_the_mean_is_near_and_gets_nearer(coding: ChangeFormat) -> None:
    """Merges in which nobody trains any more pass on what the ones before kept back."""
    peers = await make_peers(4, 700, coding)
    wanted = plain_mean([peer.vector for peer in peers])
    errors = []
    for round in range(1, 6):
        await merge(peers, round)
        errors.append(float(np.abs(peers[0].vector - wanted).max()))
    assert errors[0] < 0.01 * float(np.abs(wanted).max())
    assert errors[-1] < 0.01 * errors[0]


@of_each_format
async def test_the_bytes_are_those_of_the_format(coding: ChangeFormat) -> None:
    """And a first merge is of the whole model, for most of a model is no model."""
    peers = await make_peers(4, 4 * 300, coding)
    await merge(peers, 4)
    first = coding.dense.size(300)
    assert all(sent(peer) == sent(peer, Stage.GATHER) == 3 * first for peer in peers)
    train(peers, 1)
    await merge(peers, 8)
    assert all(sent(peer) == sent(peer, Stage.GATHER) == 3 * (first + coding.size(300)) for peer in peers)
    announced = {message for _, message in peers[0].member.heard if isinstance(message, Announce)}
    assert {len(announce.base) for announce in announced} == {8}


@pytest.mark.parametrize("late", [0, 2])
@of_each_format
async def test_where_bases_differ_all_send_whole_parameters_and_then_agree_again(
    coding: ChangeFormat, late: int
) -> None:
    """One missed a merge, as a node does that was away: the others cannot make sense of its changes."""
    peers = await make_peers(4, 4 * 300, coding)
    absent = peers[late]
    others = [peer for peer in peers if peer is not absent]
    for peer in others:
        peer.member.link_down(absent.member.name)
    assert None not in await merge(others, 4)
    for peer in others:
        peer.member.roster[absent.member.name].on(Event.LINK_UP)
    train(peers, 5)
    spent = [sent(peer) for peer in peers]
    expected = plain_mean([peer.vector + peer.feedback.residual for peer in peers])
    assert None not in await merge(peers, 8)
    assert [sent(peer) - before for peer, before in zip(peers, spent, strict=True)] == [3 * 4 * 300] * 4
    assert {peer.vector.tobytes() for peer in peers} == {expected.tobytes()}
    assert not any(peer.feedback.residual.any() for peer in peers)
    train(peers, 6)
    spent = [sent(peer) for peer in peers]
    assert None not in await merge(peers, 12)
    assert [sent(peer) - before for peer, before in zip(peers, spent, strict=True)] == [3 * coding.size(300)] * 4
    assert len({peer.vector.tobytes() for peer in peers}) == 1


def bad_scale(data: bytes) -> bytes:
    return np.float32(np.nan).tobytes() + data[4:]


def too_short(data: bytes) -> bytes:
    return data[:-1]


def whole(data: bytes) -> bytes:
    return bytes(4 * len(data))


@pytest.mark.parametrize("how", [bad_scale, too_short, whole])
@pytest.mark.parametrize("stage", [Stage.SCATTER, Stage.GATHER])
async def test_a_merge_that_is_refused_changes_nothing(stage: Stage, how: Callable[[bytes], bytes]) -> None:
    """Neither parameters nor base nor residual; and the next merge is as if the broken one had not been."""
    coding = ChangeFormat("int8")
    peers, twins = [await make_peers(3, 3 * 2 * SMALL_RUN, coding) for _ in range(2)]

    def send_bad(_peer: NodeName, run: Shard) -> Shard:
        return replace(run, data=how(run.data)) if (run.round, run.stage) == (8, stage) else run

    with runs_of(SMALL_RUN):
        for group in (peers, twins):
            await merge(group, 4)
            train(group, 1)
        before = [peer.state() for peer in peers]
        peers[1].member.outbox.tamper = send_bad
        results = await merge(peers, 8)
        honest = [rank for rank in range(3) if rank != 1]
        assert all(results[rank] is None for rank in honest)
        assert [peers[rank].state() for rank in honest] == [before[rank] for rank in honest]
        if results[1] is None:  # else it believes its own mean, and the next merge is one of whole parameters
            assert None not in await merge(peers, 12)
            assert None not in await merge(twins, 12)
            assert [peer.state() for peer in peers] == [twin.state() for twin in twins]


@of_each_format
@pytest.mark.parametrize("at", [0, 5, 11])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
async def test_what_cannot_be_coded_spoils_nobodys(bad: float, at: int, coding: ChangeFormat) -> None:
    peers = await make_peers(3, 12, coding)
    peers[1].vector[at] = bad
    before = [peer.state() for peer in peers]
    assert await merge(peers, 4) == [None] * 3
    assert [peer.state() for peer in peers] == before


# --- other graphs


@pytest.mark.parametrize("coding", DENSE, ids=str)
@pytest.mark.parametrize("length", [0, 1, 7 * SMALL_RUN + 2])
async def test_mixing_leaves_the_mean_where_it_was(length: int, coding: ChangeFormat) -> None:
    """Rounded neighbours against one's own rounded: what rounding took stays where it was taken."""
    members, vectors = await make(5), make_vectors(5, length)
    weights = [dict.fromkeys(own, 0.25) for own in ring(5)]
    for member, own in zip(members, weights, strict=True):
        own[member.name] = 0.5  # symmetric, and rows sum to 1: the mean over all stays
    with runs_of(SMALL_RUN):
        async with asyncio.timeout(GUARD):
            results = await asyncio.gather(
                *(m.mix(4, vector, own, coding) for m, vector, own in zip(members, vectors, weights, strict=True))
            )
        sent_runs = [message for _, message in members[0].heard if isinstance(message, Shard)]
        assert sum(len(shard.data) for shard in sent_runs) == 2 * sum(
            coding.size(min(SMALL_RUN, length - start)) for start in range(0, length, SMALL_RUN)
        )
        # What everybody's parameters are to the others, cut into the runs that travelled.
        cut = range(0, length, SMALL_RUN)
        seen = [np.concatenate([coding.rounded(v[s : s + SMALL_RUN]) for s in cut] or [v]) for v in vectors]
    averages = [result.average for result in results if result.average is not None]
    assert len(averages) == 5
    by_name = {member.name: rounded for member, rounded in zip(members, seen, strict=True)}
    for rank, average in enumerate(averages):
        mixed = np.sum([np.float64(weight) * by_name[name] for name, weight in weights[rank].items()], axis=0)
        expected = vectors[rank] + (mixed - seen[rank])
        np.testing.assert_allclose(average, expected, atol=1e-5 * (1 + np.abs(expected).max(initial=0)))
    size = np.abs(np.sum(vectors, axis=0)).max(initial=0) + 1
    np.testing.assert_allclose(np.sum(averages, axis=0), np.sum(vectors, axis=0), atol=1e-5 * size)


async def test_a_part_of_the_change_is_late_but_comes() -> None:
    """The largest values first; after as many merges as there are parts all has come."""
    peers = await make_peers(4, 4 * 300, ChangeFormat("float32", 0.2))
    await merge(peers, 1)
    train(peers, 1)
    wanted = plain_mean([peer.vector for peer in peers])
    start = peers[0].feedback.base.copy()
    errors = [float(np.abs(start - wanted).sum())]
    for round in range(2, 14):
        await merge(peers, round)
        errors.append(float(np.abs(peers[0].vector - wanted).sum()))
    assert errors[1] < 0.8 * errors[0]
    assert errors[-1] < 1e-3 * errors[0]  # what float32 itself rounds away


async def test_a_neighbour_with_what_cannot_be_coded_says_so() -> None:
    """Nobody here has a deadline: who is not told, hangs."""
    members, vectors, weights = await make(3), make_vectors(3, 9), ring(3)
    vectors[1][4] = np.nan
    coding = ChangeFormat("int8")
    async with asyncio.timeout(GUARD):
        results = await asyncio.gather(
            *(m.mix(4, vector, own, coding) for m, vector, own in zip(members, vectors, weights, strict=True))
        )
    assert [bits(result.average) for result in results] == [None] * 3
