"""Real processes, really killed: the others finish; the one that died comes back and is in step after a merge."""

import json
import os
import signal
import socket
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from conftest import in_process, open_listener, wait_until
from killed_node import FORKED, play

from p2p_tally.config import Federation
from p2p_tally.runner.simulation.simulate import simulate

NODES = 3


class Processes:
    """Daemons of one federation, each a process."""

    def __init__(self, out: Path, **options: Any) -> None:
        self.out = out
        self.options = {"topology": "mesh", "nodes": NODES, "rounds": 24, "warmup": 4, "merge-every": 8}
        self.options |= {"local-steps": 2, "eval-every": 21, "checkpoint-every": 8, "barrier-timeout": 10}
        self.options |= {key.replace("_", "-"): value for key, value in options.items()}
        self.listeners = [open_listener() for _ in range(NODES)]
        self.running: dict[int, ForkServerProcess] = {}

    def address(self, rank: int) -> str:
        return f"127.0.0.1:{self.listeners[rank].getsockname()[1]}"

    def start(self, rank: int, *, moment: str | None = None, at: int = 0, resume: bool = False) -> None:
        peers = ",".join(f"node-{peer}={self.address(peer)}" for peer in range(NODES) if peer != rank)
        named = {"name": f"node-{rank}", "rank": rank, "listen": self.address(rank), "peers": peers, "out": self.out}
        arguments = ["node", "--json", *(f"--{key}={value}" for key, value in {**self.options, **named}.items())]
        arguments += ["--resume"] if resume else []
        files = self.out / f"node-{rank}.out", self.out / f"node-{rank}.log"
        self.running[rank] = FORKED.Process(
            target=play, args=(moment, at, arguments, self.listeners[rank], *files), daemon=True
        )
        self.running[rank].start()

    def code(self, rank: int) -> int | None:
        """How a process ended."""
        self.running[rank].join(120)
        return self.running[rank].exitcode

    def result(self, rank: int) -> dict[str, Any]:
        assert self.code(rank) == 0, self.log(rank)
        return json.loads((self.out / f"node-{rank}.out").read_text().splitlines()[-1])

    def log(self, rank: int) -> str:
        return (self.out / f"node-{rank}.log").read_text()

    def signal(self, rank: int, number: signal.Signals) -> None:
        pid = self.running[rank].pid
        assert pid is not None
        os.kill(pid, number)

    def reaches(self, rank: int, round: int) -> None:
        """Wait until it has a checkpoint of this round or a later one."""
        folder = self.out / "checkpoints" / f"node-{rank}"
        wait_until(
            lambda: any(int(path.stem.rpartition("-")[2]) >= round for path in folder.glob("checkpoint-*.safetensors")),
            f"no checkpoint of round {round}: {self.log(rank)}",
        )

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.join()
        for listener in self.listeners:
            listener.close()


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_the_dead_comes_back_and_is_in_step_after_a_merge(precision: str, tmp_path: Path) -> None:
    options = {"rounds": 480, "merge_every": 16, "checkpoint_every": 50, "eval_every": 479}
    processes = Processes(tmp_path, merge_precision=precision, **options)
    try:
        for rank in range(NODES):
            processes.start(rank, moment="inside-merge" if rank == 2 else None, at=16)
        assert processes.code(2) == -signal.SIGKILL
        processes.reaches(0, 50)  # the others have merged without it
        processes.start(2, resume=True)
        results = {rank: processes.result(rank) for rank in range(NODES)}
        assert all(result["finished"] for result in results.values())
        # It died before its first checkpoint: it begins anew, but at the others' round.
        assert "from checkpoint 0" in processes.log(2)
        # Rounds end with a merge (480 is a multiple of 16): whoever took part in it holds the same parameters.
        assert len({result["parameters_sha256"] for result in results.values()}) == 1, processes.log(2)
        # Its change since what it began with says nothing to the others: once, all send whole parameters.
        assert ("bases differ" in processes.log(0)) == (precision != "float32")
    finally:
        processes.end()


@pytest.mark.parametrize("moment", ["before-vote", "before-merge", "inside-merge"])
def test_without_the_dead_node_the_others_finish(moment: str, tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    try:
        for rank in range(NODES):
            processes.start(rank, moment=moment if rank == 1 else None, at=16)
        results = {rank: processes.result(rank) for rank in (0, 2)}
        assert processes.code(1) == -signal.SIGKILL
        assert all(result["finished"] for result in results.values())
        # The kernel tells of the death at once: nobody even waited for a deadline.
        assert all(result["missed"] == 0 for result in results.values())
        assert len({result["parameters_sha256"] for result in results.values()}) == 1
    finally:
        processes.end()


def test_a_frozen_node_costs_a_deadline_and_catches_up(tmp_path: Path) -> None:
    processes = Processes(tmp_path, rounds=800, barrier_timeout=1, eval_every=799, checkpoint_every=50)
    try:
        for rank in range(NODES):
            processes.start(rank)
        processes.reaches(0, 50)
        processes.signal(2, signal.SIGSTOP)
        wait_until(lambda: "in vain for node-2" in processes.log(0), "nobody has missed it")
        processes.reaches(0, 150)
        processes.signal(2, signal.SIGCONT)
        results = [processes.result(rank) for rank in range(NODES)]
        assert all(result["finished"] for result in results)
        assert "behind: from round" in processes.log(2)
    finally:
        processes.end()


def test_stopped_and_resumed_equals_never_stopped(tmp_path: Path) -> None:
    """SIGTERM to all, start again with --resume: the same bits as a run that was never stopped.

    Coded merges by drift have the most to carry over: the base of the changes, what rounding kept back, and when the
    last merge was.
    """
    merging = {"merge_precision": "int8", "merge_when": "drift", "merge_threshold": 0.95}
    processes = Processes(tmp_path, rounds=120, checkpoint_every=50, **merging)
    try:
        for rank in range(NODES):
            processes.start(rank, moment="asked-to-stop", at=45)
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


def test_the_port_is_named_where_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ["node", f"--listen={address}", f"--out={tmp_path}", "--rounds=2"]
        code, _, err = in_process(arguments, monkeypatch, capsys)
    assert code == 2
    assert err.strip().splitlines()[-1].startswith(f"p2p-tally: --listen {address}: ")
    assert os.strerror(98).lower() in err.lower()
