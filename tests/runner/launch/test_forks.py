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
from p2p_tally.runner.simulation.simulate import simulate

pytestmark = pytest.mark.skipif(not can_fork(), reason="daemons are not forked on this platform")


def processes(folder: Path) -> list[int]:
    """Those of the daemons that run."""
    return [int(path.read_text()) for path in folder.glob("*.pid")]


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_forked_and_separate_daemons_compute_the_same(tmp_path: Path) -> None:
    federation = small(nodes=2, rounds=6, merge_every=3)
    forked = launch(federation, ServiceSettings(out=tmp_path / "forked"), where=LocalDaemons(forked=True))
    separate = launch(federation, ServiceSettings(out=tmp_path / "separate"), where=LocalDaemons(forked=False))
    assert forked.parameters_sha256 == separate.parameters_sha256
    assert [line.framed_bytes for line in forked.lines] == [line.framed_bytes for line in separate.lines]
    assert forked.own_accuracy.tolist() == separate.own_accuracy.tolist() == simulate(federation).own_accuracy.tolist()


def test_without_the_process_that_forked_them_daemons_end(tmp_path: Path) -> None:
    """Nobody would hear how they end. They have too many rounds to end before they are looked at."""
    daemons: list[int] = []

    def kill(_: RoundLine) -> None:
        if daemons:
            return
        daemons.extend(processes(tmp_path / "run"))
        (nursery,) = {parent(process) for process in daemons}
        assert nursery != os.getpid()
        assert len(list(Path(f"/proc/{nursery}/task").iterdir())) == 1  # a fork with several threads may hang
        assert {os.getsid(process) for process in daemons} == set(daemons)  # a Ctrl-C reaches none of them
        os.kill(nursery, signal.SIGKILL)

    federation = small(nodes=2, rounds=100_000)
    with pytest.raises(LaunchFailed, match="ended with code -9"):
        launch(federation, ServiceSettings(out=tmp_path / "run"), kill, where=LocalDaemons(forked=True))
    assert len(daemons) == 2
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{process}").exists() for process in daemons):
        assert time.monotonic() < deadline, "a daemon has outlived its launch"
        time.sleep(0.05)
