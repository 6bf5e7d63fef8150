"""What comes in, and waiting for it: who is waited for, what counts, and what a peer's mistake does."""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from virtual_time import in_virtual_time

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.node.links.memory import MemoryNetwork, MemoryTransport
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.position import Position
from p2p_tally.node.step.announcer import Announcer
from p2p_tally.node.step.inbox import Inbox
from p2p_tally.node.step.votes import DirectVotes
from p2p_tally.node.step.waits import Waits
from p2p_tally.protocol import frames
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.ledger import Count, Ledger
from p2p_tally.protocol.messages import Announce, Bye, Here, Message, Ready, Shard, Stage, Vote, Waiting, Withdraw
from p2p_tally.protocol.peers import Event, Roster
from p2p_tally.protocol.scores import BEST, Offence

ME, A, B, C = (NodeName(name) for name in ("me", "a", "b", "c"))
BALLOTS = BallotFormat("byte", 4, 10)

SOON = 0.125  # a deadline that a test lets pass, in virtual time; halves and sums of it are exact
GUARD = 5.0  # what should end at once is cut off here, and fails


class Neighbour:
    """The other end of a link: it keeps what it hears, and answers where a test wants it."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.answer: Callable[[Message], object] = lambda _: None

    def deliver(self, _peer: NodeName, frame: bytes) -> bool:
        message = frames.decode(frame, Limits.of(BALLOTS.largest, 4, merging=True))
        self.heard.append(message)
        self.answer(message)
        return True


class Receiver:
    """The incoming side of one node with three neighbours."""

    def __init__(
        self,
        ballots: BallotFormat = BALLOTS,
        rounds: int = 1000,
        labels: Callable[[int], np.ndarray | None] = lambda _: None,
        bytes_received: Callable[[NodeName], int | None] = lambda _: None,
        longest: float = math.inf,
        bounds_slow: bool = True,
    ) -> None:
        self.position = Position(Federation(rounds=rounds, warmup=0))
        network = MemoryNetwork()
        self.neighbours: dict[NodeName, Any] = {peer: Neighbour() for peer in (A, B, C)}
        network.receivers.update(self.neighbours)
        transport = MemoryTransport(network, ME)
        self.ledger = Ledger()
        outbox = Outbox(ME, transport, self.ledger)
        self.roster = Roster([A, B, C])
        votes = DirectVotes(lambda _: [A, B, C], outbox, self.roster)
        announcer = Announcer(lambda _: [A, B, C], False, transport, outbox, votes, self.position, lambda: 0.0)
        self.waits = Waits(self.roster, votes, bytes_received, announcer.waiting, longest, bounds_slow=bounds_slow)
        limits = Limits.of(ballots.largest, 4, merging=True)
        self.inbox = Inbox(self.roster, votes, self.waits, announcer, self.ledger, limits, ballots, labels, rounds)
        self.arrivals = self.inbox.arrivals

    def link_up(self, peer: NodeName, *, awaited: bool) -> None:
        self.roster[peer].on(Event.LINK_UP if awaited else Event.LINK_UP_EARLY)

    def link_down(self, peer: NodeName) -> None:
        self.waits.link_lost(peer)

    @property
    def seen(self) -> dict[NodeName, int]:
        return {name: peer.seen for name, peer in self.roster.items() if peer.seen}


def ballot(value: int) -> bytes:
    return bytes([value] * 4)


def deliver(receiver: Receiver, peer: NodeName, message: Message) -> bool:
    frame = frames.encode(message)
    return receiver.inbox.deliver(peer, frame, len(frame) + 2)


async def gather(
    receiver: Receiver,
    round: int,
    *then: Callable[[], object],
    patience: float | None = None,
    stage: Stage = Stage.VOTE,
    welcome: tuple[NodeName, ...] = (A, B, C),
    part: int = 0,
    guard: float = GUARD,
) -> dict[NodeName, Any]:
    """Wait at a stage; what `then` does is done once the waiting has begun."""
    waiting = asyncio.create_task(receiver.waits.gather(stage, (round, part), welcome, patience))
    for action in then:
        asyncio.get_running_loop().call_soon(action)  # queued after the task's first step
    async with asyncio.timeout(guard):
        return await waiting


def values(came: dict[NodeName, Any]) -> dict[NodeName, list[int]]:
    return {peer: votes.tolist() for peer, votes in came.items()}


async def test_all_awaited_are_in() -> None:
    receiver = Receiver()
    came = await gather(
        receiver,
        1,
        lambda: deliver(receiver, C, Vote(1, ballot(3))),
        lambda: deliver(receiver, A, Vote(1, ballot(1))),
        lambda: deliver(receiver, B, Vote(1, ballot(2))),
    )
    assert list(values(came).items()) == [(A, [1] * 4), (B, [2] * 4), (C, [3] * 4)]
    assert receiver.arrivals == {"recorded": 3}
    assert not receiver.roster.silent and not receiver.roster.missed


async def test_it_waits_for_the_last() -> None:
    receiver = Receiver()
    deliver(receiver, A, Vote(1, ballot(1)))
    waiting = asyncio.create_task(receiver.waits.gather(Stage.VOTE, (1, 0), [A, B], None))
    loop = asyncio.get_running_loop()
    unfinished: list[bool] = []
    loop.call_soon(lambda: unfinished.append(waiting.done()))
    loop.call_soon(deliver, receiver, A, Vote(1, ballot(1)))  # the same again: no second voter
    loop.call_soon(lambda: loop.call_soon(lambda: unfinished.append(waiting.done())))
    loop.call_soon(lambda: loop.call_soon(deliver, receiver, B, Vote(1, ballot(2))))
    async with asyncio.timeout(GUARD):
        assert set(await waiting) == {A, B}
    assert unfinished == [False, False]


async def test_what_came_early_is_there_at_once() -> None:
    receiver = Receiver()
    for peer in (A, B, C):
        deliver(receiver, peer, Vote(1, ballot(7)))
        deliver(receiver, peer, Vote(2, ballot(8)))
    assert values(await gather(receiver, 1)) == {peer: [7] * 4 for peer in (A, B, C)}
    assert values(await gather(receiver, 2)) == {peer: [8] * 4 for peer in (A, B, C)}
    assert receiver.arrivals == {"early": 6}


async def test_nobody_to_wait_for() -> None:
    assert await gather(Receiver(), 1, welcome=()) == {}


@in_virtual_time
async def test_a_deadline_that_passes_is_counted_and_marks_the_silent(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver()
    deliver(receiver, B, Vote(1, ballot(2)))
    with caplog.at_level(logging.WARNING):
        came = await gather(receiver, 1, patience=SOON)
    assert list(came) == [B]
    assert receiver.roster.silent == {A, C}
    assert receiver.roster.missed == {A: 1, C: 1}
    assert [record.getMessage() for record in caplog.records] == ["waited 0.1 s in vain for a, c"]
    assert caplog.records[0].event == "missed"  # type: ignore[attr-defined]


@in_virtual_time
async def test_a_silent_peer_costs_one_deadline_only() -> None:
    receiver = Receiver()
    await gather(receiver, 1, patience=SOON, welcome=(A,))
    for round in range(2, 12):
        assert await gather(receiver, round, patience=None, welcome=(A,)) == {}  # for ever, if it were awaited
    assert receiver.roster.missed == {A: 1}


@in_virtual_time
async def test_a_silent_peers_vote_in_time_counts_and_brings_it_back() -> None:
    receiver = Receiver()
    await gather(receiver, 1, patience=SOON, welcome=(A,))
    assert receiver.roster.silent == {A}
    # Round 2 waits for b; what a says meanwhile counts.
    came = await gather(
        receiver,
        2,
        lambda: deliver(receiver, A, Vote(2, ballot(5))),
        lambda: deliver(receiver, B, Vote(2, ballot(6))),
        welcome=(A, B),
    )
    assert set(came) == {A, B}
    assert receiver.roster.silent == set()
    # From now on it is waited for again.
    assert await gather(receiver, 3, patience=SOON, welcome=(A,)) == {}
    assert receiver.roster.missed == {A: 2}


@in_virtual_time
async def test_a_late_vote_is_dropped_and_does_not_bring_it_back() -> None:
    receiver = Receiver()
    await gather(receiver, 1, patience=SOON, welcome=(A,))
    deliver(receiver, A, Vote(1, ballot(5)))
    assert receiver.arrivals == {"late": 1}
    assert receiver.roster.silent == {A}
    assert receiver.seen == {A: 1}


async def test_a_lost_peer_ends_the_waiting() -> None:
    receiver = Receiver()
    came = await gather(
        receiver,
        1,
        lambda: deliver(receiver, A, Vote(1, ballot(1))),
        lambda: receiver.link_down(A),  # what it sent before still counts
        lambda: receiver.link_down(B),
        lambda: receiver.link_down(C),
    )
    assert values(came) == {A: [1] * 4}
    assert receiver.roster.silent == {A, B, C}
    assert not receiver.roster.missed


@pytest.mark.parametrize("awaited", [True, False])
@in_virtual_time
async def test_a_found_peer_is_awaited_at_once_or_later(awaited: bool) -> None:
    receiver = Receiver()
    receiver.link_down(A)
    deliver(receiver, A, Bye(0))
    receiver.link_up(A, awaited=awaited)
    assert receiver.roster.left == set()
    assert await gather(receiver, 1, patience=SOON, welcome=(A,)) == {}
    assert receiver.roster.missed[A] == int(awaited)


async def test_a_peer_found_again_is_not_awaited_before_it_plays() -> None:
    receiver = Receiver()
    receiver.link_up(A, awaited=True)
    receiver.link_up(A, awaited=False)
    assert receiver.roster.silent == {A}


@in_virtual_time
async def test_here_says_from_which_round_on() -> None:
    receiver = Receiver()
    receiver.link_down(A)
    deliver(receiver, A, Here(3))
    assert receiver.roster[A].joined == 3
    assert receiver.roster.silent == set()
    for round in (1, 2, 3):
        assert await gather(receiver, round, welcome=(A,)) == {}
    assert not receiver.roster.missed
    assert await gather(receiver, 4, patience=SOON, welcome=(A,)) == {}
    assert receiver.roster.missed == {A: 1}


async def test_a_vote_for_a_round_before_it_joined_still_counts() -> None:
    receiver = Receiver()
    deliver(receiver, A, Here(3))
    deliver(receiver, A, Vote(2, ballot(1)))
    assert set(await gather(receiver, 2, welcome=(A,))) == {A}


async def test_bye_ends_the_waiting() -> None:
    receiver = Receiver()
    assert await gather(receiver, 1, lambda: deliver(receiver, A, Bye(0)), welcome=(A,)) == {}
    assert receiver.roster.left == {A}
    assert receiver.roster.silent == {A}
    assert not receiver.roster.missed
    assert await gather(receiver, 2, welcome=(A,)) == {}


async def test_withdraw_ends_the_waiting_in_the_merge() -> None:
    receiver = Receiver()
    came = await gather(
        receiver,
        4,
        lambda: deliver(receiver, B, Shard(4, Stage.SCATTER, 0, bytes(4))),
        lambda: deliver(receiver, A, Withdraw(4)),
        stage=Stage.SCATTER,
        welcome=(A, B),
    )
    assert came == {B: bytes(4)}
    # Nor is it awaited at a later stage of the same merge.
    assert await gather(receiver, 4, stage=Stage.GATHER, welcome=(A,)) == {}
    assert await gather(receiver, 4, stage=Stage.SCATTER, welcome=(A,), part=1) == {}
    assert not receiver.roster.silent and not receiver.roster.missed


async def test_whoever_speaks_of_a_later_round_announces_no_merge_of_this_one() -> None:
    """Peers that saw other votes may decide otherwise: a link keeps its messages in order, so nothing will come."""
    receiver = Receiver()
    came = await gather(
        receiver,
        4,
        lambda: deliver(receiver, B, Announce(4, b"\xf0")),
        lambda: deliver(receiver, A, Vote(5, ballot(1))),
        stage=Stage.ANNOUNCE,
        welcome=(A, B),
    )
    assert set(came) == {B}
    assert not receiver.roster.silent and not receiver.roster.missed
    assert set(await gather(receiver, 5, lambda: deliver(receiver, B, Vote(5, ballot(2))), welcome=(A, B))) == {A, B}
    # Nor is one awaited that spoke of it before the wait began.
    deliver(receiver, A, Vote(7, ballot(1)))
    assert await gather(receiver, 6, stage=Stage.ANNOUNCE, welcome=(A,)) == {}


@pytest.mark.parametrize("message", [Vote(6, ballot(1)), Waiting(4, Stage.VOTE), Here(4)])
async def test_a_vote_that_went_out_before_it_could_be_taken_is_not_awaited(message: Message) -> None:
    """A node that comes back hears from peers in rounds whose votes went out before there was a link, or found no
    room: they will not come again."""
    receiver = Receiver()
    deliver(receiver, A, message)
    deliver(receiver, B, Vote(4, ballot(2)))
    deliver(receiver, B, Vote(5, ballot(2)))
    deliver(receiver, B, Vote(6, ballot(2)))  # no room for this one
    assert set(await gather(receiver, 4, welcome=(A, B))) == {B}
    assert set(await gather(receiver, 5, lambda: deliver(receiver, A, Vote(5, ballot(1))), welcome=(A, B))) >= {B}
    assert A not in await gather(receiver, 6, welcome=(B,))
    assert not receiver.roster.missed


@pytest.mark.parametrize("stage", [Stage.VOTE, Stage.SCATTER, Stage.GATHER, Stage.VECTOR])
async def test_whoever_is_in_a_later_round_sends_nothing_more_of_this_one(stage: Stage) -> None:
    """A link keeps its messages in order. What was sent before there was a link is lost, and is not waited for."""
    receiver = Receiver()
    later = lambda: deliver(receiver, A, Vote(5, ballot(1)))  # noqa: E731
    assert await gather(receiver, 4, later, stage=stage, welcome=(A,)) == {}
    assert not receiver.roster.missed
    assert values(await gather(receiver, 5, welcome=(A,))) == {A: [1] * 4}


async def test_withdraw_before_the_merge_begins_here() -> None:
    receiver = Receiver()
    deliver(receiver, A, Withdraw(4))
    assert await gather(receiver, 4, stage=Stage.VECTOR, welcome=(A,)) == {}


@in_virtual_time
async def test_withdraw_is_for_one_merge_only_and_for_no_vote() -> None:
    receiver = Receiver()
    deliver(receiver, A, Withdraw(4))
    assert await gather(receiver, 4, welcome=(A,), patience=SOON) == {}
    assert receiver.roster.missed == {A: 1}
    receiver.link_up(A, awaited=True)
    assert await gather(receiver, 8, stage=Stage.SCATTER, welcome=(A,), patience=SOON) == {}
    assert receiver.roster.missed == {A: 2}
    # While votes are awaited it does not stand in for one.
    receiver.link_up(A, awaited=True)
    withdraw = lambda: deliver(receiver, A, Withdraw(9))  # noqa: E731
    assert await gather(receiver, 9, withdraw, welcome=(A,), patience=SOON) == {}
    assert receiver.roster.missed == {A: 3}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (bytes([1, 2, 3]), "ballot-length"),
        (bytes(5), "ballot-length"),
        (b"", "ballot-length"),
        (bytes([0, 0, 0, 10]), "ballot-class"),
    ],
)
@in_virtual_time
async def test_a_refused_ballot_does_not_count(bad: bytes, reason: str) -> None:
    receiver = Receiver()
    kept: list[bool] = []
    came = await gather(
        receiver, 1, lambda: kept.append(deliver(receiver, A, Vote(1, bad))), welcome=(A,), patience=SOON
    )
    assert came == {}
    assert kept == [True]  # it was a message all the same: the link stays
    assert receiver.arrivals == {reason: 1}
    assert receiver.roster.missed == {A: 1}
    assert receiver.seen == {}


async def test_after_a_refused_ballot_a_good_one_counts() -> None:
    receiver = Receiver()
    deliver(receiver, A, Vote(1, bytes([99] * 4)))
    deliver(receiver, A, Vote(1, ballot(4)))
    assert values(await gather(receiver, 1, welcome=(A,))) == {A: [4] * 4}


async def test_rounds_that_the_run_does_not_have_are_not_accepted() -> None:
    """A node that took them for the rounds of others would jump to its end, untrained."""
    receiver = Receiver(rounds=40)
    for message in (Vote(41, ballot(1)), Here(2**32 - 1), Waiting(41, Stage.VOTE), Bye(41)):
        deliver(receiver, A, message)
    assert receiver.arrivals == {"too-far-ahead": 4} and not receiver.seen and not receiver.roster.left
    assert deliver(receiver, A, Vote(40, ballot(1)))


@in_virtual_time
async def test_soft_ballots_are_checked_too() -> None:
    receiver = Receiver(BallotFormat("soft", 1, 2))
    deliver(receiver, A, Vote(1, np.array([np.nan, 1], "<f4").tobytes()))
    deliver(receiver, B, Vote(1, np.array([0.5, 0.5], "<f4").tobytes()))
    came = await gather(receiver, 1, welcome=(A, B), patience=SOON)
    assert set(came) == {B}
    assert receiver.arrivals == {"ballot-probability": 1, "early": 1}


async def test_a_coded_ballot_is_read_with_the_labels_of_its_own_round() -> None:
    coded = BallotFormat("coded", 60, 10)
    labels = {round: np.random.default_rng(round).integers(0, 10, 60) for round in (1, 2)}
    receiver = Receiver(coded, labels=labels.get)
    votes = {round: np.where(np.arange(60) % 20, labels[round], 3) for round in (1, 2)}
    for round in (2, 1):
        deliver(receiver, A, Vote(round, coded.encode(votes[round], labels[round])))
    for round in (1, 2):
        assert values(await gather(receiver, round, welcome=(A,))) == {A: votes[round].tolist()}


@pytest.mark.parametrize(("form", "asked"), [("byte", []), ("coded", [2])])
async def test_labels_are_drawn_for_ballots_that_need_them_and_are_wanted(form: Any, asked: list[int]) -> None:
    """They cost a draw of the round's probes, which a peer must not cause with votes that nobody waits for."""
    drawn: list[int] = []
    ballots = BallotFormat(form, 4, 10)
    receiver = Receiver(ballots, labels=drawn.append)
    await gather(receiver, 1, welcome=())
    for round in (1, 2):
        deliver(receiver, A, Vote(round, ballots.encode(np.arange(4))))
    assert receiver.arrivals == {"late": 1, "early": 1}
    assert drawn == asked


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "garbage"),
        (b"\xc1", "garbage"),
        (b"\x93\x02" + b"\x91" * 1010 + b"\x01\xc4\x00", "garbage"),
        (b"\x93\x02\x00\xc4\x00", "field"),
        (b"\x92\x63\x01", "unknown-kind"),
        (b"\x93\x02\x01\xc6\x00\x10\x00\x00" + bytes(1 << 20), "oversized"),
    ],
)
async def test_garbage_ends_the_link(frame: bytes, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver()
    with caplog.at_level(logging.WARNING):
        assert receiver.inbox.deliver(A, frame, len(frame)) is False
    assert receiver.arrivals == {reason: 1}
    assert receiver.ledger.settle() == {} and receiver.ledger.total_received() == Count()
    record, standing = caplog.records
    assert (record.event, record.peer, record.reason) == ("refused", A, reason)  # type: ignore[attr-defined]
    assert standing.getMessage() == "not awaited, because of: no message, 1 times"


async def test_a_hello_on_a_link_is_garbage() -> None:
    receiver = Receiver()
    hello = frames.Hello(1, "a", 0, False, (0,), (), "d", ())
    assert deliver(receiver, A, hello) is False


async def test_the_same_twice_and_a_contradiction(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver()
    for value in (1, 1, 2):
        assert deliver(receiver, A, Vote(1, ballot(value)))
    assert values(await gather(receiver, 1, welcome=(A,))) == {A: [1] * 4}
    assert receiver.arrivals == {"early": 1, "duplicate": 1, "equivocation": 1}
    assert [record.event for record in caplog.records] == ["equivocation", "standing"]  # type: ignore[attr-defined]
    assert receiver.roster[A].score.counts == {Offence.CONTRADICTION: 1}


async def test_one_that_was_started_again_may_say_something_else() -> None:
    """It came back from its checkpoint, heard fewer votes than the first time, and votes otherwise."""
    receiver = Receiver()
    receiver.link_up(A, awaited=True)
    deliver(receiver, A, Vote(1, ballot(1)))
    receiver.link_down(A)
    receiver.link_up(A, awaited=True)
    deliver(receiver, A, Vote(1, ballot(2)))
    assert values(await gather(receiver, 1, welcome=(A,))) == {A: [1] * 4}
    assert receiver.arrivals == {"early": 1, "again": 1} and receiver.roster[A].score.value == BEST


async def test_what_breaks_the_protocol_ends_the_link_when_it_has_cost_enough(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver()
    kept = [deliver(receiver, A, Vote(round, b"x")) for round in range(1, 14)]
    assert kept == [True] * 12 + [False]
    standings = [record.reason for record in caplog.records if getattr(record, "event", "") == "standing"]
    assert standings == ["not awaited", "not merged with", "link closed"]
    assert caplog.records[-1].getMessage() == "link closed, because of: refused ballot, 13 times"


@in_virtual_time
async def test_a_flood_of_what_is_of_no_use_ends_the_link() -> None:
    receiver = Receiver()
    await gather(receiver, 1, patience=SOON, welcome=())
    for _ in range(10):  # as often as an honest peer may say it
        assert all(deliver(receiver, A, Here(0)) for _ in range(400))
        await asyncio.sleep(0.5)
    said = 0
    while deliver(receiver, A, Here(0)):
        said += 1
        assert said < 6000
    assert receiver.roster[A].score.reasons[0].startswith("flood")
    assert receiver.roster[B].score.value == BEST


async def test_a_stranger_is_counted_and_not_heard() -> None:
    receiver = Receiver()
    assert deliver(receiver, NodeName("mallory"), Vote(1, ballot(1)))
    assert receiver.arrivals == {"stranger": 1}
    assert await gather(receiver, 1, welcome=()) == {}


async def test_ready_stands_in_for_a_ballot() -> None:
    receiver = Receiver()
    deliver(receiver, A, Ready(1, 3, 4))
    deliver(receiver, B, Vote(1, ballot(2)))
    came = await gather(receiver, 1, welcome=(A, B))
    assert came[A] == Ready(1, 3, 4)
    assert came[B].tolist() == [2] * 4


async def test_announcements_and_runs_come_as_they_were_sent() -> None:
    receiver = Receiver()
    deliver(receiver, A, Announce(4, b"\xf0"))
    deliver(receiver, A, Shard(4, Stage.VECTOR, 0, b"abcd"))
    deliver(receiver, A, Shard(4, Stage.VECTOR, 1, b"efgh"))
    assert await gather(receiver, 4, stage=Stage.ANNOUNCE, welcome=(A,)) == {A: Announce(4, b"\xf0")}
    assert await gather(receiver, 4, stage=Stage.VECTOR, welcome=(A,)) == {A: b"abcd"}
    assert await gather(receiver, 4, stage=Stage.VECTOR, welcome=(A,), part=1) == {A: b"efgh"}


async def test_every_message_is_booked() -> None:
    receiver = Receiver()
    deliver(receiver, A, Vote(1, ballot(1)))
    deliver(receiver, A, Vote(1, ballot(1)))  # a copy took bytes too
    deliver(receiver, B, Shard(1, Stage.SCATTER, 0, bytes(40)))
    deliver(receiver, B, Here(0))
    receiver.ledger.settle()
    assert receiver.ledger.total_received(Stage.VOTE) == Count(2, 8, 2 * (4 + 5 + 2))
    assert receiver.ledger.total_received(Stage.SCATTER) == Count(1, 40, 40 + 7 + 6 + 2)
    assert receiver.ledger.total_received(Stage.HANDSHAKE) == Count(1, 0, 3 + 2)
    assert set(receiver.ledger.received) == {(A, Stage.VOTE), (B, Stage.SCATTER), (B, Stage.HANDSHAKE)}


async def test_how_far_a_peer_has_come() -> None:
    receiver = Receiver()
    for round in (3, 9, 4):
        deliver(receiver, A, Vote(round, ballot(1)))
    deliver(receiver, B, Announce(6, b""))
    assert receiver.seen == {A: 9, B: 6}


async def test_a_waiting_that_is_cancelled_leaves_the_mailbox_usable() -> None:
    receiver = Receiver()
    waiting = asyncio.create_task(receiver.waits.gather(Stage.VOTE, (1, 0), [A], None))
    asyncio.get_running_loop().call_soon(waiting.cancel)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not receiver.roster.silent and not receiver.roster.missed  # nobody's fault
    deliver(receiver, A, Vote(2, ballot(2)))
    assert values(await gather(receiver, 2, welcome=(A,))) == {A: [2] * 4}


@in_virtual_time
async def test_bytes_that_still_come_earn_more_time_but_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    looks = {A: 0, B: 0}

    def received(peer: NodeName) -> int | None:
        if peer == A:
            looks[A] += 1
        return looks.get(peer)

    # a's bytes grow from look to look, b's do not, nobody counts c's
    receiver = Receiver(bytes_received=received)
    with caplog.at_level(logging.WARNING):
        assert await gather(receiver, 1, patience=SOON) == {}
    gave_up = [record.getMessage() for record in caplog.records if record.event == "missed"]  # type: ignore[attr-defined]
    assert gave_up == ["waited 0.1 s in vain for b, c", "waited 1.2 s in vain for a"]


@in_virtual_time
async def test_whole_messages_beside_the_awaited_ballot_earn_no_time() -> None:
    looks = 0

    def received(_peer: NodeName) -> int | None:
        nonlocal looks
        looks += 1
        deliver(receiver, A, Announce(1, b""))  # another message of a has come since the last look
        return looks

    receiver = Receiver(bytes_received=received)
    assert await gather(receiver, 1, patience=SOON, welcome=(A,)) == {}
    assert looks <= 3, "half way, at the deadline; every half deadline until the tenth where each byte counts"


async def test_whoever_waits_at_the_same_place_has_sent_its_own_which_was_lost() -> None:
    receiver = Receiver()
    assert await gather(receiver, 2, lambda: deliver(receiver, A, Waiting(2, Stage.VOTE)), welcome=(A,)) == {}
    waiting = lambda: deliver(receiver, A, Waiting(3, Stage.VOTE))  # noqa: E731
    assert await gather(receiver, 2, waiting, stage=Stage.SCATTER, welcome=(A,)) == {}
    assert not receiver.roster.silent and not receiver.roster.missed  # it is there, and next time it is awaited


async def test_whoever_waits_further_back_is_still_awaited() -> None:
    receiver = Receiver()
    came = await gather(
        receiver,
        2,
        lambda: deliver(receiver, A, Waiting(1, Stage.GATHER)),
        lambda: deliver(receiver, A, Vote(2, ballot(1))),
        welcome=(A,),
    )
    assert set(came) == {A}


async def test_one_that_waits_is_answered_by_a_node_that_is_not_so_far() -> None:
    receiver = Receiver()
    receiver.position.move_to(2)
    deliver(receiver, A, Waiting(2, Stage.VOTE))
    assert receiver.neighbours[A].heard == []
    deliver(receiver, A, Waiting(3, Stage.VOTE))
    assert receiver.neighbours[A].heard == [Here(2)]


async def test_whoever_is_past_what_is_waited_for_is_not_awaited() -> None:
    receiver = Receiver()
    assert await gather(receiver, 4, lambda: deliver(receiver, A, Here(4)), welcome=(A,)) == {}
    came = await gather(
        receiver,
        5,
        lambda: deliver(receiver, A, Here(4)),
        lambda: deliver(receiver, A, Vote(5, ballot(1))),
        welcome=(A,),
    )
    assert set(came) == {A}
    assert not receiver.roster.missed


@pytest.mark.parametrize("sign", [Here(0), Waiting(1, Stage.ANNOUNCE)])
@in_virtual_time
async def test_a_peer_that_answers_is_given_more_time_but_not_for_ever(
    sign: Message, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever waits says so twice in a deadline; a answers each time, b never."""
    receiver = Receiver()
    receiver.neighbours[A].answer = lambda heard: isinstance(heard, Waiting) and deliver(receiver, A, sign)
    with caplog.at_level(logging.WARNING):
        assert await gather(receiver, 2, patience=SOON, welcome=(A, B)) == {}
    gave_up = [record.getMessage() for record in caplog.records if record.event == "missed"]  # type: ignore[attr-defined]
    assert gave_up == ["waited 0.1 s in vain for b", "waited 1.2 s in vain for a"]
    assert receiver.roster.missed == {A: 1, B: 1}
    heard = [message for message in receiver.neighbours[A].heard if isinstance(message, Waiting)]
    assert heard == [Waiting(2, Stage.VOTE)] * 20
