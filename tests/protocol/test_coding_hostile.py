"""Whatever bytes a peer sends: votes below C, or BallotError, within bounded memory."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.errors import BallotError
from p2p_tally.protocol.bits import BitWriter
from p2p_tally.protocol.coding import decode_coded, encode_coded
from p2p_tally.protocol.enumerative import FIRST_BYTE, encode_ranked
from p2p_tally.protocol.packed import decode_packed, encode_packed, packed_size
from p2p_tally.protocol.predictive import Scheme, encode_predictive


def votes_or_error(data: bytes, count: int, classes: int, labels: np.ndarray | None) -> np.ndarray | None:
    try:
        votes = decode_coded(data, count, classes, labels)
    except BallotError:
        return None
    assert votes.shape == (count,)
    assert count == 0 or (votes.min() >= 0 and votes.max() < classes)
    return votes


def some_labels(seed: int, count: int, classes: int) -> np.ndarray | None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, min(classes, 30), count)
    labels[rng.random(count) < (0, 0.3, 1)[seed % 3]] = -1
    return None if seed % 4 == 0 else labels


first_bytes = st.sampled_from([b"", *(bytes([first]) for first in range(FIRST_BYTE + 2))])


@given(
    first_bytes,
    st.binary(max_size=400),
    st.integers(0, 400),
    st.sampled_from([2, 3, 10, 17, 2048, 65_536, 70_000]),
    st.integers(0, 1000),
)
@settings(max_examples=600, deadline=None)
def test_any_bytes_give_votes_or_the_typed_error(first, rest, count, classes, seed):
    data = (first + rest)[: 1 + packed_size(count, classes)] if seed % 2 else first + rest
    votes_or_error(data, count, classes, some_labels(seed, count, classes))
    try:
        votes = decode_packed(rest, count, classes)
        assert encode_packed(votes, classes) == rest
    except BallotError:
        pass


def ballots() -> list[tuple[bytes, int, int, np.ndarray]]:
    """One ballot in each scheme and two ranked, with labels for most votes."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 40, 500)
    labels[::9] = -1
    votes = np.where(rng.random(500) < 0.6, np.maximum(labels, 0), rng.integers(0, 50, 500))
    made = [(encode_predictive(scheme, votes, 50, labels), 500, 50, labels) for scheme in Scheme]
    made += [(encode_coded(votes[:n], 50, labels[:n]), n, 50, labels[:n]) for n in (16, 60)]
    made.append((b"\0" + encode_packed(votes, 50), 500, 50, labels))
    return made


@pytest.mark.parametrize("ballot", ballots(), ids=lambda ballot: f"{ballot[0][0]}-{ballot[1]}")
def test_damage_gives_votes_or_the_typed_error(ballot):
    data, count, classes, labels = ballot
    assert votes_or_error(data, count, classes, labels) is not None
    for bit in range(0, 8 * len(data), max(1, len(data) // 40)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        votes_or_error(bytes(damaged), count, classes, labels)
    for length in range(0, len(data), max(1, len(data) // 60)):
        votes_or_error(data[:length], count, classes, labels)


@pytest.mark.parametrize("ballot", ballots(), ids=lambda ballot: f"{ballot[0][0]}-{ballot[1]}")
@pytest.mark.parametrize("extra", [b"\0", b"\xff", b"\0" * 7])
def test_bytes_to_spare_are_refused_or_say_something_else(ballot, extra):
    data, count, classes, labels = ballot
    votes = decode_coded(data, count, classes, labels)
    longer = votes_or_error(data + extra, count, classes, labels)
    # A longer rank is another ballot; nowhere may bytes be added without changing a vote.
    assert longer is None or (data[0] >= FIRST_BYTE and (longer != votes).any())


@given(st.binary(min_size=1, max_size=12), st.integers(0, 24), st.integers(2, 300), st.integers(0, 1000))
@settings(max_examples=300, deadline=None)
def test_a_ranked_ballot_has_one_form(rest, count, classes, seed):
    data = bytes([max(FIRST_BYTE, rest[0])]) + rest[1:]
    labels = some_labels(seed, count, classes)
    labels = np.minimum(labels, classes - 1) if labels is not None else np.full(count, -1)
    votes = votes_or_error(data, count, classes, labels)
    if votes is not None:
        assert encode_ranked(votes, classes, labels) == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ballot-length"),
        (b"\0" * 10, "ballot-length"),
        (b"\0" * 3, "ballot-length"),
        (b"\0\xff" + b"\0" * 7, "ballot-class"),
        (b"\x06\0\0", "ballot-code"),
        (b"\x07\0\0", "ballot-code"),
        (b"\xff" * 9, "ballot-code"),
        (b"\x01", "ballot-length"),
    ],
)
def test_each_refusal_has_its_reason(data, reason):
    with pytest.raises(BallotError) as refusal:
        decode_coded(data, 16, 10, None)
    assert refusal.value.reason == reason


def test_padding_bits_are_checked():
    with pytest.raises(BallotError) as refusal:
        decode_packed(b"\x00\x01", 3, 10)
    assert refusal.value.reason == "ballot-padding"


def test_a_table_of_more_symbols_than_two_bytes_name_is_refused():
    bits = BitWriter()
    bits.number(65_537, (100_000).bit_length())
    bits.rice(np.zeros(65_537, dtype=np.int64))
    with pytest.raises(BallotError, match="a table of 65537 of 100000 classes") as refusal:
        decode_coded(bytes([Scheme.PLAIN]) + bits.to_bytes(), 70_000, 100_000, None)
    assert refusal.value.reason == "ballot-code"


@pytest.mark.parametrize("classes", [65_536, 2**20])
def test_memory_follows_count_and_classes_whatever_the_bytes_say(classes):
    rng = np.random.default_rng(6)
    count = 8192
    labels = rng.integers(0, classes, count)
    loud = [bytes([scheme]) + rng.bytes(2 * count) for scheme in Scheme]
    loud += [bytes([scheme]) + b"\xff" * 2 * count for scheme in Scheme]
    loud += [bytes([scheme]) + b"\0" * 2 * count for scheme in Scheme]
    tracemalloc.start()
    for data in loud:
        votes_or_error(data, count, classes, labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * (count + classes)


@pytest.mark.parametrize("classes", [50_257, 65_536])
def test_few_bytes_that_ask_for_the_longest_table_take_20_bytes_a_class(classes):
    labels = np.where(np.arange(48) % 7, 3, -1)
    data = bytes.fromhex("02000b07fe06102214fed90024dc86443e97dd4ef11a7e5c71a7a43dacefe405")
    votes_or_error(data, len(labels), classes, labels)
    tracemalloc.start()
    votes_or_error(data, len(labels), classes, labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 2 * classes < peak < 20 * classes
