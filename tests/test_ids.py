"""Names and their order, digests that frame their parts, seeds that do not meet."""

import hashlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.errors import ConfigError
from p2p_tally.ids import NAME_LENGTH, NodeName, derive_seed, digest, in_order, name_key, node_name, ranked_names

names = st.text("abN019._:-", max_size=8).map(lambda rest: "n" + rest) | st.text("0129", min_size=1, max_size=4)


@pytest.mark.parametrize("text", ["a", "7", "node-0", "10.0.0.1:7001", "host.example:80", "A_b", "x" * NAME_LENGTH])
def test_names_that_are_accepted(text: str) -> None:
    assert node_name(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "-a", ".a", "_a", ":1", "a b", "a/b", "a\\b", "../a", "a\n", "é", "a\u0660", "a\x00", "x" * (NAME_LENGTH + 1)],
)
def test_names_that_are_not(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        node_name(text)
    assert str(caught.value).startswith(f"name {text!r}: accepted are 1 to {NAME_LENGTH} ")
    assert "\n" not in str(caught.value)


def test_ranked_names_count_from_zero_and_are_in_order() -> None:
    assert ranked_names(3) == ["node-0", "node-1", "node-2"]
    assert in_order(ranked_names(120)) == ranked_names(120)  # as numbers: node-2 before node-10
    assert all(node_name(name) == name for name in ranked_names(12))


def test_order_by_hand() -> None:
    scrambled = ["node-10", "b", "node-2", "node-1", "10.0.0.2:7001", "a", "9", "10.0.0.10:7001", "node-02"]
    expected = ["9", "10.0.0.2:7001", "10.0.0.10:7001", "a", "b", "node-1", "node-02", "node-2", "node-10"]
    assert in_order([NodeName(name) for name in scrambled]) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(names, unique=True, max_size=12), st.integers(0, 1000))
def test_the_order_does_not_depend_on_arrival(some: list[str], seed: int) -> None:
    shuffled = list(some)
    random.Random(seed).shuffle(shuffled)
    assert in_order([NodeName(name) for name in shuffled]) == in_order([NodeName(name) for name in some])
    assert len({name_key(name) for name in some}) == len(some)  # no two names tie


def test_digest_by_hand() -> None:
    framed = (2).to_bytes(8, "little") + b"ab" + (1).to_bytes(8, "little") + b"c"
    assert digest(b"ab", b"c") == hashlib.sha256(framed).hexdigest()


def test_digests_see_where_a_part_ends() -> None:
    lists = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc"), (), (b"",)]
    assert len({digest(*parts) for parts in lists}) == len(lists)


def test_derived_seed_by_hand() -> None:
    # Every peer draws its probes from this: it never changes.
    first = hashlib.sha256(b"0/probes/1").digest()[:8]
    assert derive_seed(0, "probes", 1) == int.from_bytes(first, "little") >> 1


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**63 - 1), st.lists(names | st.integers(0, 10**6), max_size=3))
def test_derived_seeds_fit_every_generator(seed: int, purpose: list[str | int]) -> None:
    found = derive_seed(seed, *purpose)
    assert 0 <= found < 2**63
    assert found == derive_seed(seed, *purpose)


def test_derived_seeds_do_not_meet() -> None:
    purposes = [("probes", r) for r in range(300)] + [("batches", name) for name in ranked_names(300)]
    purposes += [("initialisation", name) for name in ranked_names(300)] + [("partition",), ("holdout",)]
    seeds = {derive_seed(seed, *purpose) for seed in (0, 1, 2) for purpose in purposes}
    assert len(seeds) == 3 * len(purposes)
