"""A cache of folders that are whole or absent: built aside, renamed into place, checked before each use.

It holds what is computed once from a data set (decoded images, tokens). Its arrays are mapped, not read: the daemons of
one machine then share the memory.
"""

import json
import logging
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from p2p_tally.errors import DataError
from p2p_tally.files import locked

log = logging.getLogger(__name__)

CACHE = "p2p-tally-cache"
MANIFEST = "manifest.json"

# Bytes; smaller arrays are read, and their archive's checksum with them.
MAPPED_FROM = 1 << 20

# Folders of this process only, used where no cache could be written; removed when it ends.
_temporary: list[tempfile.TemporaryDirectory[str]] = []


def cached_folder(home: Path, key: str, build: Callable[[Path], None]) -> Path:
    """The folder `key` of the cache under `home`; `build` fills an empty folder where there is no sound one yet."""
    cache = home / CACHE
    target = cache / key
    if is_sound(target):
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=cache))
    except OSError as error:
        log.warning("%s: %s; what is worked out from the data is not kept", cache, error.strerror)
        _temporary.append(tempfile.TemporaryDirectory(prefix=f"{CACHE}-"))
        return _fill(Path(_temporary[-1].name), build)
    try:
        with locked(cache / f"{key}.lock", wait=True):
            if not is_sound(target):  # another process may have been first
                whole = aside / "whole"
                whole.mkdir()  # unlike its parent it has the usual permissions
                replace_folder(_fill(whole, build), target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def mapped(path: Path) -> np.ndarray:
    """The array of a .npy file, mapped. Copy-on-write, as torch wants memory it could write to; nothing does."""
    return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))


def mapped_archive(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a .npz file: large ones mapped where the archive stores them plainly, as np.savez does."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.compress_type == zipfile.ZIP_STORED and info.file_size >= MAPPED_FROM:
                array = _mapped_member(path, info)
            else:
                with archive.open(info) as member:
                    array = np.lib.format.read_array(member, allow_pickle=False)
            arrays[info.filename.removesuffix(".npy")] = array
    return arrays


def _mapped_member(path: Path, info: zipfile.ZipInfo) -> np.ndarray:
    with path.open("rb") as file:
        # The member's own header, which is not the directory's: 30 bytes, the last four of them two lengths.
        file.seek(info.header_offset + 26)
        file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError(f"{info.filename} holds Python objects")
        order: Literal["F", "C"] = "F" if fortran else "C"
        return np.asarray(np.memmap(path, dtype, "c", file.tell(), shape, order))


def is_sound(folder: Path) -> bool:
    """Whether a folder holds exactly what its manifest says, byte for byte."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest == _manifest(folder))
    except (OSError, ValueError):
        return False


def replace_folder(new: Path, target: Path) -> None:
    """Put `new` in the place of `target`. What was there is moved aside first and then removed."""
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
        target.replace(old / target.name)
        shutil.rmtree(old, ignore_errors=True)
    new.replace(target)


def _fill(folder: Path, build: Callable[[Path], None]) -> Path:
    try:
        build(folder)
        (folder / MANIFEST).write_text(json.dumps(_manifest(folder)), encoding="utf-8")
    except OSError as error:  # errors of reading were reported before this, so the disk is full or similar
        raise DataError(f"{folder}: {error.strerror or error}") from None
    return folder


def _manifest(folder: Path) -> dict[str, list[int]]:
    """Length and checksum of every file but the manifest itself."""
    return {path.name: _fingerprint(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST}


def _fingerprint(path: Path) -> list[int]:
    length = checksum = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            length += len(block)
            checksum = zlib.crc32(block, checksum)
    return [length, checksum]
