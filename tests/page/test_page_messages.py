"""A process that sends nonsense does not get into a book."""

from typing import Any

import pytest

from p2p_tally.page.messages import MessageError, check_message, own_name

STATE = {"state": "playing", "round": 1, "accuracy": 1.5, "missing": ["b"], "links": {"b": ["up", 1, 2]}}
RECORD = {"round": 1, "votes": {"a": [1, 2]}, "labels": [1, -1], "views": [None, {"text": "x"}]}
GOOD = {
    "about": {"own": "a"},
    "nodes": {"a": STATE},
    "points": {"a": [[1, None, 2, 3, 4]]},
    "merges": {"a": [[1]]},
    "votes": [RECORD],
    "problems": [{"time": 1.5, "level": "warning", "message": "m", "node": None}],
}


def test_a_good_one_passes() -> None:
    assert check_message(GOOD) is GOOD
    assert own_name(GOOD) == "a"
    assert own_name({}) is None


BAD: list[Any] = [
    [],
    "text",
    {"about": 3},
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
    {"problems": [{"time": "now", "level": "warning", "message": "m"}]},
    {"problems": [{"time": 1, "level": "warning", "message": 3}]},
]


@pytest.mark.parametrize("message", BAD, ids=lambda message: str(message)[:60])
def test_nonsense_is_refused(message: Any) -> None:
    with pytest.raises(MessageError):
        check_message(message)


@pytest.mark.parametrize("own", [3, "", "a" * 65, ["a"]])
def test_a_name_is_a_name(own: Any) -> None:
    with pytest.raises(MessageError):
        own_name({"about": {"own": own}})
