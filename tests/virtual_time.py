"""Tests on an event loop whose deadlines pass at once."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from p2p_tally.runner.simulation.virtual_time import VirtualTimeLoop


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on such a loop."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*arguments, **fixtures))

    return run
