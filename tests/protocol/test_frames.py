"""Frames: every message comes back; no bytes whatever give anything but a message or a FrameError, nor cost memory."""

import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.errors import FrameError
from p2p_tally.protocol.frames import (
    CHUNK_BYTES,
    HELLO_BYTES,
    MARGIN,
    Limits,
    decode,
    decode_hello,
    encode,
    websocket_header,
)
from p2p_tally.protocol.messages import (
    LONG_BALLOT,
    LONG_BALLOT_ROUNDS,
    MAX_LIST,
    MAX_NUMBER,
    Announce,
    Bye,
    Fetch,
    Hello,
    Here,
    Lost,
    Message,
    News,
    Piece,
    Ready,
    Relayed,
    Shard,
    Stage,
    State,
    Vote,
    Waiting,
    Welcome,
    Withdraw,
)

LIMITS = Limits.of(largest_ballot=4096, members=64, merging=True)
# What decoding a frame of a few kilobytes may take at its peak.
LITTLE_MEMORY = 256 * 1024

edges = st.sampled_from([1, 127, 128, 255, 256, 65_535, 65_536, MAX_NUMBER])
rounds = edges | st.integers(1, MAX_NUMBER)
numbers = st.just(0) | rounds
texts = st.text(max_size=12)
data = st.binary(min_size=1, max_size=80).map(lambda some: some * 4)
carrying = st.sampled_from([Stage.VECTOR, Stage.SCATTER, Stage.GATHER])

hellos = st.builds(
    Hello,
    version=numbers,
    name=texts,
    round=numbers,
    running=st.booleans(),
    checkpoints=st.lists(numbers, max_size=20).map(tuple),
    neighbours=st.lists(texts, max_size=20).map(tuple),
    digest=texts,
    fields=st.lists(st.tuples(texts, texts), max_size=20).map(tuple),
)
messages = st.one_of(
    st.builds(Vote, rounds, st.binary(max_size=300)),
    st.builds(Shard, rounds, carrying, numbers, data),
    st.tuples(rounds, numbers, rounds).map(lambda drawn: Ready(drawn[0], min(drawn[1:]), max(drawn[1:]))),
    st.builds(Announce, rounds, st.binary(max_size=40), st.binary(max_size=8)),
    st.builds(Bye, numbers),
    st.builds(Here, numbers),
    st.builds(Withdraw, rounds),
    st.builds(Waiting, rounds, st.sampled_from(Stage)),
    st.builds(Relayed, numbers, st.integers(2, MAX_NUMBER), st.builds(Vote, rounds, st.binary(max_size=200))),
    st.builds(Relayed, numbers, st.integers(2, MAX_NUMBER), st.just(Ready(3, 1, 2))),
    st.builds(News, numbers, numbers, st.builds(Waiting, rounds, st.sampled_from(Stage))),
    st.builds(News, numbers, numbers, st.builds(Lost, st.binary(max_size=30))),
    st.builds(News, numbers, numbers, st.builds(Here, numbers)),
    st.just(Welcome()),
)


def read(frame: bytes) -> Message | None:
    """What any link makes of these bytes. An exception other than FrameError fails the test that asks."""
    try:
        message: Message = decode(frame, LIMITS)
    except FrameError as error:
        assert error.reason in {"garbage", "field", "unknown-kind", "oversized", "damaged"}
        return None
    assert decode(encode(message), LIMITS) == message
    return message


def read_hello(frame: bytes) -> Hello | None:
    try:
        hello = decode_hello(frame)
    except FrameError as error:
        assert error.reason in {"garbage", "field", "unknown-kind", "oversized"}
        return None
    assert decode_hello(encode(hello)) == hello
    return hello


# --- what is right comes through


@given(messages)
@settings(max_examples=200)
def test_every_message_comes_back(message: Message) -> None:
    assert decode(encode(message), LIMITS) == message
    assert type(decode(encode(message), LIMITS)) is type(message)
    assert read_hello(encode(message)) is None  # and is no hello


@given(hellos)
@settings(max_examples=100)
def test_every_hello_comes_back(hello: Hello) -> None:
    assert decode_hello(encode(hello)) == hello
    assert read(encode(hello)) is None  # a second hello on a link is no message


