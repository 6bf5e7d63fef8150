"""Real processes, really killed: the others finish; the one that died comes back and is in step after a merge."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import open_listener

from p2p_tally.config import Federation
from p2p_tally.runner.simulation.simulate import simulate

SCRIPT = Path(__file__).with_name("killed_node.py")
NODES = 3


class Processes:
    """Daemons of one federation, each a process."""

    def __init__(self, out: Path, environment: dict[str, str], **options: Any) -> None:
        self.out = out
        self.environment = environment
        self.options = {"topology": "mesh", "nodes": NODES, "rounds": 24, "warmup": 4, "merge-every": 8}
        self.options |= {"local-steps": 2, "eval-every": 21, "checkpoint-every": 8, "barrier-timeout": 10}
        self.options |= {key.replace("_", "-"): value for key, value in options.items()}
        self.listeners = [open_listener() for _ in range(NODES)]
        self.running: dict[int, subprocess.Popen[str]] = {}

    def address(self, rank: int) -> str:
        return f"127.0.0.1:{self.listeners[rank].getsockname()[1]}"

    def start(self, rank: int, *, moment: str | None = None, at: int = 0, resume: bool = False) -> None:
        peers = ",".join(f"node-{peer}={self.address(peer)}" for peer in range(NODES) if peer != rank)
        descriptor = self.listeners[rank].fileno()
        named = {"name": f"node-{rank}", "rank": rank, "listen": self.address(rank), "peers": peers, "out": self.out}
        command = [str(SCRIPT), moment, str(at)] if moment else ["-m", "p2p_tally"]
        command += ["node", "--json", f"--listen-fd={descriptor}"]
        command += [f"--{key}={value}" for key, value in {**self.options, **named}.items()]
        command += ["--resume"] if resume else []
        with (self.out / f"node-{rank}.log").open("a") as log:
            self.running[rank] = subprocess.Popen(
                [sys.executable, *command],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                pass_fds=[descriptor],
                env=self.environment,
            )

    def result(self, rank: int) -> dict[str, Any]:
        output, _ = self.running[rank].communicate(timeout=120)
        assert self.running[rank].returncode == 0, self.log(rank)
        return json.loads(output.splitlines()[-1])

    def log(self, rank: int) -> str:
        return (self.out / f"node-{rank}.log").read_text()

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        for listener in self.listeners:
            listener.close()


@pytest.fixture
def environment(quiet_environment: dict[str, str]) -> dict[str, str]:
    return quiet_environment


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_the_dead_comes_back_and_is_in_step_after_a_merge(
    precision: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    options = {"rounds": 1600, "merge_every": 16, "checkpoint_every": 100, "eval_every": 999}
    processes = Processes(tmp_path, environment, merge_precision=precision, **options)
    try:
        for rank in range(NODES):
            processes.start(rank, moment="inside-merge" if rank == 2 else None, at=16)
        assert processes.running[2].wait(timeout=120) == -signal.SIGKILL
        processes.start(2, resume=True)
        results = {rank: processes.result(rank) for rank in range(NODES)}
        assert all(result["finished"] for result in results.values())
        # It died before its first checkpoint: it begins anew, but at the others' round.
        assert "from checkpoint 0" in processes.log(2)
        # Rounds end with a merge (1600 is a multiple of 16): whoever took part in it holds the same parameters.
        assert len({result["parameters_sha256"] for result in results.values()}) == 1, processes.log(2)
        # Its change since what it began with says nothing to the others: once, all send whole parameters.
        assert ("bases differ" in processes.log(0)) == (precision != "float32")
    finally:
        processes.end()


@pytest.mark.parametrize("moment", ["before-vote", "before-merge", "inside-merge"])
def test_without_the_dead_node_the_others_finish(moment: str, tmp_path: Path, environment: dict[str, str]) -> None:
    processes = Processes(tmp_path, environment)
    try:
        for rank in range(NODES):
            processes.start(rank, moment=moment if rank == 1 else None, at=16)
        results = {rank: processes.result(rank) for rank in (0, 2)}
        assert processes.running[1].wait(timeout=10) == -signal.SIGKILL
        assert all(result["finished"] for result in results.values())
        # The kernel tells of the death at once: nobody even waited for a deadline.
        assert all(result["missed"] == 0 for result in results.values())
        assert len({result["parameters_sha256"] for result in results.values()}) == 1
    finally:
        processes.end()


def test_a_frozen_node_costs_a_deadline_and_catches_up(tmp_path: Path, environment: dict[str, str]) -> None:
    processes = Processes(tmp_path, environment, rounds=1500, barrier_timeout=1, eval_every=999, checkpoint_every=50)
    try:
        for rank in range(NODES):
            processes.start(rank)
        wait_for(tmp_path / "checkpoints" / "node-0", "checkpoint-*", 60)
        processes.running[2].send_signal(signal.SIGSTOP)
        wait_for_log(processes, 0, "in vain for node-2", 60)
        wait_for(tmp_path / "checkpoints" / "node-0", "checkpoint-00000[3-9]*", 60)
        processes.running[2].send_signal(signal.SIGCONT)
        results = [processes.result(rank) for rank in range(NODES)]
        assert all(result["finished"] for result in results)
        assert "behind: from round" in processes.log(2)
    finally:
        processes.end()


def wait_for(folder: Path, pattern: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not list(folder.glob(pattern)):
        assert time.monotonic() < until, f"no {pattern} in {folder}"
        time.sleep(0.05)


def wait_for_log(processes: Processes, rank: int, text: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while text not in processes.log(rank):
        assert time.monotonic() < until, processes.log(rank)
        time.sleep(0.05)


def test_stopped_and_resumed_equals_never_stopped(tmp_path: Path, environment: dict[str, str]) -> None:
    """SIGTERM to all, start again with --resume: the same bits as a run that was never stopped.

    Coded merges by drift have the most to carry over: the base of the changes, what rounding kept back, and when the
    last merge was.
    """
    merging = {"merge_precision": "int8", "merge_when": "drift", "merge_threshold": 0.95}
    processes = Processes(tmp_path, environment, rounds=120, checkpoint_every=10, **merging)
    try:
        for rank in range(NODES):
            processes.start(rank)
        wait_for(tmp_path / "checkpoints" / "node-0", "checkpoint-*", 60)
        for process in processes.running.values():
            process.send_signal(signal.SIGTERM)
        results = [processes.result(rank) for rank in range(NODES)]
        assert not any(result["finished"] for result in results)
        for rank in range(NODES):
            processes.start(rank, resume=True)
        results = [processes.result(rank) for rank in range(NODES)]
        assert all(result["finished"] for result in results)
    finally:
        processes.end()
    federation = Federation.parse(
        {
            key.replace("-", "_"): value
            for key, value in processes.options.items()
            if "time" not in key and "point" not in key
        }
    )
    assert [result["parameters_sha256"] for result in results] == simulate(federation).parameters_sha256


def test_the_port_is_named_where_it_is_taken(tmp_path: Path, environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "p2p_tally", "node", f"--listen={address}", f"--out={tmp_path}", "--rounds=2"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith(f"p2p-tally: --listen {address}: ")
    assert os.strerror(98).lower() in done.stderr.lower()
