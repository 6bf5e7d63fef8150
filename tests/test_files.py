"""Files that are never seen half written, and locks between processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from p2p_tally.files import locked, replacing, write_whole

HOLDS = """
import sys
from pathlib import Path
from p2p_tally.files import locked
with locked(Path(sys.argv[1]), wait=False):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_file_has_its_old_content_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_half_way_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", ["ä\n", "ä\n".encode()])
def test_a_missing_folder_is_made(content: str | bytes, tmp_path: Path) -> None:
    write_whole(tmp_path / "a" / "b" / "file.txt", content)
    assert (tmp_path / "a" / "b" / "file.txt").read_bytes() == b"\xc3\xa4\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other locks")
@pytest.mark.parametrize("name", ["", ".lock"], ids=["a folder", "a file"])
def test_a_lock_is_one_process_s_until_that_process_ends(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    arguments = [sys.executable, "-c", HOLDS, str(path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError), locked(path, wait=False):
            pass
        other.kill()
        other.wait()
        with locked(path, wait=False), pytest.raises(BlockingIOError), locked(path, wait=False):
            pass
        with locked(path, wait=False):
            pass