@pytest.mark.parametrize(
    ("message", "frame"),
    [
        (Vote(1, b"\x07\x09"), "93 02 01 c4 02 07 09"),
        (Vote(MAX_NUMBER, b""), "93 02 ce ff ff ff ff c4 00"),
        (Ready(2, 3, 4), "94 03 02 03 04"),
        (Shard(5, Stage.SCATTER, 300, bytes(4)), "96 04 05 04 cd 01 2c c4 04 00 00 00 00 c4 04 30 d8 19 47"),
        (Announce(5, b"\xf0"), "93 05 05 c4 01 f0"),
        (Announce(5, b"\xf0", b"\x01\x02"), "94 05 05 c4 01 f0 c4 02 01 02"),
        (Bye(0), "92 06 00"),
        (Here(200), "92 07 cc c8"),
        (Withdraw(5), "92 08 05"),
        (Waiting(5, Stage.VOTE), "93 09 05 01"),
        (Relayed(7, 2, Vote(31, b"\x03\x01")), "96 0b 07 02 02 1f c4 02 03 01"),
        (Relayed(7, 2, Ready(1, 6, 16)), "97 0b 07 02 03 01 06 10"),
        (News(7, 9, Here(30)), "95 0c 07 09 07 1e"),
        (News(7, 9, Waiting(31, Stage.VOTE)), "96 0c 07 09 09 1f 01"),
        (News(7, 9, Lost(b"\x80")), "95 0c 07 09 0d c4 01 80"),
        (Welcome(), "91 0a"),
        (Fetch(30), "92 0e 1e"),
        (State(30, None, 0, 300, bytes(32)), "96 0f 1e c0 00 cd 01 2c c4 20" + 32 * " 00"),
        (Piece(2, b"\x01"), "93 10 02 c4 01 01"),
    ],
)
def test_frames_by_hand(message: Message, frame: str) -> None:
    """The wire as it is spoken: a change here cuts off every node of the last release."""
    assert encode(message).hex(" ") == frame
    assert decode(bytes.fromhex(frame), LIMITS) == message


def test_a_hello_by_hand() -> None:
    hello = Hello(1, "a", 3, True, (0, 2), ("b", "c"), "d", (("x", "y"),))
    frame = "99 01 01 a1 61 03 c3 92 00 02 92 a1 62 a1 63 a1 64 91 92 a1 78 a1 79"
    assert encode(hello).hex(" ") == frame
    assert decode_hello(bytes.fromhex(frame)) == hello


# --- what is wrong does not


@given(st.binary(max_size=200))
@settings(max_examples=400)
def test_any_bytes(frame: bytes) -> None:
    read(frame)
    read_hello(frame)


@st.composite
def damaged(draw: st.DrawFn, of: st.SearchStrategy[Any]) -> bytes:
    """A frame that was valid: bits flipped, cut short, extended, or with a piece of another in its middle."""
    frame = bytearray(encode(draw(of)))
    match draw(st.sampled_from(["flip", "truncate", "extend", "splice"])):
        case "flip":
            for at in draw(st.lists(st.integers(0, len(frame) * 8 - 1), min_size=1, max_size=4)):
                frame[at // 8] ^= 1 << at % 8
        case "truncate":
            del frame[draw(st.integers(0, len(frame) - 1)) :]
        case "extend":
            frame += draw(st.binary(min_size=1, max_size=8))
        case "splice":
            at = draw(st.integers(0, len(frame)))
            frame[at:at] = draw(st.binary(min_size=1, max_size=8) | of.map(encode))
    return bytes(frame)


@given(damaged(messages))
@settings(max_examples=500)
def test_damaged_messages(frame: bytes) -> None:
    read(frame)


@given(damaged(hellos))
@settings(max_examples=200)
def test_damaged_hellos(frame: bytes) -> None:
    read_hello(frame)


@given(messages, st.integers(1, 40), st.binary(min_size=1, max_size=8))
@settings(max_examples=100)
def test_cut_short_or_too_long_is_refused(message: Message, cut: int, more: bytes) -> None:
    frame = encode(message)
    assert read(frame[: -min(cut, len(frame))]) is None
    assert read(frame + more) is None


anything = st.recursive(
    st.none()
    | st.booleans()
    | numbers
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.binary(max_size=8)
    | st.text(max_size=4)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=4))
    | st.builds(msgpack.Timestamp, st.integers(0, 2**32)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=12,
)


@given(st.integers(0, 9), st.lists(anything, max_size=9))
@settings(max_examples=250)
def test_any_values_in_the_place_of_the_fields(kind: int, fields: list[Any]) -> None:
    """Well-formed msgpack of the wrong meaning: past the parser, up to the fields' own checks."""
    frame = msgpack.packb([kind, *fields])
    read(frame)
    read_hello(frame)


