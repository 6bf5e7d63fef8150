"""A hub behind a real socket, and viewers that read its stream."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from p2p_tally.page.hub import Hub
from p2p_tally.page.site import add_page, make_site


@asynccontextmanager
async def served(hub: Hub, loopback: bool = True) -> AsyncIterator[str]:
    """The address of a site with this hub."""
    app = make_site(loopback)
    add_page(app, hub)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await hub.close()
        await runner.cleanup()


@asynccontextmanager
async def viewer(address: str) -> AsyncIterator[AsyncIterator[dict[str, Any] | None]]:
    """The messages of a stream; None for its end."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/events") as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["Content-Type"] == "text/event-stream"

        async def messages() -> AsyncIterator[dict[str, Any] | None]:
            ended = False
            async for line in answer.content:
                if line == b"event: end\n":
                    ended = True
                elif line.startswith(b"data: "):
                    yield None if ended else json.loads(line.removeprefix(b"data: "))

        yield messages()
