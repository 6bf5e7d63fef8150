"""Messages are valid from the moment they exist, and the numbers that name them on the wire never change."""

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any, get_args

import pytest

from p2p_tally.errors import FrameError
from p2p_tally.protocol.messages import (
    MAX_FIELDS,
    MAX_LIST,
    MAX_NUMBER,
    MAX_TEXT,
    Announce,
    Bye,
    Echoed,
    Fetch,
    Hello,
    Here,
    Kind,
    ListAsk,
    ListNumber,
    ListPart,
    ListRequest,
    Lost,
    Message,
    News,
    Passed,
    Piece,
    Ready,
    Relayed,
    Shard,
    Signed,
    Stage,
    State,
    Vote,
    Waiting,
    Welcome,
    Withdraw,
)

HELLO = Hello(1, "a", 0, False, (0,), ("b",), "d", (("method", "tally"),))

KINDS = {
    "HELLO": 1,
    "VOTE": 2,
    "READY": 3,
    "SHARD": 4,
    "ANNOUNCE": 5,
    "BYE": 6,
    "HERE": 7,
    "WITHDRAW": 8,
    "WAITING": 9,
    "WELCOME": 10,
    "RELAYED": 11,
    "NEWS": 12,
    "LOST": 13,
    "FETCH": 14,
    "STATE": 15,
    "PIECE": 16,
    "CARRIED": 17,
    "LIST_NUMBER": 18,
    "LIST_ASK": 19,
    "LIST_PART": 20,
    "LIST_REQUEST": 21,
    "SIGNED": 22,
    "ECHOED": 23,
    "PASSED": 24,
}
STAGES = {
    "VOTE": 1,
    "READY": 2,
    "VECTOR": 3,
    "SCATTER": 4,
    "GATHER": 5,
    "ANNOUNCE": 6,
    "HANDSHAKE": 7,
    "HANDOVER": 8,
    "CARRIED": 9,
    "LIST": 10,
    "ROLL": 11,
    "CHECK": 12,
    "VERDICT": 13,
    "EVIDENCE": 14,
}


@pytest.mark.parametrize(("numbers", "pinned"), [(Kind, KINDS), (Stage, STAGES)])
def test_numbers_are_append_only(numbers: Any, pinned: dict[str, int]) -> None:
    actual = {name: member.value for name, member in numbers.__members__.items()}
    assert dict(list(actual.items())[: len(pinned)]) == pinned
    assert list(actual.values()) == list(range(1, len(actual) + 1))  # none reused, none left out


def test_each_kind_is_one_message() -> None:
    # What a node carries for others is no message to itself: protocol/carried.py.
    assert {message.kind for message in get_args(Message)} == set(Kind) - {Kind.CARRIED}
    assert len(get_args(Message)) == len(Kind) - 1


BOOKED: list[tuple[Message, Stage, int]] = [
    (HELLO, Stage.HANDSHAKE, 0),
    (Vote(1, b"\x01\x02\x03"), Stage.VOTE, 3),
    (Vote(1, b""), Stage.VOTE, 0),
    (Ready(1, 3, 4), Stage.READY, 2),
    (Announce(1, b"\xff"), Stage.ANNOUNCE, 0),
    (Shard(1, Stage.VECTOR, 0, bytes(8)), Stage.VECTOR, 8),
    (Shard(1, Stage.SCATTER, 0, bytes(4)), Stage.SCATTER, 4),
    (Shard(1, Stage.GATHER, 0, bytes(12)), Stage.GATHER, 12),
    (Bye(0), Stage.HANDSHAKE, 0),
    (Here(0), Stage.HANDSHAKE, 0),
    (Withdraw(1), Stage.HANDSHAKE, 0),
    (Waiting(1, Stage.VOTE), Stage.HANDSHAKE, 0),
    (Relayed(2, 3, Vote(1, b"\x01\x02\x03")), Stage.VOTE, 3),
    (Relayed(2, 3, Ready(1, 3, 4)), Stage.READY, 2),
    (News(2, 9, Here(1)), Stage.HANDSHAKE, 0),
    (Lost(b"\x80"), Stage.HANDSHAKE, 0),
    (Welcome(), Stage.HANDSHAKE, 0),
    (Fetch(4), Stage.HANDOVER, 0),
    (State(4, None, 0, 8, bytes(32)), Stage.HANDOVER, 0),
    (Piece(0, bytes(8)), Stage.HANDOVER, 8),
    (ListNumber(3, bytes(32)), Stage.LIST, 0),
    (ListAsk(1), Stage.LIST, 0),
    (ListPart(1, b"{}"), Stage.LIST, 2),
    (ListRequest(b"{}"), Stage.LIST, 2),
    (Signed(0, 7, 32, bytes(16), bytes(64)), Stage.EVIDENCE, 0),
    (Echoed(0, b"\xc0", bytes(40)), Stage.EVIDENCE, 0),
    (Passed(3, 0, 7, 32, bytes(16), bytes(64)), Stage.EVIDENCE, 0),
]


def test_a_message_of_every_kind_is_booked() -> None:
    assert {message.kind for message, _, _ in BOOKED} == set(Kind) - {Kind.CARRIED}


@pytest.mark.parametrize(("message", "stage", "payload"), BOOKED)
def test_what_the_ledger_books(message: Message, stage: Stage, payload: int) -> None:
    assert message.stage is stage
    assert message.payload == payload


@pytest.mark.parametrize("message", [message for message, _, _ in BOOKED])
def test_a_message_does_not_change(message: Message) -> None:
    for field in fields(message):
        with pytest.raises(FrozenInstanceError):
            setattr(message, field.name, getattr(message, field.name))