@given(hellos, st.integers(1, 8), anything)
@settings(max_examples=120)
def test_one_wrong_field_in_a_hello(hello: Hello, at: int, wrong: Any) -> None:
    fields = msgpack.unpackb(encode(hello))
    fields[at] = wrong
    read_hello(msgpack.packb(fields))


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "garbage"),
        (b"\xc1", "garbage"),  # never used in msgpack
        (b"\x90", "garbage"),
        (b"\x02", "garbage"),
        (msgpack.packb([]), "garbage"),
        (msgpack.packb(["2", 1, b"x"]), "garbage"),
        (msgpack.packb([b"2", 1, b"x"]), "garbage"),
        (msgpack.packb([2.0, 1, b"x"]), "garbage"),
        (msgpack.packb([[2], 1, b"x"]), "garbage"),
        (msgpack.packb([None, 1, b"x"]), "garbage"),
        (msgpack.packb([True, 1, b"x"]), "garbage"),
        (msgpack.packb({2: 1}), "garbage"),
        (msgpack.packb([2, 1, {1: 2}]), "garbage"),
        (msgpack.packb([2, 1, "text"]), "garbage"),
        (msgpack.packb([2, 1, "t"]), "garbage"),
        (msgpack.packb([2, 1, msgpack.ExtType(5, b"x")]), "garbage"),
        (msgpack.packb([2, 1, msgpack.Timestamp(1)]), "garbage"),
        (msgpack.packb([2, *range(7)]), "unknown-kind"),
        (msgpack.packb([2, *range(8)]), "garbage"),  # more fields than any message has: not read at all
        (msgpack.packb([0, 1]), "unknown-kind"),
        (msgpack.packb([11, 1]), "unknown-kind"),
        (msgpack.packb([-2, 1, b"x"]), "unknown-kind"),
        (msgpack.packb([2**64 - 1, 1, b"x"]), "unknown-kind"),
        (msgpack.packb([1, 1]), "unknown-kind"),
        (msgpack.packb([2, 1]), "unknown-kind"),
        (msgpack.packb([2, 1, b"x", 1]), "unknown-kind"),
        (msgpack.packb([6, 1, 1]), "unknown-kind"),
        (msgpack.packb([2, 1, ""]), "field"),
        (msgpack.packb([2, 1, {}]), "field"),
        (msgpack.packb([2, 1, None]), "field"),
        (msgpack.packb([2, 1.0, b"x"]), "field"),
        (msgpack.packb([2, 2**32, b"x"]), "field"),
        (msgpack.packb([4, 1, 1, 0, bytes(4), bytes(4)]), "field"),
        (msgpack.packb([4, 1, 99, 0, bytes(4), bytes(4)]), "field"),
        (msgpack.packb([4, 1, None, 0, bytes(4), bytes(4)]), "field"),
        (msgpack.packb([4, 1, 3.0, 0, bytes(4), bytes(4)]), "field"),  # equal to a stage's number, yet none
        (msgpack.packb([4, 1, 3, 0, b"", bytes(4)]), "field"),
        (msgpack.packb([4, 1, 3, 0, bytes(4)]), "unknown-kind"),  # as before there was a checksum
        (msgpack.packb([4, 1, 3, 0, bytes(4), bytes(4)]), "damaged"),
        (msgpack.packb([4, 1, 3, 0, bytes(4), b""]), "damaged"),
        (msgpack.packb([4, 1, 3, 0, bytes(4), None]), "damaged"),
        (msgpack.packb([5, 1, b"x", b""]), "unknown-kind"),  # nothing to name is not written
        (msgpack.packb([5, 1, b"x", 7]), "field"),
    ],
)
def test_why_a_frame_is_refused(frame: bytes, reason: str) -> None:
    with pytest.raises(FrameError) as caught:
        decode(frame, LIMITS)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "garbage"),
        (b"\xc1", "garbage"),
        (b"\x01", "garbage"),
        (b"\x90", "garbage"),
        (msgpack.packb({1: 1}), "garbage"),
        (msgpack.packb([True, 1]), "garbage"),
        (msgpack.packb([1, 1, "a"]), "unknown-kind"),
        (msgpack.packb([2, 1, b"x"]), "unknown-kind"),
        (msgpack.packb([1, 1, "a", 0, False, [0], ["b"], "d", [["x", "y"]], 1]), "unknown-kind"),
        (msgpack.packb([1, 1, "a", 0, False, [0], ["b"], "d", [["x", "y"]]]) + b"\x00", "garbage"),
        (msgpack.packb([1, 1, "a", 0, False, [0], ["b"], "d", [["x", "y"]]])[:-1], "garbage"),
        (msgpack.packb([1, 1, b"a", 0, False, [0], ["b"], "d", [["x", "y"]]]), "garbage"),
        (msgpack.packb([1, 1, "a", 0, False, [0], ["b"], "d", [["x", {"y": 1}]]]), "garbage"),
        (msgpack.packb([1, 1, "a", 0, False, [0], ["b"], "d", [["x", ["y"]]]]), "garbage"),
        (msgpack.packb([1, 1, "a" * 5000, 0, False, [0], ["b"], "d", []]), "garbage"),
        (msgpack.packb([1, 1, "a" * 1025, 0, False, [0], ["b"], "d", []]), "field"),
        (b"\x99\x01\x01\xa1\xff" + msgpack.packb([0, False, [0], ["b"], "d", []])[1:], "garbage"),  # no UTF-8
        (msgpack.packb([1, 1, "a", 0, 0, [0], ["b"], "d", [["x", "y"]]]), "field"),
        (msgpack.packb([1, -1, "a", 0, False, [0], ["b"], "d", [["x", "y"]]]), "field"),
        (msgpack.packb([1, 1, "a", 0, False, [0, "1"], ["b"], "d", [["x", "y"]]]), "field"),
    ],
)
def test_why_a_hello_is_refused(frame: bytes, reason: str) -> None:
    with pytest.raises(FrameError) as caught:
        decode_hello(frame)
    assert caught.value.reason == reason


