"""The ledger: every byte once, by edge and stage; settled rounds become the run's totals and take no more room."""

import pickle
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.ids import NodeName
from p2p_tally.protocol.ledger import Count, Ledger
from p2p_tally.protocol.messages import Stage

A, B = NodeName("a"), NodeName("b")

bookings = st.lists(
    st.tuples(
        st.booleans(),  # sent, or received
        st.sampled_from([A, B]),
        st.sampled_from(list(Stage)),
        st.integers(0, 2**40),
        st.integers(0, 64),
    ),
    max_size=30,
)


def book(ledger: Ledger, items: list[tuple[bool, NodeName, Stage, int, int]]) -> None:
    for sent, peer, stage, payload, extra in items:
        (ledger.book_sent if sent else ledger.book_received)(peer, stage, payload, payload + extra)


@given(st.lists(bookings, max_size=5))
@settings(max_examples=100)
def test_totals_are_the_sums_of_what_was_booked(rounds: list[list[tuple[bool, NodeName, Stage, int, int]]]) -> None:
    ledger = Ledger()
    for items in rounds:
        book(ledger, items)
        settled = ledger.settle()
        mine = [item for item in items if item[0]]
        assert set(settled) == {stage for _, _, stage, _, _ in mine}
        for stage, count in settled.items():
            of_stage = [item for item in mine if item[2] is stage]
            payload = sum(item[3] for item in of_stage)
            assert count == Count(len(of_stage), payload, payload + sum(item[4] for item in of_stage))
    everything = [item for items in rounds for item in items]
    for sent, total, books in ((True, ledger.total_sent, ledger.sent), (False, ledger.total_received, ledger.received)):
        ours = [item for item in everything if item[0] is sent]
        assert total().messages == len(ours)
        assert total().payload == sum(item[3] for item in ours)
        assert total().framed == sum(item[3] + item[4] for item in ours)
        for stage in Stage:
            assert total(stage).payload == sum(item[3] for item in ours if item[2] is stage)
        by_edge = Counter({(peer, stage): 0 for _, peer, stage, _, _ in ours})
        for _, peer, stage, payload, _ in ours:
            by_edge[peer, stage] += payload
        assert {key: count.payload for key, count in books.items()} == by_edge


def test_a_round_by_hand() -> None:
    ledger = Ledger()
    ledger.book_sent(A, Stage.VOTE, 16, 23)
    ledger.book_sent(B, Stage.VOTE, 16, 27)
    ledger.book_sent(B, Stage.ANNOUNCE, 0, 6)
    ledger.book_received(A, Stage.VOTE, 16, 23)
    # What has been sent counts in the run once its round is settled.
    assert ledger.total_sent() == Count()
    assert ledger.settle() == {Stage.VOTE: Count(2, 32, 50), Stage.ANNOUNCE: Count(1, 0, 6)}
    assert ledger.sent == {
        (A, Stage.VOTE): Count(1, 16, 23),
        (B, Stage.VOTE): Count(1, 16, 27),
        (B, Stage.ANNOUNCE): Count(1, 0, 6),
    }
    assert ledger.received == {(A, Stage.VOTE): Count(1, 16, 23)}
    assert ledger.total_sent() == Count(3, 32, 56)
    assert ledger.total_sent(Stage.VOTE) == Count(2, 32, 50)
    assert ledger.total_sent(Stage.SCATTER) == Count()
    assert ledger.total_received() == Count(1, 16, 23)


def test_a_settled_round_is_not_counted_again() -> None:
    ledger = Ledger()
    ledger.book_sent(A, Stage.VOTE, 1, 2)
    first = ledger.settle()
    assert ledger.settle() == {}
    ledger.book_sent(A, Stage.VOTE, 10, 20)
    assert ledger.settle() == {Stage.VOTE: Count(1, 10, 20)}
    assert first == {Stage.VOTE: Count(1, 1, 2)}  # what was handed out does not change afterwards
    assert ledger.total_sent() == Count(2, 11, 22)


def test_its_size_does_not_follow_the_rounds() -> None:
    ledger, sizes = Ledger(), []
    for _ in range(1000):
        for peer in (A, B):
            for stage in (Stage.VOTE, Stage.SCATTER):
                ledger.book_sent(peer, stage, 1, 2)
                ledger.book_received(peer, stage, 1, 2)
        ledger.settle()
        sizes.append(len(pickle.dumps(ledger)))
    assert len(ledger.sent) == len(ledger.received) == 4
    assert max(sizes) <= sizes[0] + 3 * 8  # larger numbers: of messages, payload and framed bytes on each of 8 edges
    assert ledger.total_sent() == ledger.total_received() == Count(4000, 4000, 8000)
