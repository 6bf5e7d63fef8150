"""Accepting connections: at most so many a second, whatever comes."""

import asyncio
import errno
import os
import socket
from typing import Any

import pytest
from conftest import open_listener
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.node.links import doorway
from p2p_tally.node.links.doorway import Allowance, Doorway, bind


@given(st.lists(st.floats(0, 0.5), max_size=200), st.floats(1, 500), st.integers(1, 50))
def test_never_more_than_the_burst_and_the_rate(steps: list[float], rate: float, burst: int) -> None:
    allowance, now, taken = Allowance(rate, burst, 0.0), 0.0, 0
    for step in steps:
        now += step
        taken += allowance.take(now)
    assert taken <= burst + rate * now + 1e-6


@given(st.integers(1, 50), st.floats(1, 500), st.integers(1, 20))
def test_after_the_wait_there_are_as_many_again(burst: int, rate: float, most: int) -> None:
    most = min(most, burst)
    allowance = Allowance(rate, burst, 0.0)
    while allowance.take(0.0):
        pass
    later = allowance.wait(most) + 1e-6
    assert [allowance.take(later) for _ in range(most)] == [True] * most


class Guest(asyncio.Protocol):
    """Counts connections."""

    def __init__(self, came: asyncio.Semaphore) -> None:
        self._came = came

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._came.release()
        transport.close()


async def test_more_than_the_burst_wait_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorway, "BURST", 16)
    monkeypatch.setattr(doorway, "RATE", 50.0)
    came = asyncio.Semaphore(0)
    door = Doorway([open_listener()], lambda _: Guest(came))
    door.open()
    loop = asyncio.get_running_loop()
    started = loop.time()
    guests = [socket.create_connection(("127.0.0.1", door.port)) for _ in range(24)]
    async with asyncio.timeout(30):
        for _ in guests:
            await came.acquire()
    assert loop.time() - started >= (24 - 16 - 1) / 50  # a lower bound: eight of them had to wait
    for guest in guests:
        guest.close()
    door.close()


class Full:
    """A listening socket in a process without a free file."""

    def __init__(self) -> None:
        self._real = open_listener()
        self.full = True

    def accept(self) -> Any:
        if self.full:
            self.full = False
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


async def test_without_a_free_file_it_tries_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(doorway, "RETRY_SECONDS", 0.05)
    came, listener = asyncio.Semaphore(0), Full()
    sockets: list[Any] = [listener]
    door = Doorway(sockets, lambda _: Guest(came))
    door.open()
    with socket.create_connection(("127.0.0.1", door.port)):
        async with asyncio.timeout(10):
            await came.acquire()
    door.close()
    assert [record.getMessage() for record in caplog.records] == ["no connection accepted: Too many open files"]


async def test_after_it_is_closed_nobody_is_accepted() -> None:
    door = Doorway(await bind("127.0.0.1", 0), lambda _: Guest(asyncio.Semaphore(0)))
    door.open()
    port = door.port
    door.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
