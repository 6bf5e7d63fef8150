"""The book of a page: what is new can be asked for, and taking it over gives the same book."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.page.book import KEPT_PROBLEMS, Book
from p2p_tally.page.messages import read_message


def state(round: int) -> dict[str, Any]:
    return {"state": "playing", "round": round, "accuracy": None, "missing": [], "links": {"b": ["up", round, 0]}}


def record(round: int, name: str) -> dict[str, Any]:
    return {"round": round, "votes": {name: [1]}, "labels": None, "views": []}


def problem(time: int) -> dict[str, Any]:
    return {"time": time, "level": "warning", "node": None, "message": "m"}


names = st.sampled_from(["a", "b", "c"])
rounds = st.integers(1, 40)
changes = st.one_of(
    st.tuples(st.just("put_state"), names, rounds.map(state)),
    st.tuples(st.just("add_point"), names, rounds.map(lambda round: [round, 1.5, round, 0, 0])),
    st.tuples(st.just("add_merge"), names, rounds),
    st.tuples(st.just("describe"), rounds.map(lambda round: {"rounds": round})),
    st.tuples(st.just("add_votes"), st.builds(record, rounds, names)),
    st.tuples(st.just("add_problem"), rounds.map(problem)),
    st.just(("look",)),
)


def content(book: Book) -> Any:
    message = book.whole()
    return {key: value for key, value in message.items() if key not in ("serial", "present", "problems")}


@given(st.lists(changes, max_size=60), st.booleans())
def test_a_viewer_that_takes_all_news_has_the_book(steps: list[tuple[Any, ...]], twice: bool) -> None:
    """However it is cut into messages, and also if each is taken twice."""
    book, viewer, seen = Book(), Book(), 0
    for name, *arguments in [*steps, ("look",)]:
        if name != "look":
            getattr(book, name)(*arguments)
            continue
        news = json.loads(json.dumps(book.since(seen)))
        for _ in range(1 + twice):
            if news:
                for who in ("a", "b", "c"):
                    viewer.absorb(read_message(news), who)
        if "about" in news:
            viewer.describe(news["about"])
        seen = book.serial
    if book.serial:
        mine, theirs = content(book), content(viewer)
        assert mine == theirs


def test_nothing_new_is_empty() -> None:
    book = Book()
    assert book.since(0) == {}
    book.put_state("a", state(1))
    mark = book.serial
    book.put_state("a", state(1))
    assert book.since(mark) == {}
    book.put_state("a", state(2))
    assert book.since(mark)["nodes"] == {"a": state(2)}


def test_a_node_that_is_forgotten_is_no_longer_present() -> None:
    book = Book()
    book.put_state("a", state(1))
    book.put_state("b", state(1))
    mark = book.serial
    book.forget("a")
    assert book.since(mark)["present"] == ["b"]
    assert "a" not in book.whole()["nodes"]


def test_a_node_tells_of_itself_only() -> None:
    book, other = Book(), Book()
    for name in ("a", "b"):
        book.put_state(name, state(1))
        book.add_point(name, [1, 1.0, 0, 0, 0])
        book.add_merge(name, 1)
    book.add_problem(problem(1) | {"node": "a"})
    other.absorb(book.whole(), "b")
    assert [entry["node"] for entry in other.whole()["problems"]] == ["b"]
    assert other.whole()["nodes"].keys() == other.whole()["points"].keys() == other.whole()["merges"].keys() == {"b"}


def test_problems_are_the_newest() -> None:
    book = Book()
    for number in range(300):
        book.add_problem({"time": number})
    assert [entry["time"] for entry in book.whole()["problems"]] == list(range(300 - KEPT_PROBLEMS, 300))
