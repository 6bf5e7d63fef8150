"""Serves a page from a thread of its own, beside whatever the process does: a launch, a simulation, or only waiting."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiohttp import web

from p2p_tally.errors import ConfigError
from p2p_tally.node.links.addresses import Address
from p2p_tally.page.book import Book
from p2p_tally.page.hub import Hub
from p2p_tally.page.site import add_page, make_site

ANY_PORT = Address("127.0.0.1", 0)


async def _nothing() -> None:
    pass


class PageServer:
    """A context in which a page is served. The book belongs to the server's thread: others change it through `call`."""

    def __init__(
        self,
        book: Book,
        refresh: Callable[[], None] = lambda: None,
        *,
        offset: float = 0.0,
        address: Address = ANY_PORT,
        before_close: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        """`refresh` and `offset`: as of Hub. `before_close` is awaited before the last message is sent."""
        self.address = address
        self._book = book
        self._refresh = refresh
        self._offset = offset
        self._before_close = before_close
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._started = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    @property
    def url(self) -> str:
        return f"http://{self.address}/"

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            raise ConfigError(f"page at {self.address}: {self._error.strerror or self._error}")
        return self

    def __exit__(self, *_: Any) -> None:
        self.call(self._closing.set)
        self._thread.join()

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call this function on the server's thread."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def announce(self) -> None:
        """Print where the page is, away from what is printed for programs."""
        print(f"p2p-tally: page at {self.url}", file=sys.stderr, flush=True)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        hub = Hub(self._book, self._refresh, offset=self._offset)
        app = make_site(self.address.loopback)
        add_page(app, hub)
        site = web.AppRunner(app, access_log=None)
        try:
            await site.setup()
            await web.TCPSite(site, self.address.host, self.address.port).start()
            self.address = Address(self.address.host, site.addresses[0][1])
        except OSError as error:
            self._error = error
            await site.cleanup()
            return
        finally:
            self._started.set()
        await self._closing.wait()
        await self._before_close()
        await hub.close()
        await site.cleanup()
