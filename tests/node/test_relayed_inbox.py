"""What comes in where votes are relayed, and what it does to a wait. On a ring of four:

node-1 (this one) - node-0 - node-3 - node-2 - node-1
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from test_inbox import BALLOTS, GUARD, SOON, Neighbour, ballot, deliver
from virtual_time import in_virtual_time

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.node.links.memory import MemoryNetwork, MemoryTransport
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.position import Position
from p2p_tally.node.step.announcer import Announcer
from p2p_tally.node.step.inbox import Inbox
from p2p_tally.node.step.relay import CATCHING_UP, RelayedVotes
from p2p_tally.node.step.waits import Waits
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.ledger import Ledger
from p2p_tally.protocol.masks import to_mask
from p2p_tally.protocol.messages import Here, Lost, Message, News, Relayed, Stage, Vote, Waiting
from p2p_tally.protocol.peers import Roster
from p2p_tally.topologies import build

MEMBERS = [NodeName(f"node-{rank}") for rank in range(4)]
A, ME, B, FAR = MEMBERS
FURTHEST = 2  # rounds that an honest peer can be ahead


class Receiver:
    """The incoming side of one node, and what its two neighbours hear of it."""

    def __init__(self) -> None:
        topology = build("ring", MEMBERS)
        self.position = Position(Federation(rounds=100, warmup=0))
        network = MemoryNetwork()
        self.neighbours: dict[NodeName, Any] = {A: Neighbour(), B: Neighbour()}
        network.receivers.update(self.neighbours)
        transport = MemoryTransport(network, ME)
        ledger = Ledger()
        outbox = Outbox(ME, transport, ledger)
        self.roster = Roster([A, B, FAR])
        self.votes = RelayedVotes(
            ME, topology, "all", outbox, self.roster, self.position, lambda round: round + FURTHEST
        )

        def near(round: int) -> list[NodeName]:
            return [NodeName(peer) for peer in topology.neighbours(ME, round)]

        announcer = Announcer(near, False, transport, outbox, self.votes, self.position, lambda: 0.0)
        self.waits = Waits(self.roster, self.votes, transport.received, announcer.waiting)
        limits = Limits.of(BALLOTS.largest, 4, merging=True)
        self.inbox = Inbox(self.roster, self.votes, self.waits, announcer, ledger, limits, BALLOTS, lambda _: None, 100)
        self._numbers = iter(range(1, 1000))

    def news(self, notice: Here | Waiting | Lost, origin: NodeName = FAR, via: NodeName = A) -> None:
        deliver(self, via, News(MEMBERS.index(origin), next(self._numbers), notice))

    def heard(self, peer: NodeName, kind: type[Message]) -> list[Message]:
        return [message for message in self.neighbours[peer].heard if isinstance(message, kind)]

    async def votes_of(self, round: int, *then: Callable[[], object], patience: float | None = None) -> set[NodeName]:
        """Wait for the votes of a round, and do these things meanwhile; whose came."""
        self.position.move_to(round - 1)
        self.votes.send(round, Vote(round, ballot(0)))
        waiting = asyncio.create_task(self.waits.gather(Stage.VOTE, (round, 0), [A, B, FAR], patience))
        for action in then:
            asyncio.get_running_loop().call_soon(action)
        async with asyncio.timeout(GUARD):
            return set(await waiting)


def near(receiver: Receiver, round: int) -> list[Callable[[], object]]:
    """Both neighbours vote."""
    return [lambda peer=peer: deliver(receiver, peer, Vote(round, ballot(1))) for peer in (A, B)]


def far(receiver: Receiver, round: int, via: NodeName = A) -> Callable[[], object]:
    return lambda: deliver(receiver, via, Relayed(3, 2, Vote(round, ballot(2))))


async def test_a_relayed_vote_counts_once_and_says_nothing_of_the_link() -> None:
    receiver = Receiver()
    came = await receiver.votes_of(1, *near(receiver, 1), far(receiver, 1), far(receiver, 1, via=B))
    assert came == {A, B, FAR}
    assert receiver.roster[FAR].seen == 0 and receiver.roster[A].seen == 1


@pytest.mark.parametrize(
    ("notice", "ends"),
    [
        (Here(1), True),  # it plays from round 2 on
        (Here(0), False),
        (Here(1 + FURTHEST + 1), False),  # no honest node can say so
        (Waiting(2, Stage.VOTE), True),  # it has gone on: its vote has been lost on the way
        (Waiting(1, Stage.VOTE), False),
        (Lost(b"\x00"), False),
    ],
)
async def test_what_news_of_a_voter_does_to_the_wait_for_its_vote(notice: Any, ends: bool) -> None:
    receiver = Receiver()
    vote = [] if ends else [far(receiver, 1)]
    came = await receiver.votes_of(1, *near(receiver, 1), lambda: receiver.news(notice), *vote)
    assert came == ({A, B} if ends else {A, B, FAR})
    assert not receiver.roster.missed


async def test_news_without_a_wait_for_votes_end_no_wait() -> None:
    """In a merge the parameters of a neighbour come over its own link, and that is in order."""
    receiver = Receiver()
    waiting = asyncio.create_task(receiver.waits.gather(Stage.SCATTER, (4, 0), [A], None))
    loop = asyncio.get_running_loop()
    done: list[bool] = []
    for action in (
        lambda: receiver.news(Here(4), origin=A, via=B),
        lambda: receiver.news(Waiting(5, Stage.VOTE), origin=A, via=B),
        lambda: loop.call_soon(lambda: done.append(waiting.done())),
        lambda: loop.call_soon(receiver.waits.link_lost, A),
    ):
        loop.call_soon(action)
    async with asyncio.timeout(GUARD):
        assert await waiting == {}
    assert done == [False]


async def test_one_that_joins_by_news_is_awaited_from_its_round_on() -> None:
    receiver = Receiver()
    receiver.news(Here(2))
    assert receiver.roster[FAR].joined == 2
    assert await receiver.votes_of(1, *near(receiver, 1)) == {A, B}
    assert await receiver.votes_of(3, *near(receiver, 3), far(receiver, 3)) == {A, B, FAR}


async def test_news_are_passed_on_once_and_not_back() -> None:
    receiver = Receiver()
    news = News(3, 77, Here(0))
    for via in (A, B, A):
        deliver(receiver, via, news)
    assert receiver.heard(B, News) == [news] and receiver.heard(A, News) == []
    assert receiver.inbox.arrivals == {"recorded": 1, "duplicate": 2}


async def test_a_node_further_away_that_waits_is_answered_by_one_that_is_not_so_far() -> None:
    receiver = Receiver()
    receiver.news(Waiting(1, Stage.ANNOUNCE))
    answers = [news.message for news in receiver.heard(A, News) if isinstance(news, News) and news.origin == 1]
    assert answers == [Here(0)]


@pytest.mark.parametrize(("at", "flooded"), [(Stage.VOTE, True), (Stage.SCATTER, False)])
async def test_where_somebody_waits_long_for_votes_they_are_flooded(at: Stage, flooded: bool) -> None:
    receiver = Receiver()
    await receiver.votes_of(1, *near(receiver, 1), far(receiver, 1))
    vote = Relayed(3, 3, Vote(1, ballot(2)))
    assert vote not in receiver.heard(B, Relayed)  # it has this vote from node-3 itself
    receiver.news(Waiting(1, at))
    assert (vote in receiver.heard(B, Relayed)) == flooded


@pytest.mark.parametrize(("missing", "flooded"), [([B], True), ([], False)])
async def test_where_somebody_misses_a_neighbour_votes_are_flooded(missing: list[NodeName], flooded: bool) -> None:
    receiver = Receiver()
    await receiver.votes_of(1, *near(receiver, 1), far(receiver, 1))
    receiver.news(Lost(to_mask(missing, MEMBERS)))
    assert (Relayed(3, 3, Vote(1, ballot(2))) in receiver.heard(B, Relayed)) == flooded
    assert receiver.votes.someone_is_missing == flooded


@in_virtual_time
async def test_a_vote_that_does_not_come_is_missed_and_its_link_is_others_to_judge() -> None:
    receiver = Receiver()
    assert await receiver.votes_of(1, *near(receiver, 1), patience=SOON) == {A, B}
    assert receiver.roster.missed == {FAR: 1} and receiver.roster.silent == set()
    assert receiver.heard(A, Waiting)  # those that it may wait for are told
    # It is not awaited again before it is heard; a vote that comes counts.
    assert await receiver.votes_of(2, *near(receiver, 2)) == {A, B}
    assert await receiver.votes_of(3, far(receiver, 3), *near(receiver, 3)) == {A, B, FAR}
    assert await receiver.votes_of(4, *near(receiver, 4), patience=SOON) == {A, B}
    assert receiver.roster.missed == {FAR: 2}


@in_virtual_time
async def test_a_neighbours_vote_that_does_not_come_is_its_links_matter_too() -> None:
    receiver = Receiver()
    votes = [lambda: deliver(receiver, B, Vote(1, ballot(1))), far(receiver, 1)]
    assert await receiver.votes_of(1, *votes, patience=SOON) == {B, FAR}
    assert receiver.roster.missed == {A: 1} and receiver.roster.silent == {A}


async def test_a_lost_link_loses_no_vote_that_can_come_another_way() -> None:
    receiver = Receiver()
    round_about = lambda: deliver(receiver, B, Relayed(0, 3, Vote(1, ballot(1))))  # noqa: E731
    came = await receiver.votes_of(
        1, lambda: receiver.waits.link_lost(A), *near(receiver, 1)[1:], far(receiver, 1, via=B), round_about
    )
    assert came == {A, B, FAR}


async def test_one_that_all_its_neighbours_miss_is_not_awaited() -> None:
    receiver = Receiver()
    came = await receiver.votes_of(
        1,
        *near(receiver, 1)[1:],
        far(receiver, 1, via=B),
        lambda: receiver.waits.link_lost(A),
        lambda: receiver.news(Lost(to_mask([A], MEMBERS)), via=B),
    )
    assert came == {B, FAR}
    lost = [news.message for news in receiver.heard(B, News) if isinstance(news, News)]
    assert Lost(to_mask([A], MEMBERS)) in lost  # this node has told the others too


async def test_one_that_is_too_far_ahead_has_overtaken_this_node() -> None:
    """Had it waited for this node's vote it could not be there: its vote of the round at hand will not come."""
    receiver = Receiver()
    ahead = lambda: deliver(receiver, A, Relayed(3, 2, Vote(1 + FURTHEST + 1, ballot(1))))  # noqa: E731
    assert await receiver.votes_of(1, *near(receiver, 1), ahead) == {A, B}
    assert receiver.inbox.arrivals["too-far-ahead"] == 1


@pytest.mark.parametrize(
    ("round", "passed_on"),
    [(FURTHEST + 2, True), (FURTHEST + 1 + CATCHING_UP, True), (FURTHEST + 2 + CATCHING_UP, False)],
)
async def test_a_node_that_was_away_passes_on_votes_of_rounds_it_has_not_come_to(round: int, passed_on: bool) -> None:
    """Those further down the tree are in step and need them."""
    receiver = Receiver()
    vote = Vote(round, ballot(1))
    deliver(receiver, A, vote)
    assert receiver.inbox.arrivals == {"too-far-ahead": 1}
    assert receiver.heard(B, Relayed) == ([Relayed(0, 2, vote)] if passed_on else [])
    assert receiver.roster[A].seen == round
