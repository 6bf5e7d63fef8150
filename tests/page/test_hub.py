"""The stream of a page: everything at first, then what is new; nobody looking costs nothing."""

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from serving import served, viewer

from p2p_tally.page import hub as hub_module
from p2p_tally.page.book import Book
from p2p_tally.page.hub import Hub


def state(round: int) -> dict[str, Any]:
    return {"state": "playing", "round": round, "accuracy": float("nan"), "missing": [], "links": {}}


class Counter:
    """A source that has one round more each time it is asked."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.asked = 0

    def __call__(self) -> None:
        self.asked += 1
        self.book.put_state("a", state(self.asked))


@pytest.fixture
async def counted() -> tuple[Hub, Counter]:
    book = Book()
    counter = Counter(book)
    return Hub(book, counter, pause=0.02), counter


async def test_a_viewer_gets_everything_and_then_what_is_new(counted: tuple[Hub, Counter]) -> None:
    hub, counter = counted
    counter.book.add_problem({"time": 1})
    async with asyncio.timeout(20), served(hub) as address, viewer(address) as messages:
        first = await anext(messages)
        assert first is not None
        assert first["whole"] and first["problems"] == [{"time": 1}]
        assert first["nodes"]["a"] == state(1) | {"accuracy": None}  # JSON has no NaN
        for round in (2, 3, 4):
            news = await anext(messages)
            assert news is not None
            assert "whole" not in news and news["nodes"]["a"]["round"] == round and news["problems"] == []


async def test_with_nobody_looking_nothing_is_asked(counted: tuple[Hub, Counter]) -> None:
    hub, _ = counted
    async with asyncio.timeout(20), served(hub) as address:
        async with viewer(address) as messages:
            await anext(messages)
            await anext(messages)
        while any(task.get_name() == "page" for task in asyncio.all_tasks()):  # what sends messages ends
            await asyncio.sleep(0.01)
        assert hub.viewers == 0
        async with viewer(address) as messages:
            again = await anext(messages)
            assert again is not None and again["whole"]


async def test_a_fault_of_the_page_is_logged_and_ends_its_streams_only(caplog: pytest.LogCaptureFixture) -> None:
    asked = 0

    def refresh() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise ZeroDivisionError("a bug")

    hub = Hub(Book(), refresh, pause=0.02)
    async with asyncio.timeout(20), served(hub) as address:
        async with viewer(address) as messages:
            assert await anext(messages)
            with pytest.raises(aiohttp.ClientError):
                await anext(messages)
        assert "ZeroDivisionError: a bug" in caplog.text
        async with viewer(address) as messages:  # it comes back by itself
            assert await anext(messages)


async def test_a_late_viewer_has_what_the_first_one_has(counted: tuple[Hub, Counter]) -> None:
    hub, _ = counted
    async with asyncio.timeout(20), served(hub) as address, viewer(address) as first:
        for _ in range(5):
            await anext(first)
        async with viewer(address) as second:
            late = await anext(second)
            news = await anext(second)
            assert late is not None and news is not None
            assert late["whole"] and news["nodes"]["a"]["round"] >= late["nodes"]["a"]["round"]


async def test_two_hundred_viewers_are_asked_for_once(counted: tuple[Hub, Counter]) -> None:
    hub, counter = counted
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        address = await stack.enter_async_context(served(hub))
        viewers = [await stack.enter_async_context(viewer(address)) for _ in range(200)]
        for messages in viewers:
            first = await anext(messages)
            assert first is not None and first["whole"]
        assert hub.viewers == 200
        asked = counter.asked
        seen = [await anext(messages) for messages in viewers]
        assert all(message is not None for message in seen)
        assert counter.asked - asked < 200


async def test_more_viewers_than_the_most_are_refused(
    counted: tuple[Hub, Counter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "MOST_VIEWERS", 1)
    hub, _ = counted
    async with asyncio.timeout(20), served(hub) as address, viewer(address) as messages:
        await anext(messages)
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/events") as answer:
            assert answer.status == 503


async def test_the_end_comes_after_the_last_news() -> None:
    book = Book()
    hub = Hub(book, lambda: None, pause=60.0)
    async with asyncio.timeout(20), served(hub) as address, viewer(address) as messages:
        await anext(messages)
        book.put_state("a", state(7))
        closing = asyncio.create_task(hub.close())
        news = await anext(messages)
        assert news is not None and news["nodes"]["a"]["round"] == 7
        assert await anext(messages) is None
        await closing


def not_reading(address: str) -> socket.socket:
    """A viewer that asks for the stream and never reads it."""
    host, port = address.split(":")
    lazy = socket.create_connection((host, int(port)))
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.sendall(f"GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    return lazy


async def test_a_viewer_that_does_not_read_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "LAST_SECONDS", 0.1)
    book = Book()
    book.add_problem({"time": 0, "message": "x" * 20_000_000})
    hub = Hub(book, lambda: None, pause=60.0)
    async with asyncio.timeout(20):
        async with served(hub) as address:
            lazy = not_reading(address)
            while not hub.viewers:
                await asyncio.sleep(0.01)
        lazy.close()
    assert hub.viewers == 0


async def test_a_viewer_that_does_not_read_is_dropped_and_the_others_are_not_kept_waiting() -> None:
    book = Book()
    hub = Hub(book, lambda: book.add_problem({"time": 0, "message": "x" * 500_000}), pause=0.01)
    async with asyncio.timeout(60), served(hub) as address, viewer(address) as messages:
        with not_reading(address):
            while hub.viewers < 2:
                await anext(messages)
            while hub.viewers == 2:
                assert await anext(messages) is not None
        assert hub.viewers == 1
