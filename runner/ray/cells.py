"""The cells of a sweep on Ray: each a process at an outpost, its folder mirrored into the sweep's as it grows."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from p2p_tally.config import SimulationSettings
from p2p_tally.files import write_whole
from p2p_tally.runner.ray.cluster import LostError, RayCluster, Request
from p2p_tally.runner.ray.remote_process import LOG, RUN, Told
from p2p_tally.runner.runs.folder import CHECKPOINTS, keep_newest

if TYPE_CHECKING:
    from p2p_tally.runner.experiments.sweep import Job


class RayCells:
    """Where the jobs of a sweep are run."""

    def __init__(self, address: str, request: Request, at_once: int | None) -> None:
        self.at_once = at_once
        self._cluster = RayCluster(address, request)

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.__exit__(kind, error, trace)

    async def run(self, job: "Job", settings: SimulationSettings, started: Callable[[], None]) -> int:
        outpost = self._cluster.outpost()
        try:
            _, folder = await outpost.settle()
            started()
            mirror = Mirror(job.folder, job.log)
            files = {"cell.toml": job.config.read_bytes(), **(mirror.contents() if job.resumes else {})}
            arguments = job.arguments(settings, f"{folder}/cell.toml", f"{folder}/{RUN}")
            code = 1
            async for told in outpost.run(self._cluster.order(arguments, files)):
                mirror.take(told)
                code = code if told.code is None else told.code
            return code
        except LostError as error:
            started()
            job.log.write_text(f"lost: {error}\n", encoding="utf-8")
            return 1
        finally:
            await outpost.leave()


class Mirror:
    """A run folder that another machine's is copied into, line by line and file by file.

    Cut off at any moment, it holds a run that can be gone on with, as the other would.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder = folder
        self.log = log
        self._record = folder / "rounds.jsonl"
        self._begun = False

    def contents(self) -> dict[str, bytes]:
        """What the other machine needs to go on."""
        wanted = [self.folder / "config.toml", self._record, *(self.folder / CHECKPOINTS).glob("*.safetensors")]
        return {f"{RUN}/{path.relative_to(self.folder)}": path.read_bytes() for path in wanted if path.is_file()}

    def take(self, told: Told) -> None:
        if told.line:
            self._add(told.line)
        # The summary last: where it stands the run is finished.
        for name in sorted(told.files, key=lambda name: (name.endswith("summary.json"), name)):
            if name == LOG:
                self.log.write_bytes(told.files[name])
            elif name.startswith(f"{RUN}/"):
                self._put(self.folder / name.removeprefix(f"{RUN}/"), told.files[name])

    def _add(self, line: str) -> None:
        """A line of the record. The first one says where the run goes on: what was there of later rounds goes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._begun and self._record.is_file():
            first = json.loads(line)["round"]
            before = self._record.read_text(encoding="utf-8").splitlines(keepends=True)
            write_whole(self._record, "".join(text for text in before if _round(text) < first).encode())
        self._begun = True
        with self._record.open("a", encoding="utf-8") as record:
            record.write(line + "\n")

    def _put(self, path: Path, content: bytes) -> None:
        if path.name == "summary.json":
            content = json.dumps({**json.loads(content), "run": str(self.folder)}).encode() + b"\n"
        write_whole(path, content)
        if path.parent.name == CHECKPOINTS:
            keep_newest(path)
        elif path.name == "summary.json":
            shutil.rmtree(self.folder / CHECKPOINTS, ignore_errors=True)


def _round(text: str) -> float:
    """Of a line of a record; beyond all rounds where it was cut off."""
    try:
        return float(json.loads(text)["round"])
    except ValueError:
        return float("inf")
