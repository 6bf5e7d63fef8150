"""What a merge rule keeps becomes the same again after merges apart; and nobody merges with other members."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
import pytest
import torch
from test_merge_exchange import GUARD, Member, make, make_vectors, plain_mean

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.learning.feedback import ErrorFeedback
from p2p_tally.node.merges.all_reduce import AllReduce
from p2p_tally.node.merges.contributions import Sources
from p2p_tally.node.merges.exchange import FAILED, Merged, Peers, members_digest
from p2p_tally.node.merges.mixing import Mixing
from p2p_tally.node.merges.outer import OuterState
from p2p_tally.node.merges.ring import RingReduce
from p2p_tally.node.position import Position
from p2p_tally.protocol.messages import Announce
from p2p_tally.topologies import build

LENGTH = 7
FEDERATION = Federation(rounds=1000, warmup=0, merge_every=4)


class Outer:
    """A node's outer state, and its tensors."""

    def __init__(self, value: float, *, apart: bool) -> None:
        self.tensors = {"outer.anchor": torch.full((LENGTH,), value), "outer.velocity": torch.full((LENGTH,), -value)}
        self.position = Position(FEDERATION)
        self.position.keeps_apart(apart)
        parameters = {"parameters": torch.zeros(LENGTH)}
        self.state = OuterState({**parameters, **self.tensors}, self.position)

    @property
    def values(self) -> list[float]:
        return [float(tensor[0]) for tensor in self.tensors.values()]


def test_it_has_a_name_only_while_others_may_have_another() -> None:
    assert Outer(1.0, apart=False).state.name == b""
    assert Outer(1.0, apart=True).state.name == Outer(1.0, apart=True).state.name != b""
    assert Outer(1.0, apart=True).state.name != Outer(2.0, apart=True).state.name


def test_a_method_that_keeps_nothing_has_none() -> None:
    position = Position(FEDERATION)
    position.keeps_apart(True)
    assert OuterState({"parameters": torch.zeros(3), "anchor": torch.zeros(3)}, position).name == b""


@pytest.mark.parametrize(
    ("merged", "apart"),
    [
        (FAILED, True),
        (Merged(np.zeros(LENGTH, np.float32)), True),
        (Merged(np.zeros(LENGTH, np.float32), whole=True), False),
    ],
    ids=["failed", "some", "all"],
)
def test_after_a_merge_of_all_nobody_is_apart(merged: Merged, apart: bool) -> None:
    outer = Outer(1.0, apart=not apart)
    outer.state.settle(merged)
    assert outer.position.apart is apart


def test_a_node_that_jumps_over_a_merge_is_apart_and_remembers_it() -> None:
    position = Position(FEDERATION)
    position.move_to(3)
    assert not position.apart
    position.move_to(9)
    assert position.apart
    resumed = Position(FEDERATION)
    resumed.restore(9, position.notes())
    assert resumed.apart
    resumed.take_over(12, 0, 12)  # it has the state of a peer now
    assert not resumed.apart


Merge = Callable[[Member, OuterState, np.ndarray, int], Awaitable[Merged]]


async def over_mesh(member: Member, outer: OuterState, vector: np.ndarray, round: int) -> Merged:
    return outer.settle(await AllReduce(member._peers, Sources(outer=outer)).merge(round, vector))


async def around_ring(member: Member, outer: OuterState, vector: np.ndarray, round: int) -> Merged:
    ring = sorted([member.name, *member.roster])
    return outer.settle(await RingReduce(member._peers, ring, outer).merge(round, vector))


async def merged_by(
    merge: Merge, members: Sequence[Member], outers: Sequence[Outer], vectors: list[np.ndarray], round: int = 4
) -> list[Merged]:
    async with asyncio.timeout(GUARD):
        return await asyncio.gather(
            *(merge(m, o.state, v, round) for m, o, v in zip(members, outers, vectors, strict=True))
        )


@pytest.mark.parametrize("merge", [over_mesh, around_ring])
async def test_where_all_have_the_same_nothing_more_is_sent(merge: Merge) -> None:
    members, vectors = await make(3), make_vectors(3, LENGTH)
    outers = [Outer(1.0, apart=False) for _ in members]
    results = await merged_by(merge, members, outers, vectors)
    assert all(result.outer is None and result.average is not None for result in results)
    assert all(not message.base for member in members for _, message in member.heard if isinstance(message, Announce))


