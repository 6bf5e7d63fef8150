"""What a member can cost by keeping others waiting: a fixed number of deadlines, and never without a line."""

import asyncio
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import make_daemons, run_all, small
from test_inbox import SOON, A, B, C, Receiver, ballot, deliver, gather
from virtual_time import in_virtual_time

from p2p_tally.ids import NodeName
from p2p_tally.node.service import daemon
from p2p_tally.protocol.deadlines import LEAST_TIMEOUT, LONGEST_WAIT, Deadlines
from p2p_tally.protocol.lateness import SLOWER
from p2p_tally.protocol.messages import Bye, Here, Message, Stage, Vote, Waiting
from p2p_tally.protocol.scores import BEST, REGAINED, Standing


def now() -> float:
    return asyncio.get_running_loop().time()


async def play(receiver: Receiver, rounds: range, *voters: NodeName, patience: float = SOON) -> float:
    """Rounds in which these vote at once. Returns how long they took."""
    started = now()
    for round in rounds:
        vote = [lambda peer=peer, round=round: deliver(receiver, peer, Vote(round, ballot(1))) for peer in voters]
        await gather(receiver, round, *vote, patience=patience, welcome=(A, B))
    return now() - started


def answers(receiver: Receiver, peer: NodeName, answer: Callable[[Waiting], Message]) -> None:
    """Whenever the node says that it waits, this peer sends something."""
    receiver.neighbours[peer].answer = lambda heard: (
        isinstance(heard, Waiting) and deliver(receiver, peer, answer(heard))
    )


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.event for record in caplog.records if hasattr(record, "event")]


LIARS: dict[str, Callable[[Waiting], Message]] = {
    "Here(0)": lambda _: Here(0),
    "waits itself": lambda heard: Waiting(heard.round, Stage.VOTE),
    "waits long ago": lambda _: Waiting(1, Stage.VOTE),
    "joins later": lambda heard: Here(heard.round),
}


