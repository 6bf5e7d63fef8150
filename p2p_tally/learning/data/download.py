"""Downloads that are never half-used: fetched into a folder aside, verified there, and put in place by one rename.

A process that is interrupted or killed leaves at most a folder whose name starts with a dot, which nothing reads.
"""

import contextlib
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from p2p_tally.errors import DataError
from p2p_tally.files import locked

# What an unreachable host, a broken transfer or a damaged archive raise, in urllib and in torchvision's downloader.
FAILURES = (OSError, RuntimeError, EOFError, tarfile.TarError, zipfile.BadZipFile)


def download_folder(
    root: Path, name: str, fetch: Callable[[Path], None], is_complete: Callable[[], bool], flag: str
) -> None:
    """Have `fetch` put a verified folder `name` into the folder it is given, then move that one to root/name.

    A folder that stands there and is not complete is kept under another name: it may be somebody's work.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with locked(root / f".{name}.lock", wait=True):
            if is_complete():  # another process has fetched it meanwhile
                return
            with tempfile.TemporaryDirectory(prefix=f".{name}.download-", dir=root) as aside:
                # Standard output may be one line of JSON: whatever a downloader prints goes to the other stream.
                with contextlib.redirect_stdout(sys.stderr):
                    fetch(Path(aside))
                _move_aside(root / name)
                (Path(aside) / name).replace(root / name)
    except FAILURES as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{flag}: download into {root} failed: {reason}; nothing was changed") from None


def _move_aside(folder: Path) -> None:
    if not folder.exists():
        return
    number = 1
    while (kept := folder.with_name(f"{folder.name}.incomplete-{number}")).exists():
        number += 1
    folder.replace(kept)
