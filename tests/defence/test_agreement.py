"""Agreement: whatever the liars say, all others end with the same values, and with those of the others."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.defence.agreement import Agreement, exchanges, message_bytes
from p2p_tally.errors import FrameError

VALUES = [b"", b"a", b"bb", b"\x00" * 18]


def play(values: list[bytes], liars: set[int], count: int, seed: int) -> dict[int, list[bytes]]:
    """What every honest member ends with. A liar tells each member something else, now and then the truth."""
    generator = random.Random(seed)
    members = len(values)
    sides = [Agreement(members, own, value, count) for own, value in enumerate(values)]
    for exchange in range(count):
        sent = [side.message(exchange) for side in sides]
        # What another side, with other values, would have said at this point: well formed, and wrong.
        for receiver, side in enumerate(sides):
            came = {}
            for sender in range(members):
                if sender == receiver:
                    continue
                if sender in liars:
                    lie = generator.choice(VALUES)
                    wrong = Agreement(members, sender, lie, count)
                    for before in range(exchange):
                        wrong.receive(before, {other: sent[other] for other in range(members) if other != sender})
                    came[sender] = generator.choice(
                        [wrong.message(exchange), sent[sender], b"", b"\xff", b"\x01z\x00\x00\x01y"]
                    )
                else:
                    came[sender] = sent[sender]
            side.receive(exchange, {sender: data for sender, data in came.items() if data})
    return {member: sides[member].values() for member in range(members) if member not in liars}


@given(st.integers(4, 8), st.integers(0, 10_000), st.data())
def test_one_liar_among_four_or_more(members: int, seed: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.sampled_from(VALUES), min_size=members, max_size=members))
    liars = {data.draw(st.integers(0, members - 1))}
    check(values, liars, 2, seed)


@given(st.integers(7, 10), st.integers(0, 10_000), st.data())
def test_two_liars_among_seven_or_more(members: int, seed: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.sampled_from(VALUES), min_size=members, max_size=members))
    liars = data.draw(st.sets(st.integers(0, members - 1), min_size=2, max_size=2))
    check(values, liars, 3, seed)


def check(values: list[bytes], liars: set[int], count: int, seed: int) -> None:
    found = play(values, liars, count, seed)
    assert len({tuple(one) for one in found.values()}) == 1
    for one in found.values():
        assert all(one[member] == values[member] for member in found)


def test_without_a_lie_all_have_all_values() -> None:
    values = [b"one", b"two", b"three", b"", b"five"]
    assert play(values, set(), 3, 0) == dict.fromkeys(range(5), values)


def test_two_members_and_one() -> None:
    assert play([b"x", b"y"], set(), 2, 0) == {0: [b"x", b"y"], 1: [b"x", b"y"]}
    assert play([b"x"], set(), 2, 0) == {0: [b"x"]}


def test_how_many_exchanges() -> None:
    assert [exchanges(5, 1), exchanges(10, 2), exchanges(16, 3), exchanges(17, 3), exchanges(64, 12)] == [2, 3, 3, 2, 2]


def test_a_message_is_short_if_all_say_the_same() -> None:
    sides = [Agreement(6, own, b"same", 3) for own in range(6)]
    for exchange in range(3):
        sent = [side.message(exchange) for side in sides]
        assert {len(message) for message in sent} == {message_bytes(4)}
        for own, side in enumerate(sides):
            side.receive(exchange, {other: sent[other] for other in range(6) if other != own})


@pytest.mark.parametrize(
    "data", [b"", b"\x05a", b"\x01a\x00", b"\x01a\x00\x09\x01b", b"\x01a\x00\x01\x01b\x00\x01\x01c"]
)
def test_what_is_no_list_of_values_is_refused(data: bytes) -> None:
    side = Agreement(4, 0, b"x", 2)
    side.receive(0, {1: b"\x01y"})
    refused = side.receive(1, {1: data})
    assert list(refused) == [1] and isinstance(refused[1], FrameError)
