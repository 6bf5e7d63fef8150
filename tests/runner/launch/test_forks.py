"""Daemons that are forked from one process: the same bits as separate ones, and none outlives what it depends on."""

import os
import signal
import time
from pathlib import Path

import pytest
from conftest import small

from p2p_tally.config import ServiceSettings
from p2p_tally.runner.launch.daemons import LocalDaemons
from p2p_tally.runner.launch.forks import can_fork
from p2p_tally.runner.launch.launcher import LaunchFailed, launch
from p2p_tally.runner.runs.run import RoundLine

pytestmark = pytest.mark.skipif(not can_fork(), reason="daemons are not forked on this platform")


def processes(folder: Path) -> list[int]:
    """Those of the daemons that run."""
    return [int(path.read_text()) for path in folder.glob("*.pid")]


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_forked_and_separate_daemons_compute_the_same(tmp_path: Path) -> None:
    federation = small(nodes=2, rounds=6, merge_every=3)
    seen: list[tuple[set[int], int]] = []

    def look(_: RoundLine) -> None:
        daemons = processes(tmp_path / "forked")
        parents = {parent(process) for process in daemons}
        seen.append((parents, len(list(Path(f"/proc/{min(parents)}/task").iterdir()))))
        assert {os.getsid(process) for process in daemons} == set(daemons)  # a Ctrl-C reaches none of them

    forked = launch(federation, ServiceSettings(out=tmp_path / "forked"), look, where=LocalDaemons(forked=True))
    separate = launch(federation, ServiceSettings(out=tmp_path / "separate"), where=LocalDaemons(forked=False))
    assert forked.parameters_sha256 == separate.parameters_sha256
    assert [line.framed_bytes for line in forked.lines] == [line.framed_bytes for line in separate.lines]
    parents, threads = seen[0]
    assert len(parents) == 1 and parents != {os.getpid()}
    assert threads == 1  # a fork of a process with several threads may hang


def test_without_the_process_that_forked_them_daemons_end(tmp_path: Path) -> None:
    """Nobody would hear how they end."""
    daemons: list[int] = []

    def kill(_: RoundLine) -> None:
        if not daemons:
            daemons.extend(processes(tmp_path / "run"))
            os.kill(parent(daemons[0]), signal.SIGKILL)

    federation = small(nodes=2, rounds=100_000)
    with pytest.raises(LaunchFailed, match="ended with code -9"):
        launch(federation, ServiceSettings(out=tmp_path / "run"), kill, where=LocalDaemons(forked=True))
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{process}").exists() for process in daemons):
        assert time.monotonic() < deadline, "a daemon has outlived its launch"
        time.sleep(0.05)