# The parser's own stack is about a thousand deep, and so is Python's.
@pytest.mark.parametrize("depth", [1, 2, 3, 100, 900, 990, 1000, 1010, 1020, 1022, 1023, 1024, 5000])
def test_deep_nesting_is_refused_in_every_place(depth: int) -> None:
    deep = b"\x91" * depth + b"\x01"
    vote = [b"\x01", b"\xc4\x01x"]
    shard = [b"\x01", b"\x03", b"\x00", b"\xc4\x04xxxx", b"\xc4\x04xxxx"]
    for kind, fields in ((b"\x02", vote), (b"\x04", shard)):
        for at in range(len(fields)):
            frame = bytes([0x91 + len(fields)]) + kind + b"".join([*fields[:at], deep, *fields[at + 1 :]])
            with pytest.raises(FrameError):
                decode(frame, LIMITS)
    hello = [msgpack.packb(item) for item in (1, "a", 0, False, [], [], "d", [])]
    for at in range(len(hello)):
        if depth == 1 and at == 4:
            continue  # a list with one checkpoint, as it should be
        with pytest.raises(FrameError):
            decode_hello(b"\x99\x01" + b"".join([*hello[:at], deep, *hello[at + 1 :]]))
    for bare in (deep, b"\x81" * depth, b"\x81\x01" * depth, b"\xdc\x00\x01" * depth + b"\x01"):
        assert read(bare) is None
        assert read_hello(bare) is None


HUGE = [
    b"\xc6\xff\xff\xff\xff",  # bytes
    b"\xc5\xff\xff",
    b"\xdb\xff\xff\xff\xff",  # a text
    b"\xda\xff\xff",
    b"\xdd\xff\xff\xff\xff",  # an array
    b"\xdc\xff\xff",
    b"\xdf\xff\xff\xff\xff",  # a map
    b"\xde\xff\xff",
    b"\xc9\xff\xff\xff\xff\x05",  # an extension
    b"\xc8\xff\xff\x05",
    b"\xd8\x05" + bytes(16),
    b"\xdc\x10\x00" * 1020,  # arrays in arrays, each of the most that a hello's lists may have
    b"\xdc\x00\x08" * 1020,
    b"\xdd\x00\x00\x10\x00" * 1020,
    b"\x98" * 1020,
]


@pytest.mark.parametrize("declared", HUGE, ids=lambda declared: declared[:6].hex())
def test_a_declared_length_reserves_nothing(declared: bytes) -> None:
    heads = [b"", b"\x93\x02\x01", b"\x93\x02", b"\x96\x04\x01\x03\x00"]
    heads += [b"\x99\x01", b"\x99\x01\x01", b"\x99\x01\x01\xa1a\x00\xc2", b"\x99\x01\x01\xa1a\x00\xc2\x90\x90\xa1d"]
    tracemalloc.start()
    try:
        for head in heads:
            assert read(head + declared) is None
            assert read_hello(head + declared) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LITTLE_MEMORY


