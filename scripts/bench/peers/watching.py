"""A program in namespaces of its own, with what it marks and the memory of all its processes.

In its network namespace there is the loopback device alone, which counts its bytes. When the program ends or its time
is over, all processes of its process namespace end with it, detached ones too.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from digits_job import DATA, MARKS

NAMESPACES = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
INSIDE = ["sh", "-c", 'ip link set lo up; "$@"; exit $?', "sh"]  # stays, so that orphans are reaped


@dataclass(frozen=True)
class Watched:
    began: float  # as marks: seconds of the monotonic clock
    marks: list[dict[str, Any]]
    memory: float  # bytes, the most until the last mark: proportional set size (PSS), so shared pages count once
    code: int | None  # None: its time was over
    last_words: str


def namespaces_work() -> bool:
    try:
        return subprocess.run([*NAMESPACES, *INSIDE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def watch(command: Sequence[str | Path], data: Path, folder: Path, limit: float) -> Watched:
    marks, log = folder / "marks.jsonl", folder / "log"
    environment = os.environ | {
        DATA: str(data),
        MARKS: str(marks),
        "OMP_NUM_THREADS": "1",
        "HOME": str(folder),
        "RAY_TMPDIR": str(folder),
    }
    began = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*NAMESPACES, *INSIDE, *command], stdout=file, stderr=subprocess.STDOUT, cwd=folder, env=environment
        )
    samples, over = [(began, 0.0)], False
    try:
        while process.poll() is None:
            before = time.monotonic()
            samples.append((before, _memory(process.pid)))
            now = time.monotonic()
            if now - began > limit:
                over = True
                break
            # Adding memory up takes time from what is measured: at most a twentieth.
            try:
                process.wait(max(0.2, 20 * (now - before)))
            except subprocess.TimeoutExpired:
                continue
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
    lines = marks.read_text(encoding="utf-8").splitlines() if marks.exists() else []
    found = [json.loads(line) for line in lines]
    # Not while it ends: forked processes then touch all that they share, and have it twice for a moment.
    memory = max(used for at, used in samples if not found or at <= found[-1]["at"])
    words = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return Watched(began, found, memory, None if over else process.returncode, "\n".join(words[-8:]))


def _memory(unshare: int) -> float:
    """Of all processes in the process namespace that the only child of `unshare` began."""
    try:
        first = Path(f"/proc/{unshare}/task/{unshare}/children").read_text(encoding="utf-8").split()[0]
        space = Path(f"/proc/{first}/ns/pid").readlink()
    except (OSError, IndexError):
        return 0.0
    total = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns" / "pid").readlink() == space:
                lines = (process / "smaps_rollup").read_text(encoding="utf-8").splitlines()
                total += next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
        except OSError:
            continue  # it has ended
    return total
