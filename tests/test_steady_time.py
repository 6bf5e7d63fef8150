"""The clock of asynchronous tests."""

import asyncio
import time

from steady_time import MOST


async def test_a_stall_is_no_deadline() -> None:
    """Without a steady clock the timer is due as soon as the stall is over, before anybody can answer."""
    loop, happened = asyncio.get_running_loop(), list[str]()
    began = loop.time()
    loop.call_later(3 * MOST, happened.append, "deadline")
    loop.call_soon(time.sleep, 5 * MOST)
    loop.call_soon(lambda: loop.call_later(MOST, happened.append, "answer"))
    while len(happened) < 2:
        await asyncio.sleep(0)
    assert happened == ["answer", "deadline"]
    assert loop.time() - began >= 3 * MOST


async def test_time_in_which_nothing_happens_passes() -> None:
    loop = asyncio.get_running_loop()
    began, real = loop.time(), time.monotonic()
    await asyncio.sleep(3 * MOST)
    assert loop.time() - began >= 3 * MOST
    assert time.monotonic() - real >= 3 * MOST
