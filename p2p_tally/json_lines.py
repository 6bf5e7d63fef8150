"""JSON lines: the values that they may hold, a file that they are appended to, standard output kept for them."""

import logging
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

log = logging.getLogger(__name__)

# The real standard output, while `stdout_for_lines` is entered.
_reserved: list[TextIO] = []


def json_value(value: Any) -> Any:
    """The value as JSON can hold it: JSON has no NaN and no infinity, so both become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return value


@contextmanager
def stdout_for_lines() -> Iterator[None]:
    """Keep standard output for `write_line`: whatever else prints, such as a user's model, prints to standard error."""
    _reserved.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _reserved.pop()


def write_line(text: str) -> None:
    """One line on standard output, at once."""
    print(text, file=_reserved[-1] if _reserved else sys.stdout, flush=True)


class LineFile:
    """A file that lines are appended to. It holds whole lines only.

    A full disk ends no run: lines that could not be written are tried again with the next one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._size = os.fstat(self._descriptor).st_size
        self._pending = b""  # what is not on the disk yet

    def add(self, line: str) -> None:
        """`line` ends with a line break."""
        already_logged = bool(self._pending)
        self._pending += line.encode()
        try:
            self._write()
        except OSError as error:
            if not already_logged:
                what = f"{self._path} not written: {error.strerror}; tried again with every line"
                log.error(what, extra={"event": "record-failed"})

    def sync(self) -> None:
        """All lines are on the disk when this returns, or an OSError says why not."""
        self._write()
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Raises an OSError where the disk did not take all lines."""
        if self._descriptor < 0:
            return
        try:
            self._write()
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self) -> None:
        """Write all that is pending, or nothing: a line that was written in part is removed again."""
        left = self._pending
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            os.ftruncate(self._descriptor, self._size)
            raise OSError(error.errno, error.strerror, str(self._path)) from None
        self._size += len(self._pending)
        self._pending = b""
