"""How a run was made: date, engine, versions, machine, numbers of examples. Kept in the run folder as made.json."""

import json
import os
import platform
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

NAME = "made.json"
PACKAGES = ("p2p-tally", "torch", "numpy")


@dataclass(frozen=True)
class Provenance:
    """Every field may be unknown: runs of earlier versions have no such file."""

    date: str | None = None  # when the run ended, UTC
    engine: str | None = None  # exact, stacked, or launch
    device: str | None = None
    versions: dict[str, str] | None = None
    cpu: str | None = None
    cores: int | None = None
    classes: int | None = None
    parameters: int | list[int] | None = None  # of a peer's model; of each, by rank, where they differ
    private: int | None = None  # examples of all peers together; of text, windows
    probes: int | None = None
    test: int | None = None

    def write(self, folder: Path) -> None:
        (folder / NAME).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def one_or_each(sizes: list[int]) -> int | list[int]:
    """The sizes of the peers' models, as `Provenance.parameters` holds them."""
    return sizes[0] if len(set(sizes)) == 1 else sizes


def record_provenance(engine: str, device: str | None = None) -> Provenance:
    """The date, versions and machine of this process."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return Provenance(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        engine=engine,
        device=device,
        versions=versions,
        cpu=_cpu(),
        cores=os.cpu_count(),
    )


def read_provenance(folder: Path) -> Provenance:
    """How a finished run was made. Without a made.json: the date of its summary and the size of its models."""
    try:
        values = json.loads((folder / NAME).read_text(encoding="utf-8"))
        if not isinstance(values["date"], str):
            raise TypeError("no date")
        found = Provenance(**{key: value for key, value in values.items() if key in Provenance.__dataclass_fields__})
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        ended = datetime.fromtimestamp((folder / "summary.json").stat().st_mtime, UTC)
        found = Provenance(date=ended.strftime("%Y-%m-%d %H:%M"))
    return found if found.parameters is not None else replace(found, parameters=_model_size(folder))


def _model_size(folder: Path) -> int | None:
    """From the header of a saved model: a length of 8 bytes, then JSON with the shape of every tensor."""
    try:
        with (folder / "node-0.safetensors").open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    except (OSError, ValueError):
        return None
    total = 0
    for name, tensor in header.items():
        if name != "__metadata__":
            size = 1
            for length in tensor["shape"]:
                size *= length
            total += size
    return total


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
