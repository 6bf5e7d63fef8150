"""How fast the live page is in a browser: a run of 64 nodes and 3,000 rounds, from the request to everything drawn.

It also says what the server does for that: seconds to write the first message down, its bytes, and the memory of the
book. On a machine that is busy with other things, look at the processor seconds of the browser: they are what the load
would take on a quiet one, and a little more, as the browser uses two cores.

    python scripts/bench/page.py [--nodes 64] [--rounds 3000] [--repeat 5]

It needs Debian's chromium (or another, named in the variable CHROMIUM) and the Python package playwright.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import time
import tracemalloc
from typing import Any

import numpy as np

try:
    import psutil
    from playwright.sync_api import Browser, sync_playwright
except ModuleNotFoundError as error:
    sys.exit(f"page.py needs {error.name}: scripts/setup dev installs it")

from p2p_tally.page.book import Book
from p2p_tally.page.votes import KEPT_ROUNDS, view_of, vote_record
from p2p_tally.runner.page.server import PageServer

WANTED = 1.0  # seconds

# From the start of the navigation until all that the first message brought is drawn.
LOADED = """() => new Promise(done => {
  const look = () => document.body.dataset.serial === undefined
    ? setTimeout(look, 1) : requestAnimationFrame(() => done(performance.now()));
  look();
})"""


def made_up(nodes: int, rounds: int) -> Book:
    """A mesh in the last round but one, with votes of the last rounds."""
    book, generator = Book(), np.random.default_rng(0)
    names = [f"node-{rank}" for rank in range(nodes)]
    budget = {"soft_round": 640.0 * (nodes - 1), "warmup": 60, "merge": 37880.0, "merge_every": 50}
    about = {"method": "tally", "topology": "mesh", "data": "digits", "classes": 10, "nodes": nodes}
    book.describe(about | {"rounds": rounds + 1, "budget": budget})
    for round in range(1, rounds + 1):
        for name in names:
            accuracy = round_off(90 - 80 / (1 + round / 50) + float(generator.normal()))
            book.add_point(name, [round, accuracy, 16 * (nodes - 1) * round, 37880 * (round // 50), 0])
            if round % 50 == 0:
                book.add_merge(name, round)
    for name in names:
        links = {peer: ["up", 40 * rounds, 40 * rounds] for peer in names if peer != name}
        state: dict[str, Any] = {"state": "playing", "phase": "train", "round": rounds, "accuracy": 90.0}
        book.put_state(name, state | {"missing": [], "links": links, "pace": 0.1, "still": 0})
    for round in range(rounds - KEPT_ROUNDS, rounds):
        votes = {name: generator.integers(10, size=32) for name in names}
        views = [view_of(generator.random((3, 32, 32))) for _ in range(6)]
        book.add_votes(vote_record(round, votes, generator.integers(10, size=32), views, 10))
    return book


def round_off(value: float) -> float:
    return float(f"{value:.2f}")


def load(browser: Browser, url: str) -> tuple[float, float]:
    """Seconds, and processor seconds of the browser."""
    page = browser.new_page(viewport={"width": 1240, "height": 900})
    before = busy_seconds()
    page.goto(url)
    seconds = page.evaluate(LOADED) / 1000
    busy = busy_seconds() - before
    page.close()
    return float(seconds), busy


def busy_seconds() -> float:
    """Of all processes that this one has started."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("scripts/bench/page.py: no chromium found; install Debian's, or name one in CHROMIUM")
    tracemalloc.start()
    book = made_up(arguments.nodes, arguments.rounds)
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    began = time.process_time()
    size = len(json.dumps(book.whole(), separators=(",", ":")))
    written = time.process_time() - began
    with sync_playwright() as playwright, PageServer(book) as server:
        browser = playwright.chromium.launch(executable_path=chromium)
        load(browser, server.url)  # the browser itself starts up
        loads = [load(browser, server.url) for _ in range(arguments.repeat)]
        browser.close()
    print(
        f"{arguments.nodes} nodes, {arguments.rounds:,} rounds: the book takes {memory / 1e6:.1f} MB, "
        f"its message {size / 1e6:.2f} MB and {1e3 * written:.0f} ms to write"
    )
    for what, values in (("page load", [pair[0] for pair in loads]), ("processor time", [pair[1] for pair in loads])):
        each = ", ".join(f"{value:.2f}" for value in values)
        print(f"{what}: median {statistics.median(values):.2f} s ({each}; at most {WANTED:.2f} wanted)")


if __name__ == "__main__":
    main()
