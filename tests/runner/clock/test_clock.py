"""The virtual clock against cases that were worked by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.protocol.messages import Stage
from p2p_tally.runner.clock.clock import HEADERS, SEGMENT, Played, VirtualClock, _queue
from p2p_tally.runner.clock.messages import Messages
from p2p_tally.thin_links import Link

MS = 10**6
SECOND = 10**9

# With the headers of its one segment: 1,000 bytes, 8 ms at 1 Mbit.
KB = 1000 - HEADERS


def sent(*rows: tuple[int, ...]) -> Messages:
    """Rows of sender, receiver, stage, part, size; and origin and hops of what is passed on."""
    full = [row if len(row) == 7 else (*row, row[0], 1) for row in rows]
    return Messages.of(np.array(full, np.int64).reshape(-1, 7).T)


def clock(nodes: int, compute: int = 100 * MS, **changes: object) -> VirtualClock:
    """Links of 1 Mbit up and down, 50 ms one way."""
    link = Link(**{"up": 10**6, "down": 10**6, "latency": 50 * MS, **changes})  # type: ignore[arg-type]
    return VirtualClock([link] * nodes, [compute] * nodes)


def play(one: VirtualClock, nodes: int, *rows: tuple[int, ...], round: int = 1) -> list[float]:
    """Milliseconds on the clock of each node after a round with these messages."""
    everyone = np.arange(nodes)
    nothing = np.zeros(nodes, np.int64)
    one.play(round, lambda: sent(*rows), Played(everyone, nothing, nothing))
    return [now / MS for now in one.state()["_now"]]


def test_two_peers_that_vote() -> None:
    # 100 ms of work, 8 ms on the link, 50 ms on the way.
    one = clock(2)
    vote = [(0, 1, Stage.VOTE, 0, KB), (1, 0, Stage.VOTE, 0, KB)]
    assert play(one, 2, *vote) == [158, 158]
    assert play(one, 2, *vote, round=2) == [316, 316]
    assert one.reading.hours == pytest.approx(0.316 / 3600)
    assert one.reading.idle == pytest.approx(1 - 200 / 316)


def test_a_round_without_messages_is_its_work() -> None:
    assert play(clock(3), 3) == [100, 100, 100]


def test_three_peers_queue_at_both_links() -> None:
    # Uplinks: 0 sends to 1 by 108 ms, to 2 by 116; 1 to 0 by 108, to 2 by 116; 2 to 0 by 108, to 1 by 116.
    # Downlinks: to 0 come two at 158, so the second is there at 166; to 1 at 158 and 166; to 2 two at 166, so 174.
    votes = [(a, b, Stage.VOTE, 0, KB) for a in range(3) for b in range(3) if a != b]
    assert play(clock(3), 3, *votes) == [166, 166, 174]


def test_alone_a_message_takes_the_slower_of_its_two_links_once() -> None:
    fast, slow = Link(10**6, 10**6, 50 * MS), Link(250_000, 250_000, 50 * MS)
    message = (0, 1, Stage.VOTE, 0, KB)
    assert play(VirtualClock([fast, slow], [0, 0]), 2, message) == [0, 50 + 32]
    assert play(VirtualClock([slow, fast], [0, 0]), 2, message) == [0, 50 + 32]


def test_a_slow_sender_does_not_hold_up_what_a_fast_one_sends() -> None:
    # To one downlink, 8 ms of it each: one message comes from 0 to 8 s, the other from 5 s on, with all of the link.
    first, last = np.array([0, 5000]) * MS, np.array([8000, 5008]) * MS
    done = _queue(np.array([0, 0]), first, last, np.array([8, 8]) * MS, np.zeros(1, np.int64))
    assert done.tolist() == last.tolist()


def test_unequal_links_meet_in_the_middle_and_a_node_without_a_limit_is_at_once() -> None:
    links = [Link(0, 0, 0), Link(10**6, 10**6, 100 * MS)]
    one = VirtualClock(links, [0, 0])
    assert play(one, 2, (0, 1, Stage.VOTE, 0, KB), (1, 0, Stage.VOTE, 0, KB)) == [58, 58]


def test_headers_of_every_segment_are_charged() -> None:
    one = clock(2, compute=0, latency=0)
    size = 3 * SEGMENT + 1
    assert play(one, 2, (0, 1, Stage.VOTE, 0, size))[1] == pytest.approx((size + 4 * HEADERS) * 8 / 1000)


def test_what_is_lost_is_sent_again_and_costs_a_round_trip() -> None:
    # One segment of 8 ms; with a quarter lost it takes 8 / 0.75 ms, and a quarter of a round trip of 100 ms.
    one = clock(2, compute=0, loss=0.25)
    assert play(one, 2, (0, 1, Stage.VOTE, 0, KB))[1] == pytest.approx(8 / 0.75 + 50 + 25, abs=1e-3)


def test_the_barrier_waits_for_the_slowest() -> None:
    link = Link(10**6, 10**6, 50 * MS)
    one = VirtualClock([link] * 3, [100 * MS, 100 * MS, 900 * MS])
    ring = [(0, 1), (1, 0), (1, 2), (2, 1)]  # a path: 0 does not hear 2
    assert play(one, 3, *((a, b, Stage.VOTE, 0, KB) for a, b in ring)) == [158, 958, 900]
    assert play(one, 3, *((a, b, Stage.VOTE, 0, KB) for a, b in ring), round=2) == [1116, 1858, 1800]
    assert one.reading.hours == pytest.approx(1.858 / 3600)


def test_a_vote_is_passed_on_when_it_has_come() -> None:
    # A path of three, two hops: 1 passes on what it hears. All send their own at 100 ms.
    votes = [(0, 1), (1, 0), (1, 2), (2, 1)]
    passed_on = [(1, 2, Stage.VOTE, 0, KB, 0, 2), (1, 0, Stage.VOTE, 0, KB, 2, 2)]
    # To 1 come both votes: at 158 and 166. It sends them on at once: by 166 and 174, so they are there at 216 and 224.
    assert play(clock(3), 3, *((a, b, Stage.VOTE, 0, KB) for a, b in votes), *passed_on) == [224, 166, 216]


def test_a_vote_is_passed_on_by_a_node_that_still_works() -> None:
    one = VirtualClock([Link(10**6, 10**6, 50 * MS)] * 3, [0, SECOND, 0])
    votes = [(0, 1), (1, 0), (1, 2), (2, 1)]
    play(one, 3, *((a, b, Stage.VOTE, 0, KB) for a, b in votes), (1, 2, Stage.VOTE, 0, KB, 0, 2))
    # What 1 passes on is at 2 by 116 ms. 2 waits for the own vote of 1, which comes after 0's copy of it has left.
    assert [now / MS for now in one.state()["_now"]] == [1058, 1000, 1066]


def test_a_merge_of_two_is_a_pipeline_of_runs() -> None:
    """An announcement, then two runs each way to be summed, and two back."""
    rows: list[tuple[int, ...]] = [(0, 1, Stage.ANNOUNCE, 0, KB), (1, 0, Stage.ANNOUNCE, 0, KB)]
    for part in (0, 1):
        for stage in (Stage.SCATTER, Stage.GATHER):
            rows += [(0, 1, stage, part, KB), (1, 0, stage, part, KB)]
    # Announced at 58. Run 0 is sent at 58 and there at 116, and run 1 sent at 66, which does not wait for run 0: it is
    # there at 124. The mean of run 0 is sent at 116 and there at 174, that of run 1 at 182.
    assert play(clock(2, compute=0), 2, *rows) == [182, 182]


def test_a_merge_with_the_neighbours_sends_one_run_ahead() -> None:
    rows = [(a, 1 - a, Stage.ANNOUNCE, 0, KB) for a in (0, 1)]
    rows += [(a, 1 - a, Stage.VECTOR, part, KB) for a in (0, 1) for part in range(3)]
    # Runs 0 and 1 leave at 58 and 66; run 2 waits for run 0, at 116, and is there at 174.
    assert play(clock(2, compute=0), 2, *rows) == [174, 174]


def test_a_merge_around_a_ring_goes_from_node_to_node() -> None:
    after = {0: 1, 1: 2, 2: 0}
    rows = [(a, b, Stage.ANNOUNCE, 0, KB) for a, b in after.items()]
    rows += [(a, b, stage, s, KB) for a, b in after.items() for stage in (Stage.SCATTER, Stage.GATHER) for s in (0, 1)]
    one = VirtualClock([Link(10**6, 10**6, 50 * MS)] * 3, [0] * 3, rings=lambda _: True)
    # Five messages, each of which waits for the one before: 5 x 58.
    assert play(one, 3, *rows) == [290, 290, 290]


def test_a_newcomer_begins_when_it_has_the_state_of_its_donor() -> None:
    one = clock(2)
    alone = Played(np.array([0]), np.zeros(1, np.int64), np.zeros(1, np.int64))
    one.play(1, sent, alone)
    assert play(one, 2, (0, 1, Stage.HANDOVER, 0, KB), round=2) == [200, 100 + 58 + 100]


def test_measured_compute_is_split_around_the_votes() -> None:
    one = VirtualClock([Link(10**6, 10**6, 50 * MS)] * 2, [None, None])
    seconds = {0: {"train": 0.1, "vote": 0.02, "distill": 0.05, "evaluate": 9.0}, 1: {"train": 0.2}}
    votes = sent((0, 1, Stage.VOTE, 0, KB), (1, 0, Stage.VOTE, 0, KB))
    one.play(1, lambda: votes, Played.each(seconds))
    assert one.state()["_now"] == [(200 + 58 + 50) * MS, 200 * MS]


def overlapping(latency: int, last: int = 99) -> VirtualClock:
    links = [Link(10**6, 10**6, latency * MS)] * 2
    return VirtualClock(links, [100 * MS] * 2, overlaps=lambda round: round < last)


def test_overlapping_nodes_wait_for_the_votes_of_the_round_before() -> None:
    one = overlapping(50)
    votes = [(0, 1, Stage.VOTE, 0, KB), (1, 0, Stage.VOTE, 0, KB)]
    assert play(one, 2, *votes) == [100, 100]
    assert play(one, 2, *votes, round=2) == [200, 200]  # those of round 1 were there at 158
    slow = overlapping(500)
    play(slow, 2, *votes)
    assert play(slow, 2, *votes, round=2) == [608, 608]


def test_overlapping_nodes_train_while_a_merge_goes_on_and_vote_after_it() -> None:
    merge = [(a, 1 - a, stage, 0, KB) for a in (0, 1) for stage in (Stage.ANNOUNCE, Stage.SCATTER, Stage.GATHER)]
    votes = [(0, 1, Stage.VOTE, 0, KB), (1, 0, Stage.VOTE, 0, KB)]
    one = overlapping(50)
    assert play(one, 2, *merge) == [100, 100]  # three messages, each after the one before: it is over at 100 + 3 x 58
    assert play(one, 2, *votes, round=2) == [274, 274]
    assert play(one, 2, *votes, round=3) == [374, 374]  # votes were sent at 274 and there at 332
    fast = overlapping(10)
    play(fast, 2, *merge)
    assert play(fast, 2, *votes, round=2) == [200, 200]  # it was over at 154


def test_the_last_merge_is_awaited_and_so_are_the_counts_of_a_warm_up() -> None:
    merge = [(a, 1 - a, stage, 0, KB) for a in (0, 1) for stage in (Stage.ANNOUNCE, Stage.SCATTER, Stage.GATHER)]
    assert play(overlapping(50, last=1), 2, *merge) == [274, 274]
    assert play(overlapping(50), 2, (0, 1, Stage.READY, 0, KB), (1, 0, Stage.READY, 0, KB)) == [158, 158]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_restored_clock_goes_on_as_the_other_one(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(2, 5))
    rates = st.integers(10_000, 10**7)
    links = [Link(data.draw(rates), data.draw(rates), data.draw(st.integers(0, SECOND))) for _ in range(nodes)]
    compute: list[int | None] = [data.draw(st.integers(0, SECOND)) for _ in range(nodes)]
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
    rounds = [
        [(a, b, Stage.VOTE, 0, data.draw(st.integers(1, 5000))) for a, b in data.draw(st.sets(st.sampled_from(pairs)))]
        for _ in range(3)
    ]
    one, other = VirtualClock(links, compute), VirtualClock(links, compute)
    play(one, nodes, *rounds[0])
    other.restore(one.state())
    for number, rows in enumerate(rounds[1:], 2):
        before = play(one, nodes, round=number)
        assert play(other, nodes, round=number) == before
        later = play(one, nodes, *rows, round=number)
        assert play(other, nodes, *rows, round=number) == later
        assert all(now >= then for now, then in zip(later, before, strict=True))
