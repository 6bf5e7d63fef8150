"""Who may ask for the page."""

import asyncio

import aiohttp
import pytest
from serving import served

from p2p_tally.page.book import Book
from p2p_tally.page.hub import Hub


async def ask(path: str, headers: dict[str, str], loopback: bool = True, method: str = "GET") -> tuple[int, str]:
    hub = Hub(Book(), lambda: None)
    async with asyncio.timeout(20), served(hub, loopback) as address, aiohttp.ClientSession() as session:
        sent = {name: value.format(address=address, port=address.split(":")[1]) for name, value in headers.items()}
        async with session.request(method, f"http://{address}{path}", headers=sent) as answer:
            return answer.status, answer.headers.get("X-Content-Type-Options", "")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:{port}"},
        {"Host": "[::1]:{port}"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://{address}"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "cross-site"},  # a link on another page
    ],
)
async def test_the_page_is_given(headers: dict[str, str]) -> None:
    assert await ask("/", headers) == (200, "nosniff")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "10.0.0.1"},
        {"Host": "[bad"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_another_site_is_refused(headers: dict[str, str]) -> None:
    status, _ = await ask("/events", headers)
    assert status in (400, 403)


async def test_beyond_this_machine_any_name_of_it_is_answered() -> None:
    assert (await ask("/", {"Host": "node.example:7101"}, loopback=False))[0] == 200
    assert (await ask("/events", {"Origin": "http://evil.example"}, loopback=False))[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_it_reads_only(method: str) -> None:
    assert (await ask("/", {}, method=method))[0] == 405
