"""Where the parameters are that a model begins with: --init. Which file is whose; no torch is needed."""

from pathlib import Path

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName, digest, file_name

SUFFIX = ".safetensors"


def start_file(federation: Federation, name: NodeName) -> Path | None:
    """The file that this node begins with: the one for all, or in a run folder its own."""
    if federation.init is None:
        return None
    path = federation.init
    return path / f"{file_name(name)}{SUFFIX}" if path.is_dir() else path


def check_start_file(federation: Federation) -> None:
    """Refuse a file that is not there, and a folder of different models where all must begin alike."""
    path = federation.init
    if path is None:
        return
    if not path.exists():
        raise ConfigError(f"--init {path}: no such file; accepted is a safetensors file, or the folder of a run")
    if path.is_dir() and federation.start == "common":
        raise ConfigError(
            f"--init {path}: a folder, from which every node takes its own model, and these nodes begin alike; "
            "accepted is one file for all, or --start own"
        )


def start_digests(federation: Federation) -> list[bytes]:
    """Digests of the files that this federation begins with: a checkpoint is of these alone."""
    path = federation.init
    if path is None:
        return []
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    return [digest(file.read_bytes()).encode() for file in files]