async def test_two_halves_that_merged_apart_are_one_again() -> None:
    members, vectors = await make(4), make_vectors(4, LENGTH)
    outers = [Outer(value, apart=True) for value in (1.0, 1.0, 1.0, 5.0)]
    results = await merged_by(over_mesh, members, outers, vectors)
    assert [outer.values for outer in outers] == [[2.0, -2.0]] * 4
    assert {result.average.tobytes() for result in results if result.average is not None} == {
        plain_mean(vectors).tobytes()
    }
    assert not any(outer.position.apart for outer in outers)


async def test_one_that_missed_a_merge_is_enough_and_coded_merges_send_whole_parameters_then() -> None:
    members, vectors = await make(3), make_vectors(3, LENGTH)
    outers = [Outer(1.0, apart=False), Outer(1.0, apart=False), Outer(4.0, apart=True)]

    async def coded(member: Member, outer: OuterState, vector: np.ndarray, round: int) -> Merged:
        feedback = ErrorFeedback(torch.zeros(LENGTH), common_start=True)
        return outer.settle(
            await AllReduce(member._peers, Sources(feedback=feedback, outer=outer)).merge(round, vector)
        )

    results = await merged_by(coded, members, outers, vectors)
    assert [outer.values for outer in outers] == [[2.0, -2.0]] * 3
    assert all(result.kept is not None and len(result.kept) == LENGTH for result in results)


async def test_while_one_is_away_the_others_send_no_more_than_parameters() -> None:
    members, vectors = await make(3), make_vectors(3, LENGTH)
    outers = [Outer(1.0, apart=True) for _ in members]
    for member in members[:2]:
        member.step.link_down(members[2].name)
    results = await merged_by(over_mesh, members[:2], outers[:2], vectors[:2])
    assert all(result.outer is None and result.average is not None for result in results)
    assert all(outer.position.apart for outer in outers[:2])


async def test_around_a_ring_a_failed_merge_tells_all() -> None:
    """One has seen a merge fail that the others completed: this one fails at all, the next makes them one."""
    members, vectors = await make(4), make_vectors(4, LENGTH)
    outers = [*(Outer(1.0, apart=False) for _ in range(3)), Outer(5.0, apart=True)]
    results = await merged_by(around_ring, members, outers, vectors)
    assert all(result.average is None for result in results)
    results = await merged_by(around_ring, members, outers, vectors, round=8)
    assert all(result.average is not None for result in results)
    assert [outer.values for outer in outers] == [[2.0, -2.0]] * 4


# --- two lists of members


def with_list(peers: Peers, names: Sequence[NodeName]) -> Peers:
    return peers._replace(members=members_digest(build("mesh", list(names))))


@pytest.mark.parametrize("kind", ["mesh", "ring", "neighbours"])
async def test_nodes_with_two_lists_of_members_do_not_merge(kind: str) -> None:
    """One node has not heard that somebody joined: it counts this round with another list than the rest."""
    members, vectors = await make(3, least=2), make_vectors(3, LENGTH)
    names = [member.name for member in members]
    lists = [[*names, NodeName("node-9")]] * 2 + [names]

    async def merge(member: Member, own: Sequence[NodeName], vector: np.ndarray) -> Merged:
        peers = with_list(member._peers, own)
        if kind == "mesh":
            return await AllReduce(peers).merge(4, vector)
        if kind == "ring":
            return await RingReduce(peers, names).merge(4, vector)
        return await Mixing(peers, build("mesh", names)).merge(4, vector)

    async with asyncio.timeout(GUARD):
        results = await asyncio.gather(*(merge(*one) for one in zip(members, lists, vectors, strict=True)))
    assert all(member.arrivals["members"] for member in members)
    if kind == "neighbours":  # who merges with nobody keeps what it has
        assert results[2].average is not None and np.allclose(results[2].average, vectors[2], rtol=1e-5)
        expected = (vectors[0] + vectors[1]) / 2
        assert all(np.allclose(result.average, expected, rtol=1e-4) for result in results[:2])  # type: ignore[arg-type]
    else:
        assert results[2].average is None
        together = [result.average for result in results[:2]]
        if kind == "ring":
            assert together == [None, None]  # around a ring it takes all
        else:
            assert all(one is not None and one.tobytes() == plain_mean(vectors[:2]).tobytes() for one in together)
