"""The exact engine on several cores: the learners' work is done on threads, one learner on one thread at a time.

torch computes without Python's lock, so models of some size keep all threads busy. Every learner has its own model,
data and generator, so which thread works when changes no bit. Modules that draw random numbers themselves, such as
dropout, draw from one generator that all threads would share: they are refused.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from types import TracebackType
from typing import Any, Self

import torch

from p2p_tally.attacks.kinds import knows_others, withholds
from p2p_tally.config import SimulationSettings
from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.learning.architectures import holders
from p2p_tally.learning.norms import training_mode
from p2p_tally.learning.setup import Task, make_model
from p2p_tally.runner.stacked.parted import check_parted


def check_workers(task: Task, engine: str, device: str, settings: SimulationSettings) -> None:
    """Refuse, in one line, workers that would have nothing to do or would change bits."""
    federation, workers = task.federation, settings.actors or settings.threads or 1
    if workers > federation.nodes:
        ray = "ray:" if settings.actors else ""
        raise ConfigError(
            f"--workers {settings.workers}: accepted is at most the number of nodes, {ray}{federation.nodes}"
        )
    if settings.actors is not None:
        if engine != "stacked":
            raise ConfigError(
                f"--workers {settings.workers} with --engine {engine}: accepted there is a number of threads; actors "
                "of Ray play --engine stacked"
            )
        check_parted(task, str(settings.workers), device)
        if _draws(task):
            raise ConfigError(
                f"--workers {settings.workers}: accepted for this model is 1; it draws random numbers while it trains "
                "(dropout), from one generator for all peers"
            )
    if workers == 1 or engine != "exact":
        return
    if device != "cpu":
        raise ConfigError(
            f"--workers {workers} with --device {device}: accepted there is 1; a GPU is used by one thread"
        )
    if knows_others(federation) or withholds(federation):
        raise ConfigError(
            f"--workers {workers} with --attack {federation.attack}: accepted with this attack is 1; "
            "its members act in a fixed order"
        )
    if _draws(task):
        raise ConfigError(
            f"--workers {workers}: accepted for this model is 1; it draws random numbers while it trains (dropout), "
            "from one generator for the whole process"
        )


def _draws(task: Task) -> bool:
    """Whether a model draws random numbers in a forward pass of its training. Tried out: a module may call anything."""
    names = ranked_names(task.federation.nodes)
    x, _ = task.probes.examples.take(torch.zeros(2, dtype=torch.int64))
    for ranks in holders(task.federation).values():
        model = deepcopy(make_model(task, names[ranks[0]], ranks[0]))
        training_mode(model)
        before = torch.get_rng_state()
        with torch.no_grad():
            model(x if task.normalise is None else task.normalise(x))
        after = torch.get_rng_state()
        torch.set_rng_state(before)
        if not torch.equal(before, after):
            return True
    return False


class Workers:
    """So many threads, inside a `with` statement. With one worker there is none: the work is done where it is asked."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._count > 1:
            # One thread of torch's own for each of ours: with another count it sums floats in another order.
            self._pool = ThreadPoolExecutor(self._count, "worker", torch.set_num_threads, (1,))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = None

    async def compute(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """A node's `compute`."""
        if self._pool is None:
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
