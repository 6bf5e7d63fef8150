"""Who may ask at an admin address: unix sockets, tokens, and what is refused before a node starts."""

import asyncio
import logging
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from conftest import make_daemons, small

from p2p_tally.config import DaemonSettings
from p2p_tally.errors import ConfigError
from p2p_tally.node.service.admin_address import SocketFile, admin_of, base_url, parse_admin, read_token, session_to
from p2p_tally.page.book import Book
from p2p_tally.runner.console.status import ask
from p2p_tally.runner.page.gather import Gatherer

TOKEN = "0123456789abcdef"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


@asynccontextmanager
async def serving(tmp_path: Path, admin: str, **options: object) -> AsyncIterator[str]:
    """The admin address of a node, as a text."""
    daemons = make_daemons(small(nodes=2), tmp_path / "out", admin=admin, **options)
    served = daemons[0].admin
    assert served is not None
    try:
        async with asyncio.timeout(30):
            await served.start()
            yield str(served.address)
    finally:
        await served.close()
        for daemon in daemons:
            daemon.worker.shutdown()
            daemon.transport.inherited.close()  # type: ignore[union-attr]


async def get(address: str, path: str, headers: dict[str, str]) -> int:
    timeout = aiohttp.ClientTimeout(total=20)
    async with (
        session_to(address, None, timeout) as session,
        session.get(base_url(address) + path, headers=headers) as answer,
    ):
        return answer.status


# --- a unix socket


async def test_a_unix_socket_is_for_its_owner_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "admin.sock"
    with caplog.at_level(logging.INFO):
        async with serving(tmp_path, f"unix:{path}") as address:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            (found,) = await ask([address])
            assert (address, found["name"]) == (f"unix:{path}", "node-0")
            assert await get(address, "/events", {"Origin": "http://evil.example"}) == 403
    assert f"admin at unix:{path}" in caplog.messages
    assert not path.exists()


async def test_a_socket_that_a_killed_node_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with serving(tmp_path, f"unix:{path}") as address:
        assert (await ask([address]))[0]["name"] == "node-0"


async def test_a_socket_that_answers_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(ConfigError, match=f"^--admin unix:{path}: .*in use"):
            async with serving(tmp_path, f"unix:{path}"):
                pass
    assert path.exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        SocketFile(path).bind()
    assert path.read_text() == "mine"


async def test_a_folder_that_is_not_there_and_a_path_that_is_too_long(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "none" / "a", "No such file"), (tmp_path / ("x" * 200), "path too long")):
        with pytest.raises(ConfigError, match=f"^--admin unix:{path}: .*{said}"):
            async with serving(tmp_path, f"unix:{path}"):
                pass


def test_a_path_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"^--admin unix:: accepted is HOST:PORT or unix:/PATH$"):
        parse_admin("unix:", "--admin")


async def test_nobody_at_a_socket_is_said_in_one_line(tmp_path: Path) -> None:
    (found,) = await ask([f"unix:{tmp_path}/none"])
    assert (found["phase"], found["error"]) == ("unreachable", "No such file or directory")


# --- a token


async def test_without_the_token_nothing_is_shown(
    tmp_path: Path, token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = [None, "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer é"]
    async with serving(tmp_path, "127.0.0.1:0", admin_token_file=token_file) as address:
        for path in ("/", "/events", "/status", "/metrics"):
            for sent in wrong:
                assert await get(address, path, {} if sent is None else {"Authorization": sent}) == 401, (path, sent)
    assert caplog.messages.count("admin: a request refused: without the right token") == 4 * len(wrong)


async def test_with_the_token_all_is_shown(tmp_path: Path, token_file: Path) -> None:
    right = {"Authorization": f"Bearer {TOKEN}"}
    async with serving(tmp_path, "127.0.0.1:0", admin_token_file=token_file) as address:
        assert [await get(address, path, right) for path in ("/", "/status", "/metrics")] == [200, 200, 200]
        assert [await get(address, path, {}) for path in ("/healthz", "/readyz")] == [200, 503]
        assert await get(address, "/status", right | {"Host": "evil.example"}) == 403
        assert await get(address, "/events", right | {"Origin": "http://evil.example"}) == 403
        (found,) = await ask([address], TOKEN)
        assert found["name"] == "node-0"
        (refused,) = await ask([address])
        assert refused["error"] == "it asks for a token: --admin-token-file FILE"


@pytest.mark.parametrize("kind", ["unix", "tcp"])
async def test_a_page_gathers_nodes_that_ask_for_a_token(kind: str, tmp_path: Path, token_file: Path) -> None:
    where = f"unix:{tmp_path}/admin.sock" if kind == "unix" else "127.0.0.1:0"
    async with serving(tmp_path, where, admin_token_file=token_file) as address:
        book = Book()
        gatherer = Gatherer(book, token=TOKEN)
        gatherer.follow(address)
        while not (book.state_of("node-0") or {}).get("state"):
            await asyncio.sleep(0.01)
        await gatherer.stop()
        refused = Book()
        gatherer = Gatherer(refused)
        gatherer.follow(address)
        while (refused.state_of(address) or {}).get("state") != "unreachable":
            await asyncio.sleep(0.01)
        await gatherer.stop()
        assert (refused.state_of(address) or {})["why"] == "it asks for a token: --admin-token-file FILE"


@pytest.mark.parametrize("contents", ["", "short\n", "two words of enough length\n", "a\nb" * 20, "é" * 30])
def test_what_is_no_token_is_refused(contents: str, token_file: Path) -> None:
    token_file.write_text(contents, encoding="utf-8")
    with pytest.raises(ConfigError, match=f"^--admin-token-file {token_file}: accepted is one line of at least 16 "):
        read_token(token_file)


def test_a_token_that_others_can_read_is_refused(token_file: Path) -> None:
    token_file.chmod(0o644)
    with pytest.raises(ConfigError, match=f"^--admin-token-file {token_file}: everybody on this machine can read it"):
        read_token(token_file)
    token_file.chmod(0o440)  # as systemd and containers give a secret to a group
    assert read_token(token_file) == TOKEN


def test_a_token_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"/none: No such file or directory$"):
        read_token(tmp_path / "none")
    with pytest.raises(ConfigError, match=r": Is a directory$"):
        read_token(tmp_path)


# --- beyond this machine


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "node.example"])
def test_beyond_this_machine_a_token_and_a_word_are_needed(host: str, token_file: Path) -> None:
    def refusal(**options: object) -> str:
        with pytest.raises(ConfigError) as caught:
            admin_of(DaemonSettings.parse({"admin": f"{host}:7101", **options}))
        return str(caught.value)

    begins = f"--admin {host}:7101: reachable from other machines; accepted is 127.0.0.1 or unix:/PATH, or besides "
    plain = "--insecure, for the token itself travels in plain text"
    assert refusal() == begins + "--admin-token-file FILE and " + plain
    assert refusal(insecure=True) == begins + "--admin-token-file FILE"
    assert refusal(admin_token_file=token_file) == begins + plain
    both = DaemonSettings.parse({"admin": f"{host}:7101", "admin_token_file": token_file, "insecure": True})
    assert str(admin_of(both)[0]) == f"{host}:7101"


async def test_beyond_this_machine_every_start_says_so(
    tmp_path: Path, token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, "0.0.0.0:0", admin_token_file=token_file, insecure=True) as address:
        port = address.rpartition(":")[2]
        assert f"admin at {address}: plain text, and its token too" in caplog.messages
        assert (await ask([f"127.0.0.1:{port}"], TOKEN))[0]["name"] == "node-0"
