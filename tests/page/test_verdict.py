"""The words that say whether all is well."""

from typing import Any

import pytest

from p2p_tally.page.verdict import judge, stands_still


def state(**more: Any) -> dict[str, Any]:
    return {"state": "playing", "round": 5, "accuracy": 50.0, "missing": [], "pace": None, "still": 0, **more}


def test_nobody() -> None:
    assert judge({}, 10).words == "No node has been heard yet."


def test_all_is_well() -> None:
    verdict = judge({"a": state(pace=60.0), "b": state(accuracy=60.0)}, 10)
    assert (verdict.level, verdict.concerns) == ("well", [])
    assert verdict.words == "All is well."
    assert verdict.progress == "2 of 2 nodes at round 5 of 10, accuracy 55.0 % on average, about 5 min left."


def test_the_words_stay_the_same_while_the_rounds_go_by() -> None:
    """They are read out by a screen reader whenever they change."""
    for more in ({}, {"still": 40}, {"missing": ["z"]}):
        first, later = judge({"a": state(**more)}, 10), judge({"a": state(**more, round=6, accuracy=51.0)}, 10)
        assert first.words == later.words and first.progress != later.progress


def test_before_the_first_round() -> None:
    states = {"a": state(state="waiting", round=0, missing=["b"]), "b": state(state="waiting", round=0, missing=["a"])}
    assert judge(states, 10).words == "Not all nodes are there yet."


def test_all_pause() -> None:
    states = {name: state(state="paused", missing=["c"]) for name in ("a", "b")}
    assert judge(states, 10).words == "Paused: too few nodes are there."
    assert judge(states, 10).progress == "2 of 2 nodes at round 5 of 10, accuracy 50.0 % on average."


def test_the_words_name_who() -> None:
    lost = state(state="unreachable")
    assert judge({"a": lost, "b": state()}, 10).words == "a does not answer."
    assert judge({"a": lost, "b": lost, "c": state(missing=["d"])}, 10).words == "a, b do not answer."
    assert judge({"a": state(state="stopped"), "c": state()}, 10).words == "Look at a."


def test_the_end() -> None:
    verdict = judge({"a": state(state="done", round=10), "b": state(state="done", round=10)}, 10)
    assert (verdict.level, verdict.words) == ("well", "Finished.")
    assert verdict.progress == "2 nodes, 10 rounds, accuracy 50.0 % on average."


@pytest.mark.parametrize(
    ("more", "level", "why"),
    [
        ({"state": "unreachable", "why": "Connection refused"}, "bad", "does not answer: Connection refused"),
        ({"state": "unreachable"}, "bad", "does not answer: no contact"),
        ({"state": "stopped", "round": 7}, "watch", "stopped after round 7"),
        ({"state": "waiting", "missing": ["b", "c"]}, "watch", "waits for b, c"),
        ({"state": "paused", "missing": ["b"]}, "watch", "pauses until more are there: b missing"),
        ({"missing": ["p1", "p2", "p3", "p4", "p5", "p6"]}, "watch", "has no answer from p1, p2, p3, p4 and 2 more"),
        ({"still": 200}, "watch", "has been in round 6 for 3 min"),
    ],
)
def test_who_and_why(more: dict[str, Any], level: str, why: str) -> None:
    verdict = judge({"a": state(**more), "z": state()}, 10)
    assert (verdict.level, verdict.concerns) == (level, [{"node": "a", "why": why}])


def test_the_lost_node_is_named_once() -> None:
    """Its neighbours miss it, and that is no other trouble."""
    states = {"a": state(state="unreachable", why="gone"), "b": state(missing=["a"]), "c": state(missing=["a", "b"])}
    verdict = judge(states, 10)
    assert verdict.level == "bad"
    assert [one["node"] for one in verdict.concerns] == ["a", "c"]
    assert verdict.concerns[1]["why"] == "has no answer from b"


def test_a_finished_node_misses_nobody() -> None:
    assert judge({"a": state(state="done", missing=["b"]), "b": state(state="done")}, 5).level == "well"


@pytest.mark.parametrize(
    ("waited", "usual", "still"),
    [(29, 0.1, False), (31, 0.1, True), (31, 5.0, False), (51, 5.0, True), (99, None, False)],
)
def test_standing_still_is_far_longer_than_usual(waited: float, usual: float | None, still: bool) -> None:
    assert stands_still(waited, usual) is still
