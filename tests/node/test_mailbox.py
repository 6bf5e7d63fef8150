"""The mailbox: who is waited for, what counts, and what a peer's mistake does. Real event loop, no sleeping."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from p2p_tally.ids import NodeName
from p2p_tally.node.step.mailbox import Mailbox
from p2p_tally.protocol import frames
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.ledger import Count, Ledger
from p2p_tally.protocol.messages import Announce, Bye, Here, Message, Ready, Shard, Stage, Vote, Waiting, Withdraw

ME, A, B, C = (NodeName(name) for name in ("me", "a", "b", "c"))
BALLOTS = BallotFormat("byte", 4, 10)

SOON = 0.02  # a deadline that a test lets pass
GUARD = 5.0  # what should end at once is cut off here, and fails


def make_mailbox(ballots: BallotFormat = BALLOTS) -> Mailbox:
    return Mailbox(ME, [A, B, C], Limits.of(ballots.largest, 4, merging=True), ballots, Ledger())


def ballot(value: int) -> bytes:
    return bytes([value] * 4)


def deliver(mailbox: Mailbox, peer: NodeName, message: Message) -> bool:
    frame = frames.encode(message)
    return mailbox.deliver(peer, frame, len(frame) + 2)


async def gather(
    mailbox: Mailbox,
    round: int,
    *then: Callable[[], object],
    patience: float | None = None,
    stage: Stage = Stage.VOTE,
    welcome: tuple[NodeName, ...] = (A, B, C),
    part: int = 0,
) -> dict[NodeName, Any]:
    """Wait at a stage; what `then` does is done once the waiting has begun."""
    waiting = asyncio.create_task(mailbox.gather(stage, (round, part), welcome, patience))
    for action in then:
        asyncio.get_running_loop().call_soon(action)  # queued after the task's first step
    async with asyncio.timeout(GUARD):
        return await waiting


def values(came: dict[NodeName, Any]) -> dict[NodeName, list[int]]:
    return {peer: votes.tolist() for peer, votes in came.items()}


async def test_all_awaited_are_in() -> None:
    mailbox = make_mailbox()
    came = await gather(
        mailbox,
        1,
        lambda: deliver(mailbox, C, Vote(1, ballot(3))),
        lambda: deliver(mailbox, A, Vote(1, ballot(1))),
        lambda: deliver(mailbox, B, Vote(1, ballot(2))),
    )
    assert list(values(came).items()) == [(A, [1] * 4), (B, [2] * 4), (C, [3] * 4)]
    assert mailbox.arrivals == {"recorded": 3}
    assert not mailbox.silent and not mailbox.missed


async def test_it_waits_for_the_last() -> None:
    mailbox = make_mailbox()
    deliver(mailbox, A, Vote(1, ballot(1)))
    waiting = asyncio.create_task(mailbox.gather(Stage.VOTE, (1, 0), [A, B], None))
    loop = asyncio.get_running_loop()
    unfinished: list[bool] = []
    loop.call_soon(lambda: unfinished.append(waiting.done()))
    loop.call_soon(deliver, mailbox, A, Vote(1, ballot(1)))  # the same again: no second voter
    loop.call_soon(lambda: loop.call_soon(lambda: unfinished.append(waiting.done())))
    loop.call_soon(lambda: loop.call_soon(deliver, mailbox, B, Vote(1, ballot(2))))
    async with asyncio.timeout(GUARD):
        assert set(await waiting) == {A, B}
    assert unfinished == [False, False]


async def test_what_came_early_is_there_at_once() -> None:
    mailbox = make_mailbox()
    for peer in (A, B, C):
        deliver(mailbox, peer, Vote(1, ballot(7)))
        deliver(mailbox, peer, Vote(2, ballot(8)))
    assert values(await gather(mailbox, 1)) == {peer: [7] * 4 for peer in (A, B, C)}
    assert values(await gather(mailbox, 2)) == {peer: [8] * 4 for peer in (A, B, C)}
    assert mailbox.arrivals == {"early": 6}


async def test_nobody_to_wait_for() -> None:
    assert await gather(make_mailbox(), 1, welcome=()) == {}


async def test_a_deadline_that_passes_is_counted_and_marks_the_silent(caplog: pytest.LogCaptureFixture) -> None:
    mailbox = make_mailbox()
    deliver(mailbox, B, Vote(1, ballot(2)))
    with caplog.at_level(logging.WARNING):
        came = await gather(mailbox, 1, patience=SOON)
    assert list(came) == [B]
    assert mailbox.silent == {A, C}
    assert mailbox.missed == {A: 1, C: 1}
    assert [record.getMessage() for record in caplog.records] == ["waited 0.0 s in vain for a, c"]
    assert caplog.records[0].event == "missed"  # type: ignore[attr-defined]


async def test_a_silent_peer_costs_one_deadline_only() -> None:
    mailbox = make_mailbox()
    await gather(mailbox, 1, patience=SOON, welcome=(A,))
    for round in range(2, 12):
        assert await gather(mailbox, round, patience=None, welcome=(A,)) == {}  # for ever, if it were awaited
    assert mailbox.missed == {A: 1}


async def test_a_silent_peers_vote_in_time_counts_and_brings_it_back() -> None:
    mailbox = make_mailbox()
    await gather(mailbox, 1, patience=SOON, welcome=(A,))
    assert mailbox.silent == {A}
    # Round 2 waits for b; what a says meanwhile counts.
    came = await gather(
        mailbox,
        2,
        lambda: deliver(mailbox, A, Vote(2, ballot(5))),
        lambda: deliver(mailbox, B, Vote(2, ballot(6))),
        welcome=(A, B),
    )
    assert set(came) == {A, B}
    assert mailbox.silent == set()
    # From now on it is waited for again.
    assert await gather(mailbox, 3, patience=SOON, welcome=(A,)) == {}
    assert mailbox.missed == {A: 2}


async def test_a_late_vote_is_dropped_and_does_not_bring_it_back() -> None:
    mailbox = make_mailbox()
    await gather(mailbox, 1, patience=SOON, welcome=(A,))
    deliver(mailbox, A, Vote(1, ballot(5)))
    assert mailbox.arrivals == {"late": 1}
    assert mailbox.silent == {A}
    assert mailbox.seen == {A: 1}


async def test_a_lost_peer_ends_the_waiting() -> None:
    mailbox = make_mailbox()
    came = await gather(
        mailbox,
        1,
        lambda: deliver(mailbox, A, Vote(1, ballot(1))),
        lambda: mailbox.lost(A),  # what it sent before still counts
        lambda: mailbox.lost(B),
        lambda: mailbox.lost(C),
    )
    assert values(came) == {A: [1] * 4}
    assert mailbox.silent == {A, B, C}
    assert not mailbox.missed


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_found_peer_is_awaited_at_once_or_later(awaited: bool) -> None:
    mailbox = make_mailbox()
    mailbox.lost(A)
    deliver(mailbox, A, Bye(0))
    mailbox.found(A, awaited=awaited)
    assert mailbox.left == set()
    assert await gather(mailbox, 1, patience=SOON, welcome=(A,)) == {}
    assert mailbox.missed[A] == int(awaited)


async def test_a_peer_found_again_is_not_awaited_before_it_plays() -> None:
    mailbox = make_mailbox()
    mailbox.found(A, awaited=True)
    mailbox.found(A, awaited=False)
    assert mailbox.silent == {A}


async def test_here_says_from_which_round_on() -> None:
    mailbox = make_mailbox()
    mailbox.lost(A)
    deliver(mailbox, A, Here(3))
    assert mailbox.joined == {A: 3}
    assert mailbox.silent == set()
    for round in (1, 2, 3):
        assert await gather(mailbox, round, welcome=(A,)) == {}
    assert not mailbox.missed
    assert await gather(mailbox, 4, patience=SOON, welcome=(A,)) == {}
    assert mailbox.missed == {A: 1}


async def test_a_vote_for_a_round_before_it_joined_still_counts() -> None:
    mailbox = make_mailbox()
    deliver(mailbox, A, Here(3))
    deliver(mailbox, A, Vote(2, ballot(1)))
    assert set(await gather(mailbox, 2, welcome=(A,))) == {A}


async def test_bye_ends_the_waiting() -> None:
    mailbox = make_mailbox()
    assert await gather(mailbox, 1, lambda: deliver(mailbox, A, Bye(0)), welcome=(A,)) == {}
    assert mailbox.left == {A}
    assert mailbox.silent == {A}
    assert not mailbox.missed
    assert await gather(mailbox, 2, welcome=(A,)) == {}


async def test_withdraw_ends_the_waiting_in_the_merge() -> None:
    mailbox = make_mailbox()
    came = await gather(
        mailbox,
        4,
        lambda: deliver(mailbox, B, Shard(4, Stage.SCATTER, 0, bytes(4))),
        lambda: deliver(mailbox, A, Withdraw(4)),
        stage=Stage.SCATTER,
        welcome=(A, B),
    )
    assert came == {B: bytes(4)}
    # Nor is it awaited at a later stage of the same merge.
    assert await gather(mailbox, 4, stage=Stage.GATHER, welcome=(A,)) == {}
    assert await gather(mailbox, 4, stage=Stage.SCATTER, welcome=(A,), part=1) == {}
    assert not mailbox.silent and not mailbox.missed


async def test_whoever_speaks_of_a_later_round_announces_no_merge_of_this_one() -> None:
    """Peers that saw other votes may decide otherwise: a link keeps its messages in order, so nothing will come."""
    mailbox = make_mailbox()
    came = await gather(
        mailbox,
        4,
        lambda: deliver(mailbox, B, Announce(4, b"\xf0")),
        lambda: deliver(mailbox, A, Vote(5, ballot(1))),
        stage=Stage.ANNOUNCE,
        welcome=(A, B),
    )
    assert set(came) == {B}
    assert not mailbox.silent and not mailbox.missed
    assert set(await gather(mailbox, 5, lambda: deliver(mailbox, B, Vote(5, ballot(2))), welcome=(A, B))) == {A, B}
    # Nor is one awaited that spoke of it before the wait began.
    deliver(mailbox, A, Vote(7, ballot(1)))
    assert await gather(mailbox, 6, stage=Stage.ANNOUNCE, welcome=(A,)) == {}


async def test_votes_of_a_later_round_do_not_end_the_wait_for_votes_of_this_one() -> None:
    mailbox = make_mailbox()
    came = await gather(
        mailbox,
        4,
        lambda: deliver(mailbox, A, Vote(5, ballot(1))),
        lambda: deliver(mailbox, A, Vote(4, ballot(3))),
        welcome=(A,),
    )
    assert values(came) == {A: [3] * 4}


async def test_withdraw_before_the_merge_begins_here() -> None:
    mailbox = make_mailbox()
    deliver(mailbox, A, Withdraw(4))
    assert await gather(mailbox, 4, stage=Stage.VECTOR, welcome=(A,)) == {}


async def test_withdraw_is_for_one_merge_only_and_for_no_vote() -> None:
    mailbox = make_mailbox()
    deliver(mailbox, A, Withdraw(4))
    assert await gather(mailbox, 4, welcome=(A,), patience=SOON) == {}
    assert mailbox.missed == {A: 1}
    mailbox.found(A, awaited=True)
    assert await gather(mailbox, 8, stage=Stage.SCATTER, welcome=(A,), patience=SOON) == {}
    assert mailbox.missed == {A: 2}
    # While votes are awaited it does not stand in for one.
    mailbox.found(A, awaited=True)
    withdraw = lambda: deliver(mailbox, A, Withdraw(9))  # noqa: E731
    assert await gather(mailbox, 9, withdraw, welcome=(A,), patience=SOON) == {}
    assert mailbox.missed == {A: 3}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (bytes([1, 2, 3]), "ballot-length"),
        (bytes(5), "ballot-length"),
        (b"", "ballot-length"),
        (bytes([0, 0, 0, 10]), "ballot-class"),
    ],
)
async def test_a_refused_ballot_does_not_count(bad: bytes, reason: str) -> None:
    mailbox = make_mailbox()
    kept: list[bool] = []
    came = await gather(mailbox, 1, lambda: kept.append(deliver(mailbox, A, Vote(1, bad))), welcome=(A,), patience=SOON)
    assert came == {}
    assert kept == [True]  # it was a message all the same: the link stays
    assert mailbox.arrivals == {reason: 1}
    assert mailbox.missed == {A: 1}
    assert mailbox.seen == {}


async def test_after_a_refused_ballot_a_good_one_counts() -> None:
    mailbox = make_mailbox()
    deliver(mailbox, A, Vote(1, bytes([99] * 4)))
    deliver(mailbox, A, Vote(1, ballot(4)))
    assert values(await gather(mailbox, 1, welcome=(A,))) == {A: [4] * 4}


async def test_rounds_that_the_run_does_not_have_are_not_heeded() -> None:
    """A node that took them for the rounds of others would jump to its end, untrained."""
    mailbox = make_mailbox()
    mailbox.rounds = 40
    for message in (Vote(41, ballot(1)), Here(2**32 - 1), Waiting(41, Stage.VOTE), Bye(41)):
        deliver(mailbox, A, message)
    assert mailbox.arrivals == {"too-far-ahead": 4} and not mailbox.seen and not mailbox.left
    assert deliver(mailbox, A, Vote(40, ballot(1)))


async def test_soft_ballots_are_checked_too() -> None:
    mailbox = make_mailbox(BallotFormat("soft", 1, 2))
    deliver(mailbox, A, Vote(1, np.array([np.nan, 1], "<f4").tobytes()))
    deliver(mailbox, B, Vote(1, np.array([0.5, 0.5], "<f4").tobytes()))
    came = await gather(mailbox, 1, welcome=(A, B), patience=SOON)
    assert set(came) == {B}
    assert mailbox.arrivals == {"ballot-probability": 1, "early": 1}


async def test_a_coded_ballot_is_read_with_the_labels_of_its_own_round() -> None:
    coded = BallotFormat("coded", 60, 10)
    mailbox = make_mailbox(coded)
    labels = {round: np.random.default_rng(round).integers(0, 10, 60) for round in (1, 2)}
    mailbox.labels = labels.get
    votes = {round: np.where(np.arange(60) % 20, labels[round], 3) for round in (1, 2)}
    for round in (2, 1):
        deliver(mailbox, A, Vote(round, coded.encode(votes[round], labels[round])))
    for round in (1, 2):
        assert values(await gather(mailbox, round, welcome=(A,))) == {A: votes[round].tolist()}


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
    mailbox = make_mailbox()
    with caplog.at_level(logging.WARNING):
        assert mailbox.deliver(A, frame, len(frame)) is False
    assert mailbox.arrivals == {reason: 1}
    assert mailbox.ledger.settle() == {} and mailbox.ledger.total_received() == Count()
    (record,) = caplog.records
    assert (record.event, record.peer, record.reason) == ("refused", A, reason)  # type: ignore[attr-defined]


async def test_a_hello_on_a_link_is_garbage() -> None:
    mailbox = make_mailbox()
    hello = frames.Hello(1, "a", 0, False, (0,), (), "d", ())
    assert deliver(mailbox, A, hello) is False


async def test_the_same_twice_and_a_contradiction(caplog: pytest.LogCaptureFixture) -> None:
    mailbox = make_mailbox()
    for value in (1, 1, 2):
        assert deliver(mailbox, A, Vote(1, ballot(value)))
    assert values(await gather(mailbox, 1, welcome=(A,))) == {A: [1] * 4}
    assert mailbox.arrivals == {"early": 1, "duplicate": 1, "equivocation": 1}
    assert [record.event for record in caplog.records] == ["equivocation"]  # type: ignore[attr-defined]


async def test_a_stranger_is_counted_and_not_heard() -> None:
    mailbox = make_mailbox()
    assert deliver(mailbox, NodeName("mallory"), Vote(1, ballot(1)))
    assert mailbox.arrivals == {"stranger": 1}
    assert await gather(mailbox, 1, welcome=()) == {}


async def test_ready_stands_in_for_a_ballot() -> None:
    mailbox = make_mailbox()
    deliver(mailbox, A, Ready(1, 3, 4))
    deliver(mailbox, B, Vote(1, ballot(2)))
    came = await gather(mailbox, 1, welcome=(A, B))
    assert came[A] == Ready(1, 3, 4)
    assert came[B].tolist() == [2] * 4


async def test_announcements_and_runs_come_as_they_were_sent() -> None:
    mailbox = make_mailbox()
    deliver(mailbox, A, Announce(4, b"\xf0"))
    deliver(mailbox, A, Shard(4, Stage.VECTOR, 0, b"abcd"))
    deliver(mailbox, A, Shard(4, Stage.VECTOR, 1, b"efgh"))
    assert await gather(mailbox, 4, stage=Stage.ANNOUNCE, welcome=(A,)) == {A: Announce(4, b"\xf0")}
    assert await gather(mailbox, 4, stage=Stage.VECTOR, welcome=(A,)) == {A: b"abcd"}
    assert await gather(mailbox, 4, stage=Stage.VECTOR, welcome=(A,), part=1) == {A: b"efgh"}


async def test_every_message_is_booked() -> None:
    mailbox = make_mailbox()
    deliver(mailbox, A, Vote(1, ballot(1)))
    deliver(mailbox, A, Vote(1, ballot(1)))  # a copy took bytes too
    deliver(mailbox, B, Shard(1, Stage.SCATTER, 0, bytes(40)))
    deliver(mailbox, B, Here(0))
    mailbox.ledger.settle()
    assert mailbox.ledger.total_received(Stage.VOTE) == Count(2, 8, 2 * (4 + 5 + 2))
    assert mailbox.ledger.total_received(Stage.SCATTER) == Count(1, 40, 40 + 7 + 2)
    assert mailbox.ledger.total_received(Stage.HANDSHAKE) == Count(1, 0, 3 + 2)
    assert set(mailbox.ledger.received) == {(A, Stage.VOTE), (B, Stage.SCATTER), (B, Stage.HANDSHAKE)}


async def test_how_far_a_peer_has_come() -> None:
    mailbox = make_mailbox()
    for round in (3, 9, 4):
        deliver(mailbox, A, Vote(round, ballot(1)))
    deliver(mailbox, B, Announce(6, b""))
    assert mailbox.seen == {A: 9, B: 6}


async def test_a_waiting_that_is_cancelled_leaves_the_mailbox_usable() -> None:
    mailbox = make_mailbox()
    waiting = asyncio.create_task(mailbox.gather(Stage.VOTE, (1, 0), [A], None))
    asyncio.get_running_loop().call_soon(waiting.cancel)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not mailbox.silent and not mailbox.missed  # nobody's fault
    deliver(mailbox, A, Vote(2, ballot(2)))
    assert values(await gather(mailbox, 2, welcome=(A,))) == {A: [2] * 4}


async def test_bytes_that_trickle_in_earn_more_time_but_not_for_ever() -> None:
    mailbox = make_mailbox()
    looks = {A: 0, B: 0}

    def received(peer: NodeName) -> int | None:
        if peer == A:
            looks[A] += 1
        return looks.get(peer)

    mailbox.received = received  # a's bytes grow from look to look, b's do not, nobody counts c's
    gave_up: list[NodeName] = []
    give_up = mailbox._give_up

    def note(late: list[NodeName], round: int, stage: Stage) -> None:
        gave_up.extend(late)
        give_up(late, round, stage)

    mailbox._give_up = note  # type: ignore[method-assign]
    assert await gather(mailbox, 1, patience=SOON) == {}
    assert gave_up in ([B, C, A], [C, B, A])
    assert looks[A] >= 4


async def test_whole_messages_beside_the_awaited_ballot_earn_no_time() -> None:
    mailbox = make_mailbox()
    looks = 0

    def received(_peer: NodeName) -> int | None:
        nonlocal looks
        looks += 1
        deliver(mailbox, A, Announce(1, b""))  # another word of a has come since the last look
        return looks

    mailbox.received = received
    assert await gather(mailbox, 1, patience=SOON, welcome=(A,)) == {}
    assert looks <= 3, "half way, at the deadline; every half deadline until the tenth where each byte counts"
