"""asyncio.run that also works in a notebook, where this thread has a loop that runs already."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch


def run_to_end(
    main: Coroutine[Any, Any, None], make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
) -> None:
    """Run a coroutine to its end. If a loop runs here, on another thread; an interrupt then cancels it there."""
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
