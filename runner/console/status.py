"""Where running nodes are, asked at their admin addresses."""

import asyncio
from typing import Any

import aiohttp
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from p2p_tally.node.links.addresses import why_unreachable
from p2p_tally.node.service.admin_address import base_url, check_answer, session_to
from p2p_tally.runner.console.terminal import Column, WithRoom, print_columns, table_for

ASK_SECONDS = 5.0
REFRESH_SECONDS = 1.0


async def ask(urls: list[str], token: str | None = None) -> list[dict[str, Any]]:
    """The status of each node, in the order of the addresses; one that does not answer says why in `error`."""
    return await asyncio.gather(*(_ask(url, token) for url in urls))


async def _ask(url: str, token: str | None) -> dict[str, Any]:
    try:
        async with (
            session_to(url, token, aiohttp.ClientTimeout(total=ASK_SECONDS)) as session,
            session.get(base_url(url) + "/status", allow_redirects=False) as answer,
        ):
            check_answer(answer)
            return {"url": url, **await answer.json()}
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        why = why_unreachable(error)
    nothing: dict[str, Any] = {"name": None, "round": None, "phase": "unreachable", "missing": []}
    return {"url": url, **nothing, "error": why}


async def watch(urls: list[str], token: str | None = None) -> None:
    """Show a table and keep it current, until cancelled."""
    with Live(WithRoom(Current(await ask(urls, token))), refresh_per_second=4) as live:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            live.update(WithRoom(Current(await ask(urls, token))))


class Current:
    """The table, made for the width that there is when it is drawn."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self._nodes = nodes

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield table_for(options.max_width, COLUMNS, _rows(self._nodes))
        for line in distrust(self._nodes):
            yield Text(line)


def print_status(nodes: list[dict[str, Any]]) -> None:
    print_columns(COLUMNS, _rows(nodes))
    for line in distrust(nodes):
        Console(soft_wrap=not Console().is_terminal).print(Text(line))


def distrust(nodes: list[dict[str, Any]]) -> list[str]:
    """A line for each peer that a node does not treat as any other, with the reason."""
    return [
        f"{node['name']}: {peer} {found['standing']} (score {found['score']}): {'; '.join(found['reasons'])}"
        for node in nodes
        for peer, found in node.get("scores", {}).items()
        if found["reasons"]
    ]


COLUMNS = (
    Column("node", words=True),
    Column("round"),
    Column("phase", words=True),
    Column("accuracy %"),
    Column("payload", least_useful=1),
    Column("missing", words=True),
)


def _rows(nodes: list[dict[str, Any]]) -> list[list[str]]:
    return [_unreachable(node) if "error" in node else _row(node) for node in nodes]


def _unreachable(node: dict[str, Any]) -> list[str]:
    return [node["url"], "-", "unreachable", "-", "-", node["error"]]


def _row(node: dict[str, Any]) -> list[str]:
    accuracy = "-" if node["accuracy"] is None else f"{node['accuracy']:.1f}"
    where = f"{node['round']}/{node['rounds']}"
    return [node["name"], where, node["phase"], accuracy, f"{node['payload_bytes']:,}", ", ".join(node["missing"])]
