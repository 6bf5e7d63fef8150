"""Work on many rows in fixed parts, one processor thread a part.

The parts and the order in which their results are taken do not depend on the number of threads, and inside a part the
libraries use one thread. So the bits are the same for any number of threads.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch

T = TypeVar("T")

Progress = Callable[[str, int, int], None]  # what is done, parts done, parts in all


def silent(_what: str, _done: int, _of: int) -> None:
    """For callers that show no progress."""


@contextmanager
def one_thread_each() -> Iterator[None]:
    """torch computes with one thread in here, however many it may use outside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Parts:
    """How many threads, and whom to tell how far the work is."""

    threads: int = 1
    progress: Progress = field(default=silent)

    def each(self, what: str, rows: int, at_once: int, work: Callable[[slice], T]) -> Iterator[T]:
        """`work` on every slice of `at_once` rows; results in the order of the rows."""
        slices = [slice(start, min(start + at_once, rows)) for start in range(0, rows, at_once)]
        with ThreadPoolExecutor(self.threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                for done, result in enumerate(pool.map(work, slices), 1):
                    yield result
                    self.progress(what, done, len(slices))
            except BaseException:  # Ctrl-C too: what has not begun is not begun
                pool.shutdown(cancel_futures=True)
                raise
