"""Files that must not be seen half written, and locks between processes."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: processes then do not see each other's locks
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to. It is renamed to `path` when the block ends, and removed where the block fails.

    A rename is atomic: whoever opens `path` finds the old file or the new one, each whole.
    """
    temporary = path.with_suffix(".part")
    try:
        yield temporary
        temporary.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes | str, *, sync: bool = False) -> None:
    """Write a file so that it is never seen half written; its folder is made where it is missing.

    `sync`: when this returns, the file survives a power cut.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    if sync:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the folder's entries on the disk: only then does a rename survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock of a folder, or of a file that is made for it. A process that dies releases its locks.

    Where another process holds it: wait, or raise BlockingIOError. Where the file system has no locks (some network
    file systems), none is held.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_WRONLY | os.O_CREAT
    handle = os.open(path, flags, 0o666)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise
            except OSError:
                pass
        yield
    finally:
        os.close(handle)
