"""JSON lines: what they hold, standard output that is kept for them, and a disk that may be full."""

import errno
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.json_lines import LineFile, json_value, stdout_for_lines, write_line


def test_json_has_no_nan_and_no_infinity() -> None:
    values = {"a": [1.5, math.nan], "b": (math.inf, -math.inf, 2), "c": {"d": "NaN", "e": None, "f": True}}
    assert json_value(values) == {"a": [1.5, None], "b": [None, None, 2], "c": {"d": "NaN", "e": None, "f": True}}


def test_standard_output_is_kept_for_lines(capsys: pytest.CaptureFixture[str]) -> None:
    write_line("before")
    with stdout_for_lines():
        print("from a model")
        write_line("a line")
    print("after")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("before\na line\nafter\n", "from a model\n")


class Disk:
    """As much room as there is: what is over is written in part, and then refused."""

    def __init__(self, room: int, write: Callable[[int, bytes], int] = os.write) -> None:
        self.room = room
        self._write = write

    def write(self, descriptor: int, content: bytes) -> int:
        if content and not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(descriptor, content[: self.room])
        self.room -= written
        return written


def test_lines_are_added_behind_those_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("first\n")
    file = LineFile(path)
    file.add("second\n")
    assert path.read_text() == "first\nsecond\n"
    file.sync()
    file.close()
    file.close()


def test_a_full_disk_is_told_of_once_and_loses_nothing_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(room=9)
    monkeypatch.setattr(os, "write", disk.write)
    path = tmp_path / "lines"
    file = LineFile(path)
    for line in ("first\n", "second\n", "third\n"):
        file.add(line)
    assert path.read_text() == "first\n"  # no half line
    [told] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert told.getMessage() == f"{path} not written: No space left on device; tried again with every line"
    with pytest.raises(OSError, match="No space left"):
        file.sync()
    disk.room = 100
    file.add("fourth\n")
    assert path.read_text() == "first\nsecond\nthird\nfourth\n"
    file.close()


def test_what_never_fits_is_said_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", Disk(room=0).write)
    file = LineFile(tmp_path / "lines")
    file.add("first\n")
    with pytest.raises(OSError, match="No space left") as refusal:
        file.close()
    assert refusal.value.filename == str(tmp_path / "lines")
    file.close()


@given(st.lists(st.tuples(st.text("ab", max_size=6), st.integers(0, 9))))
def test_the_file_is_always_whole_lines_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Whatever room comes when: what is there is a beginning of what was added."""
    path = tmp_path_factory.mktemp("lines") / "lines"
    added = ""
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(room=0)
        patch.setattr(os, "write", disk.write)
        file = LineFile(path)
        for text, room in steps:
            disk.room += room
            before, added = len(path.read_text()), added + text + "\n"
            file.add(text + "\n")
            there = path.read_text()
            assert added.startswith(there) and (not there or there.endswith("\n")) and len(there) >= before
