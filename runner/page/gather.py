"""Gathers the pages of many nodes into one: follows the event stream at each node's admin address.

A node that ends says so in its stream. One that goes without a word, or cannot be reached, is shown as not reachable,
and is tried again for as long as the page is served.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from p2p_tally.errors import MessageError
from p2p_tally.node.links.addresses import why_unreachable
from p2p_tally.node.service.admin_address import base_url, check_answer, session_to
from p2p_tally.page.book import Book
from p2p_tally.page.messages import read_message
from p2p_tally.page.problems import problem

# Seconds until a node that went is tried again.
RETRY_SECONDS = 1.0

# A node sends something at least every ten seconds; after this long it does not answer.
SILENT_SECONDS = 25.0
CONNECT_SECONDS = 5.0

# The longest message that is taken.
MOST_BYTES = 1 << 24

# Seconds that nodes get to say that they have ended, before the page closes.
LAST_SECONDS = 3.0


class Gatherer:
    """Fills a book from the streams of nodes. All methods are called on the thread of one event loop."""

    def __init__(self, book: Book, clock: Callable[[], float] = time.time, token: str | None = None) -> None:
        """`clock`: seconds since 1970, for the list of problems. `token`: what the nodes ask for."""
        self._book = book
        self._clock = clock
        self._token = token
        self._names: dict[str, str] = {}  # of the nodes, by address
        self._tasks: list[asyncio.Task[None]] = []
        self._open = 0  # streams
        self._all_ended = asyncio.Event()
        self._all_ended.set()

    def follow(self, address: str, name: str | None = None) -> None:
        """Follow the node whose admin address this is. `name`: where it is known before the node says it."""
        self._names[address] = name or address
        if name is None:
            self._book.put_state(address, _unknown("waiting"))
        self._tasks.append(asyncio.create_task(self._follow(address)))

    async def close(self) -> None:
        """Wait a moment for nodes that are about to end, and stop."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_ended.wait(), LAST_SECONDS)
        await self.stop()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, address: str) -> None:
        while True:
            why = "the connection was closed"
            try:
                if await self._read(address):
                    why = ""
            except MessageError as error:
                why = f"sent what is no page: {error}"
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                why = why_unreachable(error)
            if why:
                self._lost(self._names[address], why)
            await asyncio.sleep(RETRY_SECONDS)

    async def _read(self, address: str) -> bool:
        """Read one stream to its end. Returns whether the node has ended it."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENT_SECONDS)
        async with (
            session_to(address, self._token, limits) as session,
            session.get(base_url(address) + "/events", allow_redirects=False) as answer,
        ):
            check_answer(answer)
            self._open += 1
            self._all_ended.clear()
            try:
                async for kind, data in events(answer.content.iter_any()):
                    if kind == "end":
                        return True
                    self._take(address, data)
            finally:
                self._open -= 1
                if not self._open:
                    self._all_ended.set()
        return False

    def _take(self, address: str, data: bytes) -> None:
        try:
            message = read_message(json.loads(data))
        except (ValueError, RecursionError):
            raise MessageError("it is no JSON") from None
        about = message.get("about", {})
        if "own" in about:
            self._meet(address, about.pop("own"))
            if not self._book.about:
                self._book.describe(about)
        elif self._names[address] == address:
            raise MessageError("it does not say which node it is")
        self._book.absorb(message, self._names[address])

    def _meet(self, address: str, name: str) -> None:
        """The node at this address has said who it is."""
        known = self._names[address]
        if name != known:
            if name in self._names.values():
                raise MessageError(f"it says that it is {name}, which is at another address")
            if known == address:
                self._book.forget(address)
            self._names[address] = name

    def _lost(self, name: str, why: str) -> None:
        state = self._book.state_of(name) or _unknown("waiting")
        if state["state"] in ("done", "stopped"):
            return
        if state["state"] != "unreachable":
            self._book.add_problem(problem(self._clock(), "error", f"does not answer: {why}", name))
        self._book.put_state(name, state | {"state": "unreachable", "why": why, "still": 0})


def _unknown(state: str) -> dict[str, Any]:
    return {"state": state, "round": 0, "accuracy": None, "missing": [], "links": {}}


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, bytes]]:
    """Server-sent events as kind and data. Comments and fields that we do not use are passed over."""
    rest, kind, data = b"", "message", b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MOST_BYTES:
            raise MessageError(f"it is longer than {MOST_BYTES} bytes")
        for line in lines:
            if not line and data:
                yield kind, data
            if not line:
                kind, data = "message", b""
            field, _, value = line.partition(b": ")
            if field == b"event":
                kind = value.decode(errors="replace")
            elif field == b"data":
                data = value
