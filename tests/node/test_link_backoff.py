"""A link's delays and its queue: retries spread out, and a neighbour that does not read is dropped at the cap."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.node.links import link as module
from p2p_tally.node.links.link import FIRST_DELAY, LAST_DELAY, REFUSED_DELAY, Link, backoff
from p2p_tally.protocol.messages import Hello

HELLO = Hello(1, "b", 0, False, (0,), (), "d", ())


class Extreme(random.Random):
    """Draws the ends of its ranges."""

    def __init__(self, low: bool) -> None:
        super().__init__(0)
        self.low = low

    def uniform(self, a: float, b: float) -> float:
        return a if self.low else b


@pytest.mark.parametrize(
    ("attempt", "shortest", "longest"),
    [
        (0, 0.05, 0.1),
        (1, 0.1, 0.2),
        (2, 0.2, 0.4),
        (3, 0.4, 0.8),
        (4, 0.8, 1.6),
        (5, 1.6, 3.2),
        (6, 2.5, 5.0),
        (7, 2.5, 5.0),
        (100, 2.5, 5.0),
        (10**9, 2.5, 5.0),
    ],
)
def test_delays_double_up_to_a_limit(attempt: int, shortest: float, longest: float) -> None:
    assert backoff(attempt, Extreme(low=True)) == pytest.approx(shortest)
    assert backoff(attempt, Extreme(low=False)) == pytest.approx(longest)


@given(st.integers(0, 10**6), st.integers())
def test_a_delay_is_never_nothing_and_never_long(attempt: int, seed: int) -> None:
    assert FIRST_DELAY / 2 <= backoff(attempt, random.Random(seed)) <= LAST_DELAY


def test_peers_do_not_collide() -> None:
    assert len({backoff(6, random.Random(seed)) for seed in range(50)}) == 50


def test_a_refusal_is_not_retried_hotly() -> None:
    assert REFUSED_DELAY > LAST_DELAY


class FakeConnection:
    """A socket that takes frames while it is told to, and gives what a test puts in."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.reads.set()
        self.sent: list[bytes] = []
        self.incoming: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()
        self.close_codes: list[int] = []
        self.broken = False
        self.taken = asyncio.Event()

    def write_now(self, frame: bytes) -> bool:
        """It never takes one at once, so that all go through the queue."""
        return False

    async def send_bytes(self, frame: bytes) -> None:
        await self.reads.wait()
        if self.broken:
            raise ConnectionResetError
        self.sent.append(frame)
        self.taken.set()

    async def receive(self) -> aiohttp.WSMessage:
        return await self.incoming.get()

    async def close(self, *, code: int = 1000) -> None:
        self.close_codes.append(code)
        self.incoming.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Served:
    """A link and the task that serves it."""

    def __init__(self) -> None:
        self.connection = FakeConnection()
        self.link = Link(self.connection, HELLO, dialled=True)  # type: ignore[arg-type]
        self.delivered: list[tuple[str, bytes]] = []
        self.accepts = True
        self.task = asyncio.create_task(self.link.serve(self._deliver))

    def _deliver(self, peer: str, frame: bytes) -> bool:
        self.delivered.append((peer, frame))
        return self.accepts

    async def ends(self) -> None:
        async with asyncio.timeout(5):
            await self.task

    def comes_in(self, kind: aiohttp.WSMsgType, data: Any = None) -> None:
        self.connection.incoming.put_nowait(aiohttp.WSMessage(kind, data, None))


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(module, "ROOM", 100)
    monkeypatch.setattr(module, "CAP", 1000)
    one = Served()
    yield one
    one.connection.reads.set()
    one.comes_in(aiohttp.WSMsgType.CLOSED)
    await one.ends()


async def test_frames_go_out_in_order(served: Served) -> None:
    frames = [bytes([number]) * number for number in range(1, 10)]
    for frame in frames:
        assert served.link.send(frame)
    async with asyncio.timeout(5):
        await served.link.finish(5)
    assert served.connection.sent == frames
    assert served.link.queued == 0


async def test_room_runs_out_and_comes_back(served: Served) -> None:
    served.connection.reads.clear()
    served.link.send(bytes(100))
    async with asyncio.timeout(5):
        await served.link.drained()  # exactly the room there is
    served.link.send(b"x")
    waiting = asyncio.create_task(served.link.drained())
    served.connection.reads.set()
    async with asyncio.timeout(5):
        await waiting
    assert served.connection.sent[0] == bytes(100)  # only then was there room


async def test_no_room_means_waiting(served: Served) -> None:
    served.connection.reads.clear()
    served.link.send(bytes(101))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await served.link.drained()


async def test_a_neighbour_that_does_not_read_is_dropped_at_the_cap(served: Served) -> None:
    served.connection.reads.clear()
    assert all(served.link.send(bytes(100)) for _ in range(10))
    assert served.link.queued == 1000
    assert served.link.send(b"x") is False
    assert served.link.send(b"") is False  # and nothing after it
    async with asyncio.timeout(5):
        await served.link.drained()  # nobody waits for room on a link that is ending


async def test_what_comes_in_is_delivered_under_the_peers_name(served: Served) -> None:
    served.comes_in(aiohttp.WSMsgType.BINARY, b"one")
    served.comes_in(aiohttp.WSMsgType.BINARY, b"two")
    served.comes_in(aiohttp.WSMsgType.CLOSE)
    await served.ends()
    assert served.delivered == [("b", b"one"), ("b", b"two")]
    assert served.link.send(b"x") is False


async def test_a_peer_that_does_not_keep_the_protocol_is_cut_off(served: Served) -> None:
    served.accepts = False
    served.comes_in(aiohttp.WSMsgType.BINARY, b"garbage")
    served.comes_in(aiohttp.WSMsgType.BINARY, b"more")
    await served.ends()
    assert served.delivered == [("b", b"garbage")]
    assert served.connection.close_codes[0] == aiohttp.WSCloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize("kind", [aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.ERROR])
async def test_what_is_not_binary_ends_the_link(kind: aiohttp.WSMsgType, served: Served) -> None:
    served.comes_in(kind, "text")
    await served.ends()
    assert served.delivered == []
    assert served.connection.close_codes[0] == aiohttp.WSCloseCode.PROTOCOL_ERROR


async def test_a_socket_that_breaks_while_sending_holds_nobody_up(served: Served) -> None:
    served.connection.broken = True
    served.link.send(bytes(500))
    waiting = asyncio.create_task(served.link.drained())
    served.comes_in(aiohttp.WSMsgType.CLOSED)  # the reader is told as well
    await served.ends()
    async with asyncio.timeout(5):
        await waiting
    assert served.connection.sent == []


async def test_leaving_waits_only_so_long_for_one_that_does_not_read(served: Served) -> None:
    served.connection.reads.clear()
    served.link.send(b"never read")
    async with asyncio.timeout(5):
        await served.link.finish(0.01)
    assert served.connection.sent == []
    assert served.connection.close_codes == [1000]
