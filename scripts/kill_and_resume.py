"""kill -9 of a node and `--resume`, many times: the others go on, and the one that comes back is in step soon.

Starts a federation of daemons by hand and, again and again, kills a random one at a random moment and starts it again.
All are asked for their rounds all the time, until 30 rounds after the one that came back is in step. Wanted, each time:

- no other node stands still for longer than one deadline;
- the node that came back is in step (at most one round from the others, and nobody misses anybody) within one deadline
  and the time of two rounds after it began to play.

    python scripts/kill_and_resume.py [--times 100] [--nodes 3] [--topology mesh] [--deadline 10] [--seed 0]
"""

import argparse
import contextlib
import json
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.05
PATIENCE = 300.0  # seconds for a process to start, or to be in step, on a busy machine
ROUNDS_AFTER = 30  # how long the others are watched after it is in step


@dataclass(frozen=True)
class Status:
    round: int  # the last one finished
    misses: bool  # whether it misses a neighbour


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Daemon:
    """One node as a process."""

    def __init__(self, name: str, rank: int, ports: dict[str, int], folder: Path, options: list[str]) -> None:
        self.name, self._folder, self._admin = name, folder, free_port()
        peers = ",".join(f"{peer}=127.0.0.1:{port}" for peer, port in ports.items() if peer != name)
        self._command = [sys.executable, "-m", "p2p_tally", "node", f"--name={name}", f"--rank={rank}"]
        self._command += [f"--listen=127.0.0.1:{ports[name]}", f"--peers={peers}", f"--admin=127.0.0.1:{self._admin}"]
        self._command += [f"--out={folder}", *options]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self, *options: str) -> None:
        with (self._folder / f"{self.name}.log").open("a") as log:
            self._process = subprocess.Popen([*self._command, *options], stdout=subprocess.DEVNULL, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def status(self) -> Status | None:
        """None if it does not play yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._admin}/status", timeout=60) as answer:
                status = json.load(answer)
        except OSError:
            if self._process is not None and self._process.poll() is not None:
                log = (self._folder / f"{self.name}.log").read_text(encoding="utf-8")
                raise SystemExit(f"{self.name} ended:\n{log[-2000:]}") from None
            return None
        return None if status["phase"] == "waiting" else Status(int(status["round"]), bool(status["missing"]))


class Watch:
    """How far some nodes are, and the longest that one of them stood still."""

    def __init__(self, daemons: list[Daemon]) -> None:
        self._daemons = daemons
        self._last = dict.fromkeys((daemon.name for daemon in daemons), (-1, time.monotonic()))
        self.longest = 0.0  # seconds without a new round, as far as it was seen

    def look(self) -> list[Status]:
        found = []
        for daemon in self._daemons:
            status, now = daemon.status(), time.monotonic()
            last, since = self._last[daemon.name]
            if last >= 0:
                self.longest = max(self.longest, now - since)
            if status is None:
                raise SystemExit(f"{daemon.name}, which nobody killed, does not answer")
            if status.round > last:
                self._last[daemon.name] = status.round, now
            found.append(status)
        return found

    def look_until(self, done: Callable[[list[Status]], bool]) -> bool:
        """Look again and again. False: it took too long."""
        until = time.monotonic() + PATIENCE
        while not done(self.look()):
            if time.monotonic() > until:
                return False
            time.sleep(POLL_SECONDS)
        return True


def are_in_step(victim: Status | None, others: list[Status]) -> bool:
    if victim is None or victim.misses or any(other.misses for other in others):
        return False
    return abs(victim.round - statistics.median_low(other.round for other in others)) <= 1


@dataclass(frozen=True)
class Measured:
    """What one kill cost."""

    stood_still: float  # the longest of the others
    in_step: float  # from when the node began to play again
    usual: float  # the time of a round before


def once(victim: Daemon, others: list[Daemon], moment: float, away: float) -> Measured | None:
    """Kill the victim and start it again. None: it was not in step after a long time."""
    watch, started = Watch(others), time.monotonic()
    first = watch.look()[0].round
    watch.look_until(lambda found: found[0].round >= first + 10 and time.monotonic() >= started + moment)
    usual = (time.monotonic() - started) / (watch.look()[0].round - first)
    watch = Watch(others)  # what came before the kill does not count
    watch.look()
    victim.kill()
    killed = time.monotonic()
    watch.look_until(lambda _: time.monotonic() >= killed + away)
    victim.start("--resume")
    if not watch.look_until(lambda _: victim.status() is not None):
        return None
    began = time.monotonic()
    if not watch.look_until(lambda found: are_in_step(victim.status(), found)):
        return None
    in_step = time.monotonic() - began
    so_far = [status.round for status in watch.look()]
    after = [round + ROUNDS_AFTER for round in so_far]
    if not watch.look_until(lambda found: all(status.round >= end for status, end in zip(found, after, strict=True))):
        return None
    return Measured(watch.longest, in_step, usual)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--topology", default="mesh")
    parser.add_argument("--deadline", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the daemons are ended too
    generator, failed = random.Random(arguments.seed), 0
    options = ["--rounds=10000000", "--warmup=0", "--merge-every=20", "--eval-every=1000000", "--checkpoint-every=50"]
    options += [f"--topology={arguments.topology}", f"--barrier-timeout={arguments.deadline}"]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        ports = {f"node-{rank}": free_port() for rank in range(arguments.nodes)}
        daemons = [Daemon(name, rank, ports, Path(folder), options) for rank, name in enumerate(ports)]
        for daemon in daemons:
            running.callback(daemon.kill)
        while any(daemon.status() is None for daemon in daemons):
            time.sleep(POLL_SECONDS)
        measured = []
        for number in range(1, arguments.times + 1):
            victim = generator.choice(daemons)
            others = [daemon for daemon in daemons if daemon is not victim]
            cost = once(victim, others, generator.uniform(0, 1), generator.uniform(0, 2))
            if cost is None:
                raise SystemExit(f"{number:3} {victim.name}: not in step after {PATIENCE:.0f} s")
            measured.append(cost)
            good = cost.stood_still <= arguments.deadline and cost.in_step <= arguments.deadline + 2 * cost.usual
            failed += not good
            print(
                f"{number:3} {victim.name}: others stood still {cost.stood_still:5.2f} s at most, in step "
                f"{cost.in_step:5.2f} s after it began (rounds of {cost.usual * 1e3:.0f} ms)"
                f"{'' if good else '   NOT AS WANTED'}",
                flush=True,
            )
    for what, values in (
        ("others stood still", [cost.stood_still for cost in measured]),
        ("in step after", [cost.in_step for cost in measured]),
    ):
        print(f"{what}: median {statistics.median(values):.2f} s, at most {max(values):.2f} s")
    print(f"{arguments.times - failed} of {arguments.times}: as wanted")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
