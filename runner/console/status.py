"""Where running nodes are, asked at their admin addresses."""

import asyncio
from typing import Any

import aiohttp
from rich.live import Live
from rich.table import Table

from p2p_tally.node.links.addresses import why_unreachable

ASK_SECONDS = 5.0
REFRESH_SECONDS = 1.0


async def ask(urls: list[str]) -> list[dict[str, Any]]:
    """The status of each node, in the order of the addresses; one that does not answer says why in `error`."""
    timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        return await asyncio.gather(*(_ask(session, url) for url in urls))


async def _ask(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    base = url if "://" in url else f"http://{url}"
    try:
        async with session.get(base.rstrip("/") + "/status") as answer:
            answer.raise_for_status()
            return {"url": url, **await answer.json()}
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        why = why_unreachable(error)
    nothing: dict[str, Any] = {"name": None, "round": None, "phase": "unreachable", "missing": []}
    return {"url": url, **nothing, "error": why}


async def watch(urls: list[str]) -> None:
    """Show a table and keep it current, until cancelled."""
    with Live(table_of(await ask(urls)), refresh_per_second=4) as live:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            live.update(table_of(await ask(urls)))


def table_of(nodes: list[dict[str, Any]]) -> Table:
    table = Table()
    for column in ("node", "round", "phase", "accuracy %", "payload", "missing"):
        table.add_column(column, justify="left" if column in ("node", "phase", "missing") else "right")
    for node in nodes:
        if "error" in node:
            table.add_row(node["url"], "-", "unreachable", "-", "-", node["error"])
            continue
        accuracy = "-" if node["accuracy"] is None else f"{node['accuracy']:.1f}"
        where = f"{node['round']}/{node['rounds']}"
        table.add_row(
            node["name"], where, node["phase"], accuracy, f"{node['payload_bytes']:,}", ", ".join(node["missing"])
        )
    return table
