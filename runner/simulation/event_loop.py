"""asyncio.run that also works in a notebook, where this thread has a loop that runs already."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch


class Interrupted(Exception):
    """An interrupt on its way out of a task, as its cause."""


async def carrying_interrupts(work: Coroutine[Any, Any, None]) -> None:
    """The work of a task of which an interrupt may come. asyncio lets one out of the loop in the middle of everything,
    and nobody hears then how the other tasks end; wrapped, it ends them as any error does."""
    try:
        await work
    except (KeyboardInterrupt, SystemExit) as interrupt:
        raise Interrupted from interrupt


def run_to_end(
    main: Coroutine[Any, Any, None], make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
) -> None:
    """Run a coroutine to its end. If a loop runs here, on another thread; an interrupt then cancels it there. One that
    a task of the coroutine carries is raised here."""
    try:
        _run_to_end(main, make_loop)
    except BaseExceptionGroup as group:
        carried = group.subgroup(Interrupted)
        if carried is None:
            raise
        cause = carried.exceptions[0].__cause__
    else:
        return
    assert cause is not None
    raise cause


def _run_to_end(main: Coroutine[Any, Any, None], make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(main)
        return
    loop = make_loop()
    task = loop.create_task(main)
    with ThreadPoolExecutor(1, "simulation", torch.set_num_threads, (torch.get_num_threads(),)) as worker:
        try:
            worker.submit(loop.run_until_complete, task).result()
        except BaseException:
            loop.call_soon_threadsafe(task.cancel)
            raise
        finally:
            worker.shutdown()
            loop.close()