NO_NUMBERS = [-1, MAX_NUMBER + 1, 1.0, True, None, "1", b"1", (1,)]


def test_over_one_link_nothing_has_been_passed_on() -> None:
    with pytest.raises(FrameError, match="1 hops"):
        Relayed(0, 1, Vote(1, b""))


@pytest.mark.parametrize(
    "made",
    [
        lambda: State(4, 0, 0, 8, bytes(31)),
        lambda: State(4, 0, 0, 8, "digest"),
        lambda: State(4, 0, 0, -1, bytes(32)),
        lambda: State(4, 0, 0, 2**49, bytes(32)),
        lambda: State(4, -1, 0, 8, bytes(32)),
        lambda: State(4, 0, None, 8, bytes(32)),
        lambda: State(-1, 0, 0, 8, bytes(32)),
        lambda: Fetch(1.0),
        lambda: Piece(-1, b"1"),
        lambda: Piece(0, b""),
        lambda: Piece(0, "1"),
    ],
)
def test_a_hand_over_is_checked(made: Any) -> None:
    with pytest.raises(FrameError):
        made()


@pytest.mark.parametrize("number", NO_NUMBERS)
@pytest.mark.parametrize(
    "make",
    [
        lambda number: Vote(number, b""),
        lambda number: Ready(number, 1, 2),
        lambda number: Ready(1, number, 2),
        lambda number: Ready(1, 1, number),
        lambda number: Announce(number, b""),
        lambda number: Shard(number, Stage.VECTOR, 0, bytes(4)),
        lambda number: Shard(1, Stage.VECTOR, number, bytes(4)),
        Bye,
        Here,
        Withdraw,
        lambda number: Waiting(number, Stage.VOTE),
        lambda number: Relayed(number, 2, Vote(1, b"")),
        lambda number: Relayed(0, number, Vote(1, b"")),
        lambda number: News(number, 1, Here(1)),
        lambda number: News(0, number, Here(1)),
        lambda number: replace(HELLO, version=number),
        lambda number: replace(HELLO, round=number),
        lambda number: replace(HELLO, checkpoints=(0, number)),
    ],
)
def test_no_number(make: Any, number: object) -> None:
    with pytest.raises(FrameError) as caught:
        make(number)
    assert caught.value.reason == "field"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Vote(0, b""),
        lambda: Ready(0, 1, 2),
        lambda: Announce(0, b""),
        lambda: Shard(0, Stage.VECTOR, 0, bytes(4)),
        lambda: Withdraw(0),
        lambda: Waiting(0, Stage.VOTE),
    ],
)
def test_rounds_count_from_one(make: Any) -> None:
    with pytest.raises(FrameError, match="rounds count from 1"):
        make()


@pytest.mark.parametrize("value", ["text", None, 3, bytearray(4), memoryview(bytes(4)), (1, 2)])
@pytest.mark.parametrize(
    "make",
    [
        lambda value: Vote(1, value),
        lambda value: Announce(1, value),
        lambda value: Announce(1, b"", value),
        Lost,
    ],
)
def test_no_bytes(make: Any, value: object) -> None:
    with pytest.raises(FrameError, match="not bytes"):
        make(value)


@pytest.mark.parametrize("value", ["text", None, 3, bytearray(4), (1, 2)])
def test_no_parameters(value: Any) -> None:
    with pytest.raises(FrameError, match="not bytes"):
        Shard(1, Stage.VECTOR, 0, value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ready(1, 0, 0),
        lambda: Ready(1, 3, 2),
        lambda: Shard(1, Stage.VECTOR, 0, b""),
        lambda: Shard(1, Stage.VOTE, 0, bytes(4)),
        lambda: Shard(1, Stage.ANNOUNCE, 0, bytes(4)),
        lambda: Shard(1, "VECTOR", 0, bytes(4)),  # type: ignore[arg-type]
        lambda: replace(HELLO, name=1),
        lambda: replace(HELLO, name="x" * (MAX_TEXT + 1)),
        lambda: replace(HELLO, running=1),
        lambda: replace(HELLO, running=None),
        lambda: replace(HELLO, checkpoints=[0]),
        lambda: replace(HELLO, checkpoints=(0,) * (MAX_LIST + 1)),
        lambda: replace(HELLO, neighbours="ab"),
        lambda: replace(HELLO, neighbours=(b"a",)),
        lambda: replace(HELLO, neighbours=("x" * (MAX_TEXT + 1),)),
        lambda: replace(HELLO, neighbours=("a",) * (MAX_LIST + 1)),
        lambda: replace(HELLO, digest=b"d"),
        lambda: replace(HELLO, fields=(("a", "b"),) * (MAX_FIELDS + 1)),
        lambda: replace(HELLO, fields=(("a", "b", "c"),)),
        lambda: replace(HELLO, fields=("ab",)),
        lambda: replace(HELLO, fields=(("a", 1),)),
        lambda: replace(HELLO, fields=((1, "a"),)),
        lambda: replace(HELLO, fields={"a": "b"}),
    ],
)
def test_other_fields_that_are_refused(make: Any) -> None:
    with pytest.raises(FrameError) as caught:
        make()
    assert caught.value.reason == "field"


def test_the_bounds_themselves_are_accepted() -> None:
    assert Vote(MAX_NUMBER, b"").round == MAX_NUMBER
    assert Ready(1, 5, 5).right == 5
    assert Bye(0).round == Here(0).round == 0
    largest = replace(
        HELLO,
        name="x" * MAX_TEXT,
        checkpoints=(MAX_NUMBER,) * MAX_LIST,
        neighbours=("",) * MAX_LIST,
        fields=(("", ""),) * MAX_FIELDS,
    )
    assert len(largest.neighbours) == MAX_LIST