def test_a_frame_past_the_limit_is_refused_unread() -> None:
    small = Limits.of(largest_ballot=16, members=4, merging=False)
    assert small.frame == MARGIN + 16
    with pytest.raises(FrameError) as caught:
        decode(b"\xc1" * (small.frame + 1), small)
    assert caught.value.reason == "oversized"
    with pytest.raises(FrameError) as caught:
        decode_hello(b"\xc1" * (HELLO_BYTES + 1))
    assert caught.value.reason == "oversized"


@pytest.mark.parametrize("members", [1, 8, 9, 4096])
@pytest.mark.parametrize("ballot", [0, 16, 100_000])
@pytest.mark.parametrize("merging", [False, True])
def test_a_federations_own_largest_messages_fit(ballot: int, members: int, merging: bool) -> None:
    limits = Limits.of(ballot, members, merging)
    vote = Vote(MAX_NUMBER if ballot <= LONG_BALLOT else LONG_BALLOT_ROUNDS, bytes(ballot))
    own: list[Message] = [
        vote,
        Ready(MAX_NUMBER, MAX_NUMBER, MAX_NUMBER),
        Announce(MAX_NUMBER, bytes((members + 7) // 8), bytes(8)),
        Withdraw(MAX_NUMBER),
        Relayed(members, max(2, members), vote),
        News(members, MAX_NUMBER, Lost(bytes((members + 7) // 8))),
        State(MAX_NUMBER, MAX_NUMBER, MAX_NUMBER, 2**48, bytes(32)),
    ]
    if merging:
        own.append(Piece(MAX_NUMBER, bytes(CHUNK_BYTES)))
        own.append(Shard(MAX_NUMBER, Stage.SCATTER, MAX_NUMBER, bytes(CHUNK_BYTES)))
    for message in own:
        assert decode(encode(message), limits) == message


def test_lists_of_the_most_items_are_read() -> None:
    hello = Hello(1, "a", 0, False, tuple(range(MAX_LIST)), ("b",) * MAX_LIST, "d", (("x", "y"),) * 64)
    assert decode_hello(encode(hello)) == hello
    longer = msgpack.packb([1, 1, "a", 0, False, [0] * (MAX_LIST + 1), [], "d", []])
    assert read_hello(longer) is None


# --- what a vote costs beside its payload


@pytest.mark.parametrize(
    ("length", "header"),
    [(0, 2), (1, 2), (125, 2), (126, 4), (127, 4), (65_535, 4), (65_536, 10), (65_537, 10), (2**63 - 1, 10)],
)
def test_websocket_headers_are_those_of_rfc_6455(length: int, header: int) -> None:
    """Section 5.2: two bytes; two more from 126 on, eight more from 65,536 on; a masking key of four."""
    assert websocket_header(length, masked=False) == header
    assert websocket_header(length, masked=True) == header + 4


def overhead(round: int, payload: int, masked: bool) -> int:
    frame = encode(Vote(round, bytes(payload)))
    return len(frame) + websocket_header(len(frame), masked=masked) - payload


payloads = st.sampled_from([0, 1, 110, 125, 126, 255, 256, 65_520, 65_535]) | st.integers(0, 65_535)


@given(rounds, payloads, st.booleans())
@settings(max_examples=200)
def test_a_vote_costs_at_most_24_bytes_over_its_payload(round: int, payload: int, masked: bool) -> None:
    assert overhead(round, payload, masked) <= (24 if masked else 20)


@given(st.integers(1, 65_535), st.integers(65_536, 300_000), st.booleans())
@settings(max_examples=50)
def test_so_does_a_longer_one_in_the_first_65535_rounds(round: int, payload: int, masked: bool) -> None:
    assert overhead(round, payload, masked) <= (24 if masked else 20)


def test_the_dearest_votes() -> None:
    assert overhead(1, 16, masked=False) == 7
    assert overhead(1, 16, masked=True) == 11
    assert overhead(MAX_NUMBER, 65_535, masked=True) == 24
    assert overhead(65_535, 65_536, masked=True) == 24


def test_a_long_ballot_in_a_late_round_is_no_vote() -> None:
    """Lengths of four bytes in a round of four would make it 26."""
    with pytest.raises(FrameError, match="a ballot of 65536 bytes in round 65536"):
        Vote(65_536, bytes(65_536))
    frame = msgpack.packb([2, 65_536, bytes(65_536)])
    with pytest.raises(FrameError) as refusal:
        decode(frame, Limits(frame=100_000))
    assert refusal.value.reason == "field"
