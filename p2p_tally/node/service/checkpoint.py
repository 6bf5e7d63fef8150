"""Checkpoints of one node: everything that the next round depends on. A crash at any moment loses no checkpoint.

A file is written under a temporary name, synced to disk, and renamed. The last two are kept. Each contains a digest of
its contents; if that does not match, the file is damaged and the checkpoint before it is used.
"""

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from p2p_tally.files import replacing, sync_folder
from p2p_tally.ids import Digest, digest

log = logging.getLogger(__name__)

KEPT = 2
_PREFIX, _SUFFIX = "checkpoint-", ".safetensors"

# Why a checkpoint of a run with these values is of no use here; None: it is.
Misfit = Callable[[dict[str, str]], str | None]


@dataclass(frozen=True)
class Checkpoint:
    round: int
    tensors: dict[str, Tensor]
    notes: dict[str, Any]  # what is not a tensor: when the channel opened, bytes so far
    written_with: dict[str, str] = field(default_factory=dict)  # the values of the run that wrote it, if it says so


class Checkpoints:
    """The checkpoints in one folder, of one federation."""

    def __init__(
        self, folder: Path, federation: Digest, values: dict[str, str] | None = None, misfit: Misfit | None = None
    ) -> None:
        """`values`: of this run, to be written into each checkpoint. `misfit`: says of the values of another run why
        its checkpoints are of no use; without it only those of this federation are."""
        self.folder = folder
        self.federation = federation
        self.refused = ""  # why a sound one was passed over
        self._values = values or {}
        self._misfit = misfit or (lambda _: "it is of another federation")

    def save(self, checkpoint: Checkpoint, prune: bool = True) -> bool:
        """Write a checkpoint. If that fails: a line in the log and False; the run continues.

        `prune`: delete older ones. Not used when a node was asked to stop: other nodes may not have a checkpoint of
        that round, but they have the regular ones.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            metadata = {
                "round": str(checkpoint.round),
                "federation": self.federation,
                "notes": json.dumps(checkpoint.notes, sort_keys=True),
            }
            if self._values:
                metadata["values"] = json.dumps(self._values)
            metadata["digest"] = _contents_digest(checkpoint.tensors, metadata)
            with replacing(_path(self.folder, checkpoint.round)) as temporary:
                write_tensors(temporary, checkpoint.tensors, metadata)
            sync_folder(self.folder)
        except (OSError, SafetensorError) as error:
            log.error("checkpoint not written: %s", error, extra={"event": "checkpoint-failed"})
            return False
        # Checkpoints of later rounds are from an earlier run: they do not count as the last ones of this run.
        for old in [round for round in _rounds(self.folder) if round <= checkpoint.round][:-KEPT] if prune else []:
            with contextlib.suppress(OSError):
                _path(self.folder, old).unlink(missing_ok=True)
        return True

    def rounds(self) -> list[int]:
        """Rounds that can be loaded, the oldest first. Damaged files are logged and left out."""
        return [round for round in _rounds(self.folder) if self.load(round) is not None]

    def newest_first(self) -> Iterator[Checkpoint]:
        """The checkpoints that can be loaded, one at a time. Damaged files are logged and left out."""
        for round in reversed(_rounds(self.folder)):
            checkpoint = self.load(round)
            if checkpoint is not None:
                yield checkpoint

    def load(self, round: int) -> Checkpoint | None:
        """One checkpoint. If it is damaged or of another federation: a line in the log and None."""
        path = _path(self.folder, round)
        try:
            tensors, metadata = _read(path)
            values = json.loads(metadata.get("values", "{}"))
            if values or metadata["federation"] != self.federation:
                self._check(values)
            return Checkpoint(int(metadata["round"]), tensors, json.loads(metadata["notes"]), values)
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            log.warning(
                "%s passed over: %s", path.name, error, extra={"event": "checkpoint-damaged", "peer": path.name}
            )
            return None

    def _check(self, values: dict[str, str]) -> None:
        why = self._misfit(values) if values else "it is of another federation"
        if why is not None:
            self.refused = why
            raise ValueError(why)


def sound_rounds(folder: Path) -> list[int]:
    """Rounds of the undamaged checkpoints in a folder, of any federation."""
    sound = []
    for round in _rounds(folder):
        with contextlib.suppress(OSError, SafetensorError, ValueError, KeyError):
            _read(_path(folder, round))
            sound.append(round)
    return sound


def _rounds(folder: Path) -> list[int]:
    names = (path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"))
    return sorted(int(name) for name in names if name.isdecimal())


def _path(folder: Path, round: int) -> Path:
    return folder / f"{_PREFIX}{round:08d}{_SUFFIX}"


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of an undamaged file."""
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata() or {})
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    if (
        _contents_digest(tensors, {key: value for key, value in metadata.items() if key != "digest"})
        != metadata["digest"]
    ):
        raise ValueError("its digest does not fit its contents")
    return tensors, metadata


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file and sync it to disk."""
    save_file(tensors, path, metadata)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _contents_digest(tensors: dict[str, Tensor], metadata: dict[str, str]) -> Digest:
    parts: list[bytes | memoryview] = [f"{key}={value}".encode() for key, value in sorted(metadata.items())]
    for name in sorted(tensors):
        tensor = tensors[name]
        parts.append(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        parts.append(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest(*parts)
