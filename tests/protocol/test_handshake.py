"""Whether two nodes belong together."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import HandshakeError
from p2p_tally.ids import in_order
from p2p_tally.protocol.frames import VERSION
from p2p_tally.protocol.handshake import agreed_fields, check_hello, fields_digest
from p2p_tally.protocol.messages import Hello

FIELDS = agreed_fields({"method": "tally", "classes": 10, "seed": 0, "alpha": 0.5, "probe set": "ab12"})


def hello(name: str = "b", fields: tuple[tuple[str, str], ...] = FIELDS, **changes: Any) -> Hello:
    own = Hello(VERSION, name, 0, False, (0,), (), fields_digest(fields), fields)
    return replace(own, **changes)


OWN = hello("a")


def refusal(theirs: Hello, own: Hello = OWN) -> HandshakeError:
    with pytest.raises(HandshakeError) as caught:
        check_hello(own, theirs, ["b", "c"])
    return caught.value


def test_fields_are_texts_in_their_order() -> None:
    assert FIELDS == (
        ("method", "tally"), ("classes", "10"), ("seed", "0"), ("alpha", "0.5"), ("probe set", "ab12"),
    )  # fmt: skip


def test_the_same_federation_is_welcome() -> None:
    check_hello(OWN, hello("b"), ["b", "c"])
    check_hello(OWN, hello("c", round=7, running=True, checkpoints=(0, 5), neighbours=("x",)), ["b", "c"])


@pytest.mark.parametrize(
    ("theirs", "reason", "text"),
    [
        (hello(version=VERSION + 1), "version", f"protocol version is {VERSION} here, {VERSION + 1} there"),
        (hello("a"), "name", "name is a at both ends"),
        (hello("mallory"), "stranger", "mallory is no neighbour of a"),
        (hello(digest="0" * 64), "digest", "the digest is not that of the fields"),
        (hello(fields=FIELDS[::-1]), "mismatch", "the fields stand in another order"),
    ],
)
def test_who_is_refused_and_why(theirs: Hello, reason: str, text: str) -> None:
    error = refusal(theirs)
    assert error.reason == reason
    assert str(error) == text


def test_the_first_reason_is_the_one_that_is_told() -> None:
    """A node of another version is told so, whatever else differs."""
    other = hello("mallory", version=9, digest="x")
    assert refusal(other).reason == "version"
    assert refusal(replace(other, version=VERSION)).reason == "stranger"
    assert refusal(replace(other, version=VERSION, name="b")).reason == "digest"


@given(st.sets(st.integers(0, len(FIELDS) - 1), min_size=1), st.text(min_size=1, max_size=20))
def test_the_first_field_that_differs_is_named_with_both_values(differing: set[int], value: str) -> None:
    fields = tuple(
        (name, said + value if at in differing else said) for at, (name, said) in enumerate(FIELDS)
    )  # fmt: skip
    name, here = FIELDS[min(differing)]
    error = refusal(hello(fields=fields))
    assert error.reason == "mismatch"
    assert str(error) == f"{name} is {here} here, {here}{value} there"


def test_both_sides_name_the_same_field() -> None:
    ours, theirs = OWN, hello(fields=(("method", "fedavg"), *FIELDS[1:3], ("alpha", "0.9"), FIELDS[4]))
    assert str(refusal(theirs)) == "method is tally here, fedavg there"
    with pytest.raises(HandshakeError, match="method is fedavg here, tally there"):
        check_hello(theirs, ours, ["a"])


def test_a_field_that_one_side_lacks() -> None:
    assert str(refusal(hello(fields=FIELDS[:-1]))) == "probe set is ab12 here, not set there"
    assert str(refusal(hello(fields=(*FIELDS, ("extra", "1"))))) == "extra is not set here, 1 there"
    assert str(refusal(hello(fields=()))) == "method is tally here, not set there"
    assert refusal(hello(fields=(*FIELDS, FIELDS[0]))).reason == "mismatch"  # a field twice


def test_a_refusal_is_short_whatever_the_peer_says() -> None:
    assert len(str(refusal(hello(fields=(("method", "x" * 1000), *FIELDS[1:]))))) < 400
    assert len(str(refusal(hello(fields=(*FIELDS, ("y" * 1000, "x" * 1000)))))) < 400
    assert len(str(refusal(hello("z" * 1000)))) < 200


def test_the_digest_sees_every_field() -> None:
    lists = [FIELDS, FIELDS[::-1], FIELDS[:-1], (), (("ab", "c"),), (("a", "bc"),), (("a", "b"), ("c", ""))]
    assert len({fields_digest(fields) for fields in lists}) == len(lists)


@pytest.mark.parametrize("name", ["²", "a²", "", "٣", "1" * 1024, "a b", "\n"])
def test_whatever_names_a_peer_speaks_of_have_an_order(name: str) -> None:
    """A hello lists its sender's neighbours; a daemon that knows only its own puts all of them in order."""
    said = hello(neighbours=(name, "b", "a1")).neighbours
    assert sorted(in_order([*said])) == sorted(said)


def test_a_round_that_the_run_does_not_have_is_refused() -> None:
    fields = (*FIELDS, ("rounds", "40"))
    own = hello("a", fields=fields)
    check_hello(own, hello("b", fields=fields, round=40), ["b"])
    with pytest.raises(HandshakeError, match="round 41 of 40"):
        check_hello(own, hello("b", fields=fields, round=41), ["b"])
