"""Standard output for whoever reads it line by line: what other code prints, a model's say, goes to standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

_kept: list[TextIO] = []  # standard output, while it is kept


@contextmanager
def kept_for_lines() -> Iterator[None]:
    _kept.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _kept.pop()


def write_line(text: str) -> None:
    print(text, file=_kept[-1] if _kept else sys.stdout, flush=True)
