"""One page for many nodes: what comes and goes at their admin addresses."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from p2p_tally.errors import MessageError
from p2p_tally.page.book import Book
from p2p_tally.page.hub import Hub
from p2p_tally.page.site import add_page, make_site
from p2p_tally.runner.page import gather
from p2p_tally.runner.page.gather import Gatherer, events


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "RETRY_SECONDS", 0.02)


def state(round: int, kind: str = "playing") -> dict[str, Any]:
    return {"state": kind, "round": round, "accuracy": None, "missing": [], "links": {}}


class FakeNode:
    """The admin address of a node that does what a test says."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.book = Book()
        self.book.describe({"own": name, "rounds": 10})
        self.book.put_state(name, state(1))
        self.port = 0

    @asynccontextmanager
    async def up(self, polite: bool = True) -> AsyncIterator[str]:
        """`polite`: it says goodbye to its viewers."""
        hub = Hub(self.book, lambda: None, pause=0.02)
        app = make_site(loopback=True)
        add_page(app, hub)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        self.port = runner.addresses[0][1]
        try:
            yield f"127.0.0.1:{self.port}"
        finally:
            if polite:
                await hub.close()
            await runner.cleanup()


@asynccontextmanager
async def gathering() -> AsyncIterator[tuple[Gatherer, Book]]:
    book = Book()
    gatherer = Gatherer(book, clock=lambda: 5.0)
    async with asyncio.timeout(30):
        try:
            yield gatherer, book
        finally:
            await gatherer.stop()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def test_nodes_are_gathered_and_followed() -> None:
    nodes = [FakeNode("node-0"), FakeNode("node-1")]
    nodes[0].book.put_state("node-1", state(99))  # what it thinks of another node does not count
    async with nodes[0].up() as first, nodes[1].up() as second, gathering() as (gatherer, book):
        gatherer.follow(first)
        gatherer.follow(second, "node-1")
        await until(lambda: book.state_of("node-0") and book.state_of("node-1"))
        assert book.about == {"rounds": 10}
        nodes[1].book.put_state("node-1", state(2))
        nodes[1].book.add_point("node-1", [2, 50.0, 1, 2, 3])
        await until(lambda: book.state_of("node-1")["round"] == 2)
        assert book.whole()["points"] == {"node-1": [[2, 50.0, 1, 2, 3]]}
        assert sorted(book.whole()["present"]) == ["node-0", "node-1"]  # and no address


async def test_a_node_that_goes_without_a_word_is_not_reachable_until_it_comes_back() -> None:
    node = FakeNode("node-0")
    node.book.add_point("node-0", [1, 10.0, 0, 0, 0])
    async with gathering() as (gatherer, book):
        async with node.up(polite=False) as address:
            gatherer.follow(address, "node-0")
            await until(lambda: book.state_of("node-0"))
        await until(lambda: book.state_of("node-0")["state"] == "unreachable")
        assert book.whole()["verdict"]["level"] == "bad"
        [entry] = book.whole()["problems"]
        assert (entry["node"], entry["time"]) == ("node-0", 5.0)
        again = FakeNode("node-0")
        again.port = node.port
        again.book.add_point("node-0", [3, 30.0, 0, 0, 0])
        async with again.up():
            await until(lambda: book.state_of("node-0")["state"] == "playing")
            # What it did before it was started again stays.
            await until(lambda: len(book.whole()["points"]["node-0"]) == 2)


async def test_a_node_that_has_ended_is_not_called_lost() -> None:
    node = FakeNode("node-0")
    async with gathering() as (gatherer, book):
        async with node.up() as address:
            gatherer.follow(address, "node-0")
            await until(lambda: book.state_of("node-0"))
            node.book.put_state("node-0", state(10, "done"))
        await gatherer.close()
    assert book.state_of("node-0")["state"] == "done"
    assert book.whole()["problems"] == [] and book.whole()["verdict"]["level"] == "well"


async def test_an_address_where_nobody_is() -> None:
    async with gathering() as (gatherer, book):
        gatherer.follow("127.0.0.1:1")
        await until(lambda: book.state_of("127.0.0.1:1")["state"] == "unreachable")
        assert book.state_of("127.0.0.1:1")["why"] == "Connection refused"


@asynccontextmanager
async def answering(body: bytes) -> AsyncIterator[str]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="text/event-stream")

    app = web.Application()
    app.router.add_get("/events", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    "body",
    [
        b"data: not json\n\n",
        b"data: []\n\n",
        b'data: {"nodes": 3}\n\n',
        b'data: {"about": {"own": 3}}\n\n',
        b'data: {"about": {"own": "node-1"}}\n\n',  # another node's name
        b"data: " + json.dumps({"points": {"node-0": [["1"]]}}).encode() + b"\n\n",
    ],
)
async def test_one_that_sends_nonsense_harms_nobody_else(body: bytes) -> None:
    good = FakeNode("node-1")
    async with good.up() as fine, answering(body) as bad, gathering() as (gatherer, book):
        gatherer.follow(fine, "node-1")
        gatherer.follow(bad, "node-0")
        await until(lambda: book.state_of("node-0").get("state") == "unreachable" and book.state_of("node-1"))
        assert book.state_of("node-0")["why"].startswith("sent what is no page: ")
        assert book.state_of("node-1")["state"] == "playing"


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_events_are_read_however_they_are_cut() -> None:
    text = b'retry: 1000\ndata: {"a": 1}\n\n: still here\n\nevent: end\ndata: {}\n\n'
    wanted = [("message", b'{"a": 1}'), ("end", b"{}")]
    assert [event async for event in events(pieces(text))] == wanted
    assert [event async for event in events(pieces(*(bytes([byte]) for byte in text)))] == wanted


async def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "MOST_BYTES", 100)
    with pytest.raises(MessageError, match="longer than"):
        _ = [event async for event in events(pieces(b"x" * 60, b"x" * 60))]
