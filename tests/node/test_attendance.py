"""Who is there on a sparse graph: from what nodes tell each other, in memory."""

import asyncio
from typing import Any

import pytest

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.node.links.memory import MemoryNetwork, MemoryTransport
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.position import Position
from p2p_tally.node.step.step import LeftBehind, Step
from p2p_tally.protocol import frames
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.deadlines import Deadlines
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.ledger import Ledger
from p2p_tally.protocol.masks import to_mask
from p2p_tally.protocol.messages import Here, Lost, Message, News, Stage, Vote
from p2p_tally.protocol.peers import Event
from p2p_tally.topologies import build

NAMES = [NodeName(f"n{number}") for number in range(6)]
ME, LEFT, RIGHT = NAMES[0], NAMES[5], NAMES[1]
BALLOTS = BallotFormat("byte", 4, 10)


class Neighbour:
    """A neighbour that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[Message] = []

    def deliver(self, _: NodeName, frame: bytes) -> bool:
        self.heard.append(frames.decode(frame, Limits.of(16, 6, merging=True)))
        return True


class Member:
    """n0 of a ring of six, with n5 and n1 beside it."""

    def __init__(self, least: int | None = None, topology: str = "ring", hops: Any = 1) -> None:
        federation = Federation(rounds=100, warmup=0, hops=hops)
        network = MemoryNetwork()
        self.beside: dict[NodeName, Any] = {LEFT: Neighbour(), RIGHT: Neighbour()}
        network.receivers.update(self.beside)
        self.position = Position(federation)
        transport = MemoryTransport(network, ME)
        self.step = Step(
            ME, federation, build(topology, NAMES), transport, Outbox(ME, transport, Ledger()), self.position, BALLOTS,
            lambda _: None, Deadlines(), lambda: 0.0, least,
        )  # fmt: skip
        self.attendance = self.step.attendance

    def receive(self, message: Message, via: NodeName = RIGHT) -> bool:
        return self.step.deliver(via, frames.encode(message))

    def news(self, origin: NodeName, number: int, notice: Here | Lost, via: NodeName = RIGHT) -> None:
        assert self.receive(News(NAMES.index(origin), number, notice), via)

    def lost(self, origin: NodeName, number: int, *missing: NodeName) -> None:
        self.news(origin, number, Lost(to_mask(missing, NAMES)))

    def heard(self, peer: NodeName, kind: type[Message]) -> list[Any]:
        return [message for message in self.beside[peer].heard if isinstance(message, kind)]


async def test_on_a_ring_two_links_that_others_miss_cut_it_in_two() -> None:
    member = Member()
    assert member.attendance.enough(1)
    member.lost(NAMES[1], 1, NAMES[2])
    assert member.attendance.absent(1) == []  # the other way round
    member.lost(NAMES[5], 1, NAMES[4])
    assert member.attendance.absent(1) == [NAMES[2], NAMES[3], NAMES[4]]
    assert member.attendance.lacks(1)
    member.lost(NAMES[5], 2)
    assert not member.attendance.lacks(1)


async def test_older_news_that_come_round_about_change_nothing() -> None:
    member = Member()
    member.step.link_down(LEFT)
    member.lost(NAMES[1], 7)
    member.lost(NAMES[1], 6, NAMES[2])  # was told before, and came over a longer path
    assert member.attendance.absent(1) == []
    member.lost(NAMES[1], 2**31, NAMES[2])  # it has been started again
    assert member.attendance.absent(1) == NAMES[2:]


async def test_it_tells_when_it_begins_and_when_something_changes() -> None:
    member = Member()
    assert member.heard(LEFT, News) == []
    member.attendance.enough(1)
    member.attendance.enough(2)
    assert [news.message for news in member.heard(LEFT, News)] == [Lost(to_mask([], NAMES))]
    member.step.link_down(RIGHT)
    assert [news.message for news in member.heard(LEFT, News)][1:] == [Lost(to_mask([RIGHT], NAMES))]


async def test_one_that_does_not_count_tells_nothing_until_somebody_counts() -> None:
    member = Member(least=1)
    member.attendance.enough(1)
    member.step.link_down(RIGHT)
    assert member.heard(LEFT, News) == []
    member.news(NAMES[4], 1, Lost(to_mask([], NAMES)), via=LEFT)
    assert [news.message for news in member.heard(LEFT, News)] == [Lost(to_mask([RIGHT], NAMES))]
    assert not member.attendance.lacks(1)


@pytest.mark.parametrize("least", [1, None])
async def test_on_a_mesh_news_are_no_message(least: int | None) -> None:
    member = Member(least, topology="mesh")
    assert not member.receive(News(3, 1, Lost(b"\0")))


async def test_a_majority_of_all_members_moves_a_node_whose_neighbours_were_away_with_it() -> None:
    member = Member()
    member.position.move_to(10)
    for number, name in enumerate(NAMES[2:4]):
        member.news(name, number, Here(50 + number))
    member.step.check(11)  # two of five others
    member.news(NAMES[4], 1, Here(52))
    with pytest.raises(LeftBehind) as behind:
        member.step.check(11)
    assert behind.value.theirs == 50
    member.lost(NAMES[1], 9, NAMES[2])
    member.lost(NAMES[5], 9, NAMES[4])
    member.step.check(11)  # they cannot be reached: nobody knows where they are now


async def test_those_who_are_back_learn_where_this_node_is() -> None:
    member = Member()
    member.position.move_to(10)
    member.attendance.enough(11)
    member.lost(NAMES[1], 1, NAMES[2])
    member.lost(NAMES[5], 1, NAMES[4])
    assert [news for news in member.heard(LEFT, News) if news.origin == 0 and isinstance(news.message, Here)] == []
    member.lost(NAMES[1], 2)
    told = [news.message for news in member.heard(LEFT, News) if news.origin == 0]
    assert told[-1] == Here(10)


async def paused(member: Member, round: int) -> "asyncio.Task[None]":
    """The pause before a round, begun."""
    begun = asyncio.Event()
    member.position.listen(lambda _round, phase: begun.set() if phase == "paused" else None)
    task = asyncio.create_task(member.step.ready(round))
    await begun.wait()
    return task


async def test_whoever_comes_back_behind_is_waited_for_until_it_is_there_again() -> None:
    member = Member(least=5, topology="mesh")
    for peer in (LEFT, *NAMES[2:5]):
        member.step.roster[peer].said_goodbye(finished=False)
    member.step.link_down(RIGHT)
    member.position.move_to(20)
    for peer in (LEFT, *NAMES[2:4]):
        member.step.roster[peer].on(Event.SPOKE)
    pause = await paused(member, 21)
    member.receive(Here(15))
    assert member.attendance.missing == [RIGHT, NAMES[4]]
    member.receive(Here(19))
    await asyncio.sleep(0)
    assert not pause.done()
    member.receive(Here(20))
    await pause


async def test_a_vote_that_is_too_late_wakes_a_paused_node() -> None:
    """What a peer that hung sends of its old round."""
    member = Member(least=6, topology="mesh")
    member.position.move_to(8)
    await member.step.gather(Stage.VOTE, 8, 0, [])
    member.step.roster[RIGHT].let_deadline_pass()
    pause = await paused(member, 9)
    member.receive(Vote(8, bytes(4)))
    await pause


async def test_one_that_is_behind_tells_those_who_wait_when_it_is_there() -> None:
    member = Member()
    member.receive(Here(3))
    for finished in range(5):
        member.position.move_to(finished)
        member.attendance.enough(finished + 1)
    assert member.heard(RIGHT, Here) == [Here(3)]
    assert member.heard(LEFT, Here) == []


async def test_in_a_round_nobody_waits_for_those_who_pause_before_it() -> None:
    member = Member()
    member.position.move_to(4)
    waiting = asyncio.create_task(member.step.gather(Stage.VOTE, 5, 0, [LEFT, RIGHT]))
    await asyncio.sleep(0)
    for peer in (LEFT, RIGHT):
        member.receive(Here(4), peer)
    await asyncio.sleep(0)
    assert not waiting.done()  # they may be slow
    member.lost(NAMES[1], 1, NAMES[2])
    member.lost(NAMES[5], 1, NAMES[4])
    assert await waiting == {}


async def test_those_who_have_played_all_rounds_are_not_missed() -> None:
    member = Member(topology="mesh")
    for peer in NAMES[1:]:
        member.step.roster[peer].said_goodbye(finished=True)
        member.step.link_down(peer)
    assert member.attendance.enough(99)
