"""The page in a real browser, with a book made up for the purpose."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from browser import chromium, opened

from p2p_tally.page.book import Book
from p2p_tally.page.document import ASSETS
from p2p_tally.page.problems import problem
from p2p_tally.page.votes import view_of, vote_record
from p2p_tally.runner.page.server import PageServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with chromium() as found:
        yield found


def made_up(names: list[str], rounds: int) -> Book:
    """A book of nodes in the middle of a run."""
    book = Book()
    generator = np.random.default_rng(0)
    budget = {"soft_round": 4480.0, "warmup": 5, "merge": 33670.0, "merge_every": 10}
    about = {"method": "tally", "topology": "mesh", "data": "digits", "nodes": len(names), "classes": 10}
    book.describe(about | {"rounds": 2 * rounds, "budget": budget})
    for name in names:
        for round in range(1, rounds + 1):
            accuracy = 90 - 80 / round + float(generator.normal())
            book.add_point(name, [round, accuracy, 112 * round, 33670 * (round // 10), 0])
            if round % 10 == 0:
                book.add_merge(name, round)
        put(book, names, name, rounds)
    votes = {name: generator.integers(3, size=16) for name in names}
    views = [view_of(generator.random(64)) for _ in range(6)]
    book.add_votes(vote_record(rounds, votes, generator.integers(3, size=16), views, 10))
    return book


def put(book: Book, names: list[str], name: str, round: int, **more: Any) -> None:
    links = {peer: ["up", 100 * round, 100 * round] for peer in names if peer != name}
    state = {"state": "playing", "phase": "train", "round": round, "accuracy": 80.0, "missing": [], "links": links}
    book.put_state(name, state | {"pace": 0.5, "still": 0} | more)


def text(page: "Page", selector: str) -> str:
    return page.inner_text(selector)


def test_it_loads_and_shows_everything_in_order(browser: "Browser") -> None:
    names = [f"node-{rank}" for rank in range(4)]
    book = made_up(names, 40)
    book.add_problem(problem(1.0, "warning", "the disk is full", "node-1", round=7, peer="node-2"))
    with PageServer(book) as server, opened(browser, server.url) as page:
        assert text(page, "#verdict-words") == "✓ All is well." and page.title() == "✓ p2p-tally"
        assert text(page, "#verdict-progress").startswith("4 of 4 nodes at round 40 of 80")
        assert page.locator("#graph g").count() == 4 and page.locator("#graph line").count() == 6
        assert page.locator("#nodes tbody tr").count() == 4
        assert page.locator("#accuracy canvas").count() == 1 and page.locator("#bytes canvas").count() == 1
        assert "the last was in round 40" in text(page, "#accuracy-note")
        assert "Soft labels would have sent 157 kB" in text(page, "#bytes-note")
        assert "FedAvg would have sent 135 kB" in text(page, "#bytes-note")
        assert page.locator("#tally .probe").count() == 6 and page.locator("#tally canvas").count() == 6
        assert page.locator("#agreement td").count() == 4 * 4 + 1
        assert re.search(r"node-1 round 7: about node-2: the disk is full$", text(page, "#problems li"))
        headings = page.locator("h2").all_inner_texts()
        assert headings[:3] == ["Is all well?", "Nodes and links", "Each node"]
        assert headings[3:6] == ["Accuracy by round", "Bytes sent by a peer, by round", "The tally at work"]
        assert headings[6:] == ["Who agrees with whom", "What went wrong lately"]


def test_the_tally_counts_the_votes(browser: "Browser") -> None:
    book = made_up(["a", "b", "c"], 3)
    votes = {"a": np.array([7, 1, 10]), "b": np.array([7, 2, 10]), "c": np.array([4, 2, 10])}  # 10: no vote
    book.add_votes(vote_record(9, votes, np.array([7, 1, 1]), [], 10))
    with PageServer(book) as server, opened(browser, server.url) as page:
        first, second, third = page.locator("#tally .probe").all_inner_texts()
        assert re.sub(r"\s+", " ", first).startswith("consensus 7 label 7 ✓ right class 7 2 class 4 1")
        assert re.sub(r"\s+", " ", second).startswith("consensus 2 label 1 ✕ wrong class 2 2 class 1 1")
        assert re.sub(r"\s+", " ", third).startswith("consensus none label 1 ✕ wrong who voted what")
        page.select_option("#agreement-class", "7")  # the first probe alone: a and b agree, c with nobody
        cells = page.locator("#agreement tbody td").all_inner_texts()
        assert cells == ["", "100", "0", "100", "", "0", "0", "0", ""]


def test_it_follows_what_happens(browser: "Browser") -> None:
    names = ["node-0", "node-1"]
    book = made_up(names, 10)
    serving = ExitStack()
    server = serving.enter_context(PageServer(book))
    with serving, opened(browser, server.url) as page:
        server.call(put, book, names, "node-0", 11)
        page.wait_for_function("() => document.querySelector('#nodes tbody tr').cells[2].textContent === '11'")
        server.call(lambda: put(book, names, "node-1", 10, state="unreachable", why="Connection refused"))
        page.wait_for_selector("#verdict.bad")
        assert text(page, "#concerns") == "node-1 does not answer: Connection refused"
        assert page.locator("#graph g.unreachable").count() == 1 and page.locator("#graph line.down").count() == 1
        server.call(put, book, names, "node-1", 12)
        page.wait_for_selector("#verdict.well")
        server.call(book.forget, "node-0")
        page.wait_for_function("() => document.querySelectorAll('#nodes tbody tr').length === 1")
        serving.close()
        page.wait_for_function("() => document.getElementById('contact').textContent.includes('how it ended')")
        assert page.locator("#contact.lost").count() == 0


def test_what_a_reader_has_chosen_stays(browser: "Browser") -> None:
    """While the page goes on: the part of a curve, the open lists, and where the keyboard is."""
    names = ["node-0", "node-1"]
    book = made_up(names, 20)
    with PageServer(book) as server, opened(browser, server.url) as page:
        page.evaluate("views.accuracy.chart.plot.setScale('x', {min: 5, max: 9})")
        page.locator("#tally summary").nth(1).focus()
        page.keyboard.press("Enter")
        server.call(book.add_point, "node-0", [21, 90.0, 1, 0, 0])
        server.call(book.add_votes, vote_record(21, {"node-0": np.arange(6), "node-1": np.arange(6)}, None, [], 10))
        page.wait_for_selector("#tally[data-round='21']")
        scale = page.evaluate("(({min, max}) => [min, max])(views.accuracy.chart.plot.scales.x)")
        assert scale == [5, 9] and page.evaluate("views.bytes.chart.plot.scales.x.max") == 21
        open_lists = "[...document.querySelectorAll('#tally details')].map(one => one.open)"
        assert page.evaluate(open_lists) == [True, False, True, True, True, True]
        focused = "[...document.querySelectorAll('#tally summary')].indexOf(document.activeElement)"
        assert page.evaluate(focused) == 1


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "'\"><svg onload=alert(3)>",
    "__proto__",
]


def test_hostile_names_and_lines_are_text(browser: "Browser") -> None:
    book = made_up(HOSTILE, 5)
    for evil in HOSTILE:
        book.add_problem(problem(1.0, "error", f"{evil} javascript:alert(4)", evil, peer=evil, round=3))
        put(book, HOSTILE, evil, 6, missing=[evil], state="unreachable", why=evil)
    about = {"method": HOSTILE[0], "topology": HOSTILE[1], "data": HOSTILE[2], "own": HOSTILE[0]}
    book.describe(book.about | about)
    book.add_votes(vote_record(9, {name: np.array([1]) for name in HOSTILE}, None, [{"text": HOSTILE[0]}], 10))
    with PageServer(book) as server, opened(browser, server.url) as page:
        assert page.locator("img, #problems script, #nodes svg, main script").count() == 0
        assert page.locator("script").count() == 1
        for evil in HOSTILE:
            assert evil in text(page, "#problems") and evil in text(page, "#nodes") and evil in text(page, "#tally")
            assert evil in text(page, "#concerns")
        assert text(page, "#tally pre") == HOSTILE[0]
        assert HOSTILE[1] in text(page, "#about") and HOSTILE[0] in page.title()


def test_memory_in_the_browser_is_bounded_too(browser: "Browser") -> None:
    book = made_up(["a", "b"], 3000)
    with PageServer(book) as server, opened(browser, server.url) as page:
        for first in range(3001, 9001, 2000):
            for round in range(first, first + 2000):
                server.call(book.add_point, "a", [round, 90.0, round, 0, 0])
                server.call(book.add_votes, {"round": round, "votes": {"a": [1]}, "labels": None, "views": []})
            page.wait_for_function(f"() => store.nodes.get('a').points.rows.at(-1)[0] === {first + 1999}")
        assert page.evaluate("[store.nodes.get('a').points.rows.length <= 512, store.votes.length]") == [True, 24]
        gaps = (
            "store.nodes.get('a').points.rows.map(([round], place, rows) => place ? round - rows[place - 1][0] : round)"
        )
        assert page.evaluate(f"Math.max(...{gaps})") <= 4 * 9000 / 512  # the whole curve is there


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_a_keyboard_and_a_screen_reader(browser: "Browser", scheme: str) -> None:
    book = made_up([f"a-node-with-a-rather-long-name-{rank}" for rank in range(12)], 20)
    view = {"width": 360, "height": 740}
    with PageServer(book) as server, opened(browser, server.url, viewport=view, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        unnamed = "[...document.querySelectorAll('[role=img], section, select, progress')].filter(one => !("
        unnamed += "one.getAttribute('aria-label') || one.getAttribute('aria-labelledby') || one.closest('label')))"
        assert page.evaluate(f"{unnamed}.length") == 0
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
        assert reached >= {"skip", "agreement-class", "agreement"}
        assert page.get_attribute("#verdict-words", "aria-live") == "polite"


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_its_background(scheme: int) -> None:
    """Of every colour that text has: a contrast of at least 4.5, as the guidelines for accessibility ask."""
    blocks = re.findall(r":root \{(.*?)\}", (ASSETS / "page.css").read_text(), flags=re.S)
    colours = dict(re.findall(r"--(\w+): (#\w{6})", blocks[scheme]))
    for name in ("text", "soft", "blue", "red", "green", "amber", "grey"):
        for back in ("card", "back"):
            high, low = sorted((luminance(colours[name]), luminance(colours[back])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (name, back)
