"""A file that lines are added to. A full disk stops nobody: what it will not take is tried again with the next line."""

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)


class LineFile:
    """Whole lines only, whatever happens: one that was written in part is taken back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._size = os.fstat(self._descriptor).st_size
        self._waiting = b""  # what is not on the disk yet

    def add(self, line: str) -> None:
        """`line` ends with a line break."""
        told = bool(self._waiting)
        self._waiting += line.encode()
        try:
            self._write()
        except OSError as error:
            if not told:
                what = f"{self._path} not written: {error.strerror}; tried again with every line"
                log.error(what, extra={"event": "record-failed"})

    def sync(self) -> None:
        """All lines are on the disk when this returns, or an OSError says why not."""
        self._write()
        os.fsync(self._descriptor)

    def close(self) -> None:
        """An OSError where the disk would not take all lines."""
        if self._descriptor < 0:
            return
        try:
            self._write()
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self) -> None:
        """All that waits, or nothing."""
        left = self._waiting
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            os.ftruncate(self._descriptor, self._size)
            raise OSError(error.errno, error.strerror, str(self._path)) from None
        self._size += len(self._waiting)
        self._waiting = b""
