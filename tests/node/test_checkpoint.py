"""Checkpoints: back as they were, two of them, and neither damage nor a full disk loses the one before."""

import errno
import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from p2p_tally.ids import Digest
from p2p_tally.node.service import checkpoint as module
from p2p_tally.node.service.checkpoint import Checkpoint, Checkpoints, sound_rounds

FEDERATION = Digest("f" * 64)
NOTES = {"warmup": None, "payload": 2**40, "framed": 3}


def tensors(seed: int = 0, size: int = 7) -> dict[str, torch.Tensor]:
    """One of each kind that a learner's state has."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "parameters": torch.randn(size, generator=generator),
        "generator": generator.get_state()[:64],  # uint8
        "optimiser.step": torch.tensor(2**40 + seed),  # int64, a scalar
        "optimiser.rate": torch.tensor(0.1),
        "anchor": torch.tensor([float("inf"), -0.0, float("nan"), 1e-45]),
        "empty": torch.empty(0),
        "matrix": torch.arange(6).reshape(2, 3).t(),  # not contiguous
    }


def state(round: int, **changes: Any) -> Checkpoint:
    return Checkpoint(round, {name: value.contiguous() for name, value in tensors(round).items()} | changes, NOTES)


def same(one: Checkpoint | None, other: Checkpoint) -> bool:
    """Bit for bit."""
    if one is None or (one.round, one.notes, one.tensors.keys()) != (other.round, other.notes, other.tensors.keys()):
        return False
    for name, value in other.tensors.items():
        found = one.tensors[name]
        if found.dtype != value.dtype or found.shape != value.shape:
            return False
        if found.numpy().tobytes() != value.numpy().tobytes():
            return False
    return True


def file_of(folder: Path, round: int) -> Path:
    return folder / f"checkpoint-{round:08d}.safetensors"


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "some" / "folder", FEDERATION)


def test_back_as_it_was(checkpoints: Checkpoints) -> None:
    assert checkpoints.rounds() == []
    assert checkpoints.save(state(5))
    assert same(checkpoints.load(5), state(5))
    assert not same(checkpoints.load(5), state(6))  # the comparison itself can tell
    assert [path.name for path in checkpoints.folder.iterdir()] == ["checkpoint-00000005.safetensors"]


def test_the_last_two_are_kept(checkpoints: Checkpoints) -> None:
    for round in (5, 10, 15, 20):
        assert checkpoints.save(state(round))
    assert checkpoints.rounds() == [15, 20]
    assert same(checkpoints.load(15), state(15)) and same(checkpoints.load(20), state(20))
    assert checkpoints.load(5) is None
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == [
        file_of(checkpoints.folder, round).name for round in (15, 20)
    ]


def test_rounds_are_sorted_as_numbers(checkpoints: Checkpoints) -> None:
    for round in (99_999_999, 100_000_000):
        assert checkpoints.save(state(round))
    assert checkpoints.rounds() == [99_999_999, 100_000_000]


def test_one_that_was_just_written_is_never_the_one_to_go(checkpoints: Checkpoints) -> None:
    """A run that begins again, or goes on from an older round than it had reached."""
    for round in (90, 100):
        checkpoints.save(state(round))
    for round in (10, 20, 30):
        assert checkpoints.save(state(round))
        assert same(checkpoints.load(round), state(round))
    assert {20, 30} <= set(checkpoints.rounds())
    assert checkpoints.load(10) is None


def test_saved_twice_the_later_counts(checkpoints: Checkpoints) -> None:
    checkpoints.save(state(5))
    changed = state(5, parameters=torch.zeros(3))
    assert checkpoints.save(changed)
    assert same(checkpoints.load(5), changed)


def test_other_files_are_left_alone(checkpoints: Checkpoints) -> None:
    checkpoints.folder.mkdir(parents=True)
    strange = ["checkpoint-x.safetensors", "checkpoint-²³.safetensors", "notes.txt", "checkpoint-00000001.part"]
    for name in strange:
        (checkpoints.folder / name).write_text("not ours")
    for round in (5, 10, 15):
        assert checkpoints.save(state(round))
    assert checkpoints.rounds() == [10, 15]
    assert all((checkpoints.folder / name).read_text() == "not ours" for name in strange)


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    match how:
        case "middle":
            content[len(content) // 2] ^= 1
        case "last":
            content[-1] ^= 0x80
        case "half":
            del content[len(content) // 2 :]
        case "short":
            del content[-1:]
        case "nothing":
            content.clear()
        case "zeros":
            content[:] = bytes(len(content))
        case "longer":
            content += b"\x00"
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["middle", "last", "half", "short", "nothing", "zeros", "longer"])
def test_a_damaged_file_is_passed_over_for_the_one_before(
    how: str, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints.save(state(5))
    checkpoints.save(state(10))
    damage(file_of(checkpoints.folder, 10), how)
    with caplog.at_level(logging.WARNING):
        assert checkpoints.load(10) is None
    (record,) = caplog.records
    assert record.getMessage().startswith("checkpoint-00000010.safetensors passed over: ")
    assert checkpoints.rounds() == [5]
    assert sound_rounds(checkpoints.folder) == [5]
    assert same(checkpoints.load(5), state(5))


def test_no_flipped_byte_goes_unseen(checkpoints: Checkpoints) -> None:
    """Every byte of a file, header included: each is noticed, and none makes more trouble than a file passed over."""
    small = Checkpoint(5, {"parameters": torch.tensor([1.0, 2.0]), "step": torch.tensor(3)}, {"warmup": 4})
    checkpoints.save(small)
    path = file_of(checkpoints.folder, 5)
    content = path.read_bytes()
    unseen = []
    for at in range(len(content)):
        for flip in (0x01, 0xFF):
            path.write_bytes(content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :])
            found = checkpoints.load(5)
            if found is not None and not same(found, small):
                unseen.append(at)
    assert unseen == []
    path.write_bytes(content)
    assert same(checkpoints.load(5), small)


def test_another_federations_is_refused(checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints.save(state(5))
    other = Checkpoints(checkpoints.folder, Digest("0" * 64))
    assert other.load(5) is None
    assert "it is of another federation" in caplog.text
    assert other.rounds() == []
    assert sound_rounds(checkpoints.folder) == [5]  # sound it is, whosever it is


def test_a_plain_model_file_is_no_checkpoint(checkpoints: Checkpoints) -> None:
    checkpoints.folder.mkdir(parents=True)
    module.save_file({"parameters": torch.zeros(3)}, file_of(checkpoints.folder, 5))
    assert checkpoints.load(5) is None
    assert checkpoints.rounds() == [] and sound_rounds(checkpoints.folder) == []


def test_none_where_there_is_none(checkpoints: Checkpoints) -> None:
    assert checkpoints.load(3) is None
    assert sound_rounds(checkpoints.folder) == []


def test_a_full_disk_is_told_and_leaves_the_old_ones(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for round in (5, 10):
        checkpoints.save(state(round))

    def write_some(path: Path, *_: Any) -> None:
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "write_tensors", write_some)
    assert checkpoints.save(state(15)) is False
    assert "checkpoint not written: [Errno 28] No space left on device" in caplog.text
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == [
        file_of(checkpoints.folder, round).name for round in (5, 10)
    ]
    assert same(checkpoints.load(5), state(5)) and same(checkpoints.load(10), state(10))
    monkeypatch.undo()
    assert checkpoints.save(state(15))  # room again
    assert checkpoints.rounds() == [10, 15]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    assert Checkpoints(tmp_path / "taken", FEDERATION).save(state(5)) is False


def test_a_rename_that_fails_leaves_no_part(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save(state(5))

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "rename", refuse)
    assert checkpoints.save(state(10)) is False
    assert [path.name for path in checkpoints.folder.iterdir()] == ["checkpoint-00000005.safetensors"]


def test_it_is_on_the_disk_before_it_has_its_name(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written, synced, renamed, and the folder synced: in this order."""
    steps: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def synced(handle: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name}")
        fsync(handle)

    def renamed(self: Path, target: Path) -> Path:
        steps.append(f"rename {self.name} {target.name}")
        return rename(self, target)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc here to tell which file was synced")
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    assert checkpoints.save(state(5))
    name = "checkpoint-00000005"
    assert steps == [f"sync {name}.part", f"rename {name}.part {name}.safetensors", "sync folder"]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command here")
    if mounted.returncode:
        pytest.skip(f"may not mount a tmpfs here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_really_full(tiny_disk: Path) -> None:
    checkpoints = Checkpoints(tiny_disk / "checkpoints", FEDERATION)
    for round in (5, 10):
        assert checkpoints.save(state(round))
    before = sorted(checkpoints.folder.iterdir())
    assert checkpoints.save(state(15, parameters=torch.ones(100_000))) is False
    assert sorted(checkpoints.folder.iterdir()) == before
    assert same(checkpoints.load(5), state(5)) and same(checkpoints.load(10), state(10))
    # A small one still fits, and the next is tried as if nothing had happened.
    assert checkpoints.save(state(20))
    assert checkpoints.rounds() == [10, 20]
