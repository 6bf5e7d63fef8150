"""A process that sends nonsense does not get into a book."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import MessageError
from p2p_tally.page.book import Book
from p2p_tally.page.messages import read_message

STATE = {
    "state": "playing",
    "round": 1,
    "accuracy": 1.5,
    "missing": ["b"],
    "links": {"b": ["up", 1, 2]},
    "pace": 0.5,
    "still": 0,
}
PICTURE = {"width": 2, "height": 1, "channels": 3, "pixels": "AAECAwQF"}
RECORD = {"round": 1, "votes": {"a": [1, 2]}, "labels": [1, -1], "views": [None, {"text": "x"}, PICTURE]}
GOOD = {
    "about": {"own": "a", "rounds": 9, "budget": {"soft_round": 1.5, "warmup": 1, "merge": 2.5, "merge_every": 50}},
    "nodes": {"a": STATE},
    "points": {"a": [[1, None, 2, 3, 4]]},
    "merges": {"a": [[1]]},
    "votes": [RECORD],
    "problems": [{"time": 1.5, "level": "warning", "message": "m", "node": None}],
}


def test_a_good_one_passes() -> None:
    assert read_message(GOOD) == GOOD
    assert read_message({}) == {}


def test_what_is_not_known_here_is_left_out() -> None:
    assert read_message({"later": 1, "nodes": {"a": STATE | {"later": {}}}}) == {"nodes": {"a": STATE}}


BAD: list[Any] = [
    [],
    "text",
    {"about": 3},
    *({"about": {"own": own}} for own in (3, "", "a" * 65, ["a"])),
    {"about": {"rounds": "9"}},
    {"about": {"budget": {"soft_round": 1, "warmup": 1, "merge": 1, "merge_every": 0}}},
    {"nodes": []},
    {"nodes": {"": STATE}},
    {"nodes": {"a" * 65: STATE}},
    {"nodes": {"a": 3}},
    {"nodes": {"a": STATE | {"state": "<b>"}}},
    {"nodes": {"a": STATE | {"round": "1"}}},
    {"nodes": {"a": STATE | {"round": True}}},
    {"nodes": {"a": STATE | {"accuracy": "x"}}},
    {"nodes": {"a": STATE | {"missing": [1]}}},
    {"nodes": {"a": STATE | {"links": {"b": ["up", 1]}}}},
    {"nodes": {"a": STATE | {"links": {"b": ["up", "1", 2]}}}},
    {"nodes": {"a": STATE | {"why": 3}}},
    {"nodes": {"a": STATE | {"round": -1}}},
    {"nodes": {"a": STATE | {"round": 10**400}}},
    {"nodes": {"a": STATE | {"pace": float("inf")}}},
    {"nodes": {"a": STATE | {"still": float("nan")}}},
    {"points": {"a": [[1, 2]]}},
    {"points": {"a": [["1", 2, 3, 4, 5]]}},
    {"points": {"a": [[1, 2, 3, 4, 5]] * 5000}},
    {"merges": {"a": 3}},
    {"votes": {}},
    {"votes": [3]},
    {"votes": [RECORD | {"votes": {"a": ["x"]}}]},
    {"votes": [RECORD | {"labels": ["x"]}]},
    {"votes": [RECORD | {"views": [{"pixels": 3}]}]},
    {"votes": [RECORD | {"views": ["x"]}]},
    {"votes": [RECORD | {"views": [PICTURE | {"width": 10**6}]}]},
    {"votes": [RECORD | {"views": [PICTURE | {"height": 0}]}]},
    {"votes": [RECORD | {"views": [PICTURE | {"width": 3}]}]},
    {"votes": [RECORD | {"views": [PICTURE | {"pixels": "no base64"}]}]},
    {"votes": [RECORD | {"views": [{"text": "x" * 1000}]}]},
    {"votes": [RECORD | {"votes": {"a": [1] * 1000}}]},
    {"problems": [{"time": "now", "level": "warning", "message": "m"}]},
    {"problems": [{"time": 1, "level": "warning", "message": 3}]},
    {"problems": [{"time": 1, "level": "warning", "message": "m" * 1000}]},
]


@pytest.mark.parametrize("message", BAD, ids=lambda message: str(message)[:60])
def test_nonsense_is_refused(message: Any) -> None:
    with pytest.raises(MessageError):
        read_message(message)


@pytest.mark.parametrize("number", [10**400, -(10**400), 2**53 + 1, float("inf"), float("nan"), 1e308])
def test_a_number_that_no_browser_can_hold_is_refused(number: float) -> None:
    with pytest.raises(MessageError, match="no number"):
        read_message({"nodes": {"a": STATE | {"accuracy": number}}})


def test_the_error_says_where() -> None:
    with pytest.raises(MessageError, match=r"^nodes: a: round: 'x' is no whole number"):
        read_message({"nodes": {"a": STATE | {"round": "x"}}})


def places(value: Any) -> Iterator[Callable[[Any], None]]:
    """A way to put something else into each place of a message."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield lambda other, key=key: value.__setitem__(key, other)  # type: ignore[misc]
        yield from places(value[key])


numbers = st.one_of(st.integers(), st.floats(), st.sampled_from([2**53, -(2**53), 10**400, 1e308]))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=4,
)


@given(st.integers(0, 10**6), values)
def test_whatever_passes_can_be_shown(place: int, other: Any) -> None:
    """Something else in one place of a good message: it is refused, or the book can judge it and write it down."""
    message = deepcopy(GOOD)
    ways = list(places(message))
    ways[place % len(ways)](other)
    try:
        read = read_message(message)
    except MessageError:
        return
    book = Book()
    book.describe(read.get("about", {}))
    book.absorb(read, "a")
    assert json.dumps(book.whole(), allow_nan=False)
