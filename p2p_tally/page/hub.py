"""Sends a book to its viewers as server-sent events: all of it at first, then once a second what is new.

With nobody looking nothing is done. A message is written down once for all viewers, so their number costs little more
than the bytes. A viewer that does not keep up is dropped; its browser comes back by itself and begins anew.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web

from p2p_tally.json_lines import json_value
from p2p_tally.page.book import Book

log = logging.getLogger(__name__)

# Seconds between two messages.
PAUSE = 1.0

# Pauses without news before an empty message is sent, which shows whether a viewer is still there.
SILENT_PAUSES = 10

# More viewers than this are refused.
MOST_VIEWERS = 256

# Messages that may wait for a viewer.
MOST_WAITING = 8

# Seconds that viewers get for the last message.
LAST_SECONDS = 2.0

_END = b"event: end\ndata: {}\n\n"
_STILL_HERE = b": still here\n\n"


class _Viewer:
    """One stream, and the messages that wait to be written to it. None: the last one."""

    def __init__(self, request: web.Request) -> None:
        self.waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._transport = request.transport

    def send(self, message: bytes | None) -> None:
        if self.waiting.qsize() < MOST_WAITING:
            self.waiting.put_nowait(message)
        else:
            self.drop()

    def drop(self) -> None:
        """End the connection now, also if the other side does not read."""
        if self._transport is not None:
            self._transport.abort()


class Hub:
    def __init__(self, book: Book, refresh: Callable[[], None], *, pause: float = PAUSE, offset: float = 0.0) -> None:
        """`refresh` brings the book up to date. It is called before each message, and never with nobody looking.

        Messages go out when the clock of the machine is a multiple of `pause` plus `offset`: so those of its nodes go
        out together, and a page that gathers them shows all nodes at the same moment.
        """
        self._book = book
        self._refresh = refresh
        self._pause = pause
        self._offset = offset
        self._viewers: set[_Viewer] = set()
        self._nobody = asyncio.Event()
        self._nobody.set()
        self._sent = 0  # serial number up to which all viewers have the book
        self._whole: tuple[int, bytes] | None = None  # the last complete message, and its serial number
        self._ticking: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Handle one viewer until it goes, or falls behind, or the hub closes."""
        if self._closing.is_set() or len(self._viewers) >= MOST_VIEWERS:
            raise web.HTTPServiceUnavailable(text="too many viewers\n", headers={"Retry-After": "5"})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        viewer = _Viewer(request)
        viewer.send(self._complete())
        self._viewers.add(viewer)
        self._nobody.clear()
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._tick_while_watched(), name="page")
        try:
            while (message := await viewer.waiting.get()) is not None:
                await response.write(message)
        except ConnectionError:
            pass  # it has gone
        finally:
            self._viewers.discard(viewer)
            if not self._viewers:
                self._nobody.set()
        return response

    async def close(self) -> None:
        """Send what is new and the end of the stream. Viewers get a moment to read it."""
        if self._viewers and not self._closing.is_set():
            self._tick()
        self._closing.set()
        for message in (_END, None):
            self._publish(message)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._nobody.wait(), LAST_SECONDS)
        for viewer in self._viewers:
            viewer.drop()
        if self._ticking is not None:
            await self._ticking

    def _complete(self) -> bytes:
        """The whole book. One message serves all viewers that come before the next news."""
        if not self._viewers:
            self._refresh()
            self._sent = self._book.serial
        if self._whole is None or self._whole[0] < self._sent:
            self._whole = self._book.serial, b"retry: 1000\n" + _event(self._book.whole())
        return self._whole[1]

    async def _tick_while_watched(self) -> None:
        silent, clock = 0, asyncio.get_running_loop().time
        while self._viewers and not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._pause - (clock() - self._offset) % self._pause)
                return
            silent = 0 if self._tick() else silent + 1
            if silent >= SILENT_PAUSES:
                silent = 0
                self._publish(_STILL_HERE)
        self._whole = None  # it would only take memory

    def _tick(self) -> bool:
        """Send what is new. Returns whether anything is. A fault of the page is logged, and does not stop the node."""
        try:
            self._refresh()
            news = self._book.since(self._sent)
            message = _event(news)
        except Exception:
            log.exception("a fault of the live page; its viewers are dropped")
            for viewer in self._viewers:
                viewer.drop()
            return False
        self._sent = self._book.serial
        if news:
            self._publish(message)
        return bool(news)

    def _publish(self, message: bytes | None) -> None:
        for viewer in self._viewers:
            viewer.send(message)


def _event(message: dict[str, Any]) -> bytes:
    """JSON has no line breaks of its own, so it is one line of data."""
    try:
        text = json.dumps(message, separators=(",", ":"), allow_nan=False)
    except ValueError:  # a model has diverged; looking for that in every value would take longer than writing them
        text = json.dumps(json_value(message), separators=(",", ":"))
    return f"data: {text}\n\n".encode()
