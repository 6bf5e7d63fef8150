"""The cells of a sweep on Ray: each a remote process whose run folder is copied into the sweep's while it runs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from p2p_tally.config import SimulationSettings
from p2p_tally.files import write_whole
from p2p_tally.runner.ray.cluster import LostError, RayCluster, Resources
from p2p_tally.runner.ray.remote_process import LOG, RUN, Output
from p2p_tally.runner.runs.folder import CHECKPOINTS, keep_newest

if TYPE_CHECKING:
    from p2p_tally.runner.experiments.sweep import Job


class RayCells:
    """Runs the jobs of a sweep on a cluster."""

    def __init__(self, address: str, resources: Resources, at_once: int | None) -> None:
        self.at_once = at_once
        self._cluster = RayCluster(address, resources)

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.__exit__(kind, error, trace)

    async def run(self, job: "Job", settings: SimulationSettings, started: Callable[[], None]) -> int:
        process = self._cluster.remote_process()
        try:
            _, folder = await process.place()
            started()
            mirror = Mirror(job.folder, job.log)
            files = {"cell.toml": job.config.read_bytes(), **(mirror.contents() if job.resumes else {})}
            arguments = job.arguments(settings, f"{folder}/cell.toml", f"{folder}/{RUN}")
            code = 1
            async for output in process.run(self._cluster.command(arguments, files)):
                mirror.receive(output)
                code = code if output.code is None else output.code
            return code
        except LostError as error:
            started()
            job.log.write_text(f"lost: {error}\n", encoding="utf-8")
            return 1
        finally:
            await process.release()

    async def close(self) -> None:
        """Nothing to do: the cluster is left with the context."""


class Mirror:
    """The copy of a remote run folder: lines and files are added as they arrive.

    It can be cut off at any moment: what is there by then is a run that can be resumed.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder = folder
        self.log = log
        self._record = folder / "rounds.jsonl"
        self._begun = False

    def contents(self) -> dict[str, bytes]:
        """The files that a machine needs to resume the run."""
        wanted = [self.folder / "config.toml", self._record, *(self.folder / CHECKPOINTS).glob("*.safetensors")]
        return {f"{RUN}/{path.relative_to(self.folder)}": path.read_bytes() for path in wanted if path.is_file()}

    def receive(self, output: Output) -> None:
        if output.line:
            self._add(output.line)
        # The summary last: a run folder that has one is finished.
        for name in sorted(output.files, key=lambda name: (name.endswith("summary.json"), name)):
            if name == LOG:
                self.log.write_bytes(output.files[name])
            elif name.startswith(f"{RUN}/"):
                self._put(self.folder / name.removeprefix(f"{RUN}/"), output.files[name])

    def _add(self, line: str) -> None:
        """Add a line of rounds.jsonl. The first one shows where a run resumes: lines from that round on are removed."""
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
    """The round of a line of rounds.jsonl; infinity where the line was cut off."""
    try:
        return float(json.loads(text)["round"])
    except ValueError:
        return float("inf")
