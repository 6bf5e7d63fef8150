"""One member of six lies in every merge: the others all merge, to one model, within two deadlines. In virtual time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from conftest import small
from rogue import KINDS, LIAR, scaled, withholds_at_random
from rogue_time import Played, play_in_memory

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.node.links.memory import MemoryTransport
from p2p_tally.node.merges.left_out import OFFER
from p2p_tally.protocol import segments as cutting
from p2p_tally.protocol.messages import Message, Shard, Stage

OPTIONS: dict[str, Any] = {
    "nodes": 6, "rounds": 2, "warmup": 0, "merge_every": 1, "eval_every": 2, "local_steps": 1, "batch": 4
}  # fmt: skip
FEDERATION = small(**OPTIONS)
LEAVES_ONE_OUT = ["means withheld from one", "two honest members blamed", "one honest member not heard"]


def assert_all_merged(played: Played, federation: Federation = FEDERATION, liars: int = 1) -> None:
    assert played.models == 1
    assert played.completed == played.due == federation.rounds * (federation.nodes - liars)
    assert max(played.deadlines) <= 2.0


def test_honest_members_wait_for_nobody() -> None:
    played = play_in_memory(FEDERATION, {})
    assert_all_merged(played, liars=0)
    assert played.deadlines == [0.0, 0.0]


@pytest.mark.parametrize("kind", KINDS)
def test_all_merge_within_two_deadlines(kind: str) -> None:
    assert_all_merged(play_in_memory(FEDERATION, {LIAR: KINDS[kind]}))


@pytest.mark.parametrize("seed", range(6))
def test_so_they_do_if_it_withholds_now_this_and_now_that(seed: int) -> None:
    assert_all_merged(play_in_memory(FEDERATION, {LIAR: withholds_at_random(seed, [0.1, 0.3][seed % 2])}))


@pytest.mark.parametrize(
    ("kind", "options"),
    zip(LEAVES_ONE_OUT, [{"merge_precision": "int8"}, {"method": "diloco"}, {"robust_merge": "median"}], strict=True),
    ids=str,
)
def test_who_was_left_out_has_all_that_the_next_merge_depends_on(kind: str, options: dict[str, Any]) -> None:
    federation = small(**OPTIONS, **options)
    assert_all_merged(play_in_memory(federation, {LIAR: KINDS[kind]}), federation)


def test_a_result_of_many_runs_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "RUN", 100)  # a dozen in a segment: more than are held otherwise
    assert_all_merged(play_in_memory(FEDERATION, {LIAR: KINDS["means withheld from one"]}))


def test_what_is_given_is_a_model_for_each_of_those_left_out() -> None:
    played = play_in_memory(FEDERATION, {LIAR: KINDS["two honest members blamed"]})
    whole = 4 * 4810
    # Five honest members send means to all others; then four of them again to three, and a model to two left out.
    expected = 2 * (5 * 5 * whole / 6 + 4 * 3 * whole / 4 + 2 * whole)
    assert played.sent[Stage.GATHER].payload == pytest.approx(expected, rel=0.01)


def test_a_second_liar_cannot_spoil_what_is_given() -> None:
    """Of ten, two: one takes an honest member out with it, the other gives that one a false segment."""
    federation = small(**{**OPTIONS, "nodes": 10})

    def blames_one(_: NodeName, message: Message) -> Message:
        if not isinstance(message, Shard) or message.stage is not Stage.VERDICT or message.part >= OFFER:
            return message
        if message.part:
            return message
        return Shard(message.round, message.stage, message.part, bytes([18]) + bytes(16) + b"\x40\x00")

    def gives_false(peer: NodeName, message: Message) -> Message | None:
        after_all = isinstance(message, Shard) and message.part >= 9
        return scaled(Stage.GATHER, 2.0)(peer, message) if after_all else message

    played = play_in_memory(federation, {LIAR: blames_one, 7: gives_false})
    assert_all_merged(played, federation, liars=2)


def test_who_does_not_read_what_it_is_given_delays_others_within_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[NodeName] = []
    never = asyncio.Event()

    def blames(peer: NodeName, message: Message) -> Message | None:
        if isinstance(message, Shard) and message.stage is Stage.VERDICT and message.part == 0:
            given.append(peer)  # from now on it reads no run
        return KINDS["two honest members blamed"](peer, message)

    drained: Callable[..., Any] = MemoryTransport.drained

    async def room(transport: MemoryTransport, peer: NodeName) -> None:
        if given and peer == f"node-{LIAR}":
            await never.wait()
        await drained(transport, peer)

    monkeypatch.setattr(MemoryTransport, "drained", room)
    federation = small(**{**OPTIONS, "rounds": 1, "eval_every": 1})
    played = play_in_memory(federation, {LIAR: blames})
    assert_all_merged(played, federation)
    assert played.deadlines[0] > 0.5