@pytest.mark.parametrize("liar", LIARS)
@in_virtual_time
async def test_one_that_never_votes_costs_ten_deadlines_and_a_share(
    liar: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Here(0) cost ten deadlines in every wait; saying that it waits itself, half a deadline without a line."""
    receiver = Receiver()
    answers(receiver, A, LIARS[liar])
    with caplog.at_level(logging.INFO):
        first = await play(receiver, range(2, 30), B)
        then = await play(receiver, range(30, 60), B)
    assert first <= BEST / (1 - REGAINED / 3) * SOON and then == 0.0
    assert "missed" in events(caplog) and events(caplog).count("out-of-patience") == 1
    assert receiver.roster.silent == {A}


@pytest.mark.parametrize("liar", ["Here(0)", "late", "every other round"])
@in_virtual_time
async def test_in_the_long_run_a_peer_costs_its_share_of_the_time(liar: str) -> None:
    """One that voted in every other round, or in every other round late, cost half a deadline a round for ever."""
    receiver, loop = Receiver(), asyncio.get_running_loop()
    if liar == "Here(0)":
        answers(receiver, A, lambda _: Here(0))
    started, rounds = now(), range(2, 902)
    for round in rounds:
        await asyncio.sleep(SOON / 32)  # its own work
        votes = [lambda peer=peer, round=round: deliver(receiver, peer, Vote(round, ballot(1))) for peer in (B, C)]
        late = lambda round=round: deliver(receiver, A, Vote(round, ballot(1)))  # noqa: E731
        if liar == "late":
            loop.call_later(0.95 * SOON, late)
        elif liar == "every other round" and round % 2:
            votes.append(late)
        elif liar == "Here(0)" and round % 10 == 0:
            deliver(receiver, A, Here(round - 1))
        await gather(receiver, round, *votes, patience=SOON)
    work, most = len(rounds) * SOON / 32, BEST + 1
    spent = now() - started - work
    # Of a vote at 95 % of a deadline, this part is charged: to be several times slower than most costs nothing.
    charged = (0.95 - SLOWER / 32) / 0.95
    assert spent <= (most * SOON + REGAINED / 3 * (now() - started)) / charged
    assert receiver.roster[A].score.standing in (Standing.NOT_AWAITED, Standing.IMPATIENT)
    assert receiver.roster[B].score.value == receiver.roster[C].score.value == BEST


@in_virtual_time
async def test_no_new_link_and_no_word_buys_more() -> None:
    receiver = Receiver()
    answers(receiver, A, lambda _: Here(0))
    await play(receiver, range(2, 4), B)
    started = now()
    for round in range(4, 20):
        receiver.link_down(A)
        receiver.link_up(A, awaited=True)
        deliver(receiver, A, Here(round - 1))
        await play(receiver, range(round, round + 1), B)
    assert now() == started


@in_virtual_time
async def test_who_plays_again_is_awaited_again_when_time_has_passed() -> None:
    receiver = Receiver()
    answers(receiver, A, lambda _: Here(0))
    assert await play(receiver, range(2, 4), B) == BEST * SOON
    assert await play(receiver, range(4, 5), B, A) == 0.0
    assert receiver.roster.silent == {A}  # its vote counted; it is not awaited
    await asyncio.sleep(3 / REGAINED * SOON)  # three peers: a third of the share each
    assert await play(receiver, range(5, 6), B, A) == 0.0
    assert not receiver.roster.silent
    assert await play(receiver, range(6, 9), B) <= 2 * SOON  # and no more


@in_virtual_time
async def test_an_honest_peer_that_is_much_slower_than_most_is_awaited_in_part_and_never_dropped() -> None:
    """It needs nearly a deadline for each round, where the others need next to nothing: at first it is always awaited,
    then in some of the rounds."""
    receiver, loop = Receiver(), asyncio.get_running_loop()
    heard: list[int] = []
    for round in range(2, 402):
        await asyncio.sleep(SOON / 4)
        votes = [lambda peer=peer, round=round: deliver(receiver, peer, Vote(round, ballot(1))) for peer in (B, C)]
        loop.call_later(0.9 * SOON, lambda round=round: deliver(receiver, A, Vote(round, ballot(1))))
        heard += [round] * (A in await gather(receiver, round, *votes, patience=SOON))
    assert set(range(2, 12)) <= set(heard)
    assert len([round for round in heard if round > 200]) >= 5 and max(heard) > 380
    assert receiver.roster[A].score.merged


@in_virtual_time
async def test_where_slow_peers_are_awaited_they_always_are() -> None:
    receiver = Receiver(bounds_slow=False)
    for round in range(2, 42):
        votes = [lambda peer=peer, round=round: deliver(receiver, peer, Vote(round, ballot(1))) for peer in (B, C)]
        vote = lambda round=round: deliver(receiver, A, Vote(round, ballot(1)))  # noqa: E731
        asyncio.get_running_loop().call_later(0.95 * SOON, vote)
        assert set(await gather(receiver, round, *votes, patience=SOON)) == {A, B, C}
    assert receiver.roster[A].score.value == BEST


@in_virtual_time
async def test_an_honest_slow_peer_is_always_awaited(caplog: pytest.LogCaptureFixture) -> None:
    """It needs three deadlines for each round, and answers that it is there."""
    receiver = Receiver()
    answers(receiver, A, lambda heard: Here(heard.round - 1))
    started = now()
    with caplog.at_level(logging.INFO):
        for round in range(2, 42):
            vote = lambda round=round: deliver(receiver, A, Vote(round, ballot(1)))  # noqa: E731
            asyncio.get_running_loop().call_later(3 * SOON, vote)
            assert set(await gather(receiver, round, patience=SOON, welcome=(A,))) == {A}
    assert now() - started == 40 * 3 * SOON
    assert not receiver.roster.missed and set(events(caplog)) == {"slow"}
    assert caplog.records[0].getMessage() == "waited 0.4 s for its vote"


@in_virtual_time
async def test_one_that_votes_just_before_the_deadline_makes_it_no_longer_than_the_longest_wait() -> None:
    """An automatic deadline followed its own waits: 12,343 s by the two hundredth."""
    receiver, deadlines = Receiver(), Deadlines(automatic=True, longest=LONGEST_WAIT)
    for round in range(2, 202):
        timeout = deadlines.timeout()
        assert timeout is not None and timeout <= LONGEST_WAIT
        vote = lambda round=round: deliver(receiver, A, Vote(round, ballot(1)))  # noqa: E731
        asyncio.get_running_loop().call_later(0.95 * timeout, vote)
        started = now()
        came = await receiver.waits.gather(Stage.VOTE, (round, 0), [A], timeout)
        assert set(came) == {A}
        deadlines.observe(now() - started)


@in_virtual_time
async def test_an_automatic_deadline_follows_most_peers_and_not_the_slowest() -> None:
    receiver, deadlines = Receiver(), Deadlines(automatic=True, longest=LONGEST_WAIT)
    for round in range(2, 30):
        timeout = deadlines.timeout()
        vote = [lambda peer=peer, round=round: deliver(receiver, peer, Vote(round, ballot(1))) for peer in (B, C)]
        late = lambda round=round: deliver(receiver, A, Vote(round, ballot(1)))  # noqa: E731
        asyncio.get_running_loop().call_later(0.95 * (timeout or 0), late)
        await gather(receiver, round, *vote, patience=timeout, guard=100.0)
        assert receiver.waits.usual is not None
        deadlines.observe(receiver.waits.usual)
    assert deadlines.timeout() == LEAST_TIMEOUT


@in_virtual_time
async def test_no_wait_is_longer_than_the_longest(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver(longest=3 * SOON)
    answers(receiver, A, lambda _: Here(0))
    assert await play(receiver, range(2, 3), B) == 3 * SOON
    assert [record.getMessage() for record in caplog.records] == ["waited 0.4 s in vain for a"]


@pytest.mark.parametrize(
    ("options", "first", "longest"),
    [
        ({"barrier_timeout": "auto"}, 60.0, 600.0),
        ({"barrier_timeout": 20}, 20.0, math.inf),
        ({"barrier_timeout": "auto", "longest_wait": 30}, 30.0, 30.0),
        ({"barrier_timeout": 20, "longest_wait": 5}, 5.0, 5.0),
    ],
)
async def test_what_the_options_mean(
    options: dict[str, Any], first: float, longest: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Deadlines] = []
    monkeypatch.setattr(daemon, "Deadlines", lambda *given, **named: made.append(Deadlines(*given, **named)) or made[0])
    [alone] = make_daemons(small(nodes=1, rounds=1), tmp_path, checkpoint_every=0, **options)
    await run_all([alone])
    assert [(deadlines.timeout(), deadlines.longest) for deadlines in made] == [(first, longest)]


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (lambda receiver: deliver(receiver, A, Bye(1)), "it left"),
        (lambda receiver: receiver.link_down(A), "its link has ended"),
        (lambda receiver: deliver(receiver, A, Vote(3, ballot(1))), "it is in a later round"),
        (lambda receiver: deliver(receiver, A, Here(2)), "it joins after this round"),
        (
            lambda receiver: deliver(receiver, A, Waiting(2, Stage.VOTE)),
            "it waits itself, and what it sent has not come",
        ),
    ],
)
@in_virtual_time
async def test_every_long_wait_says_why_it_ended(
    end: Callable[[Receiver], object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = Receiver()
    asyncio.get_running_loop().call_later(0.75 * SOON, end, receiver)
    await gather(receiver, 2, patience=SOON, welcome=(A,))
    [record] = [record for record in caplog.records if getattr(record, "event", "") == "missed"]
    assert record.getMessage() == f"waited 0.1 s in vain: {why}"
    assert receiver.roster[A].score.value == BEST - 0.75


@in_virtual_time
async def test_a_short_wait_is_no_line(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver()
    asyncio.get_running_loop().call_later(0.25 * SOON, receiver.link_down, A)
    with caplog.at_level(logging.INFO):
        await gather(receiver, 2, patience=SOON, welcome=(A,))
    assert events(caplog) == []
