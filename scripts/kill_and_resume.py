"""kill -9 of a node and `--resume`, many times: the others go on, and the one that comes back is in step soon.

Starts a federation of daemons by hand and, again and again, kills a random one at a random moment and starts it again.
All are asked for their rounds all the time. Wanted, each time: no other node stands still for longer than one deadline,
and the node that came back is in step (at most one round from the others) within one deadline and the time of two
rounds after it began to play.

    python scripts/kill_and_resume.py [--times 100] [--nodes 3] [--deadline 10] [--seed 0]
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
from pathlib import Path

POLL_SECONDS = 0.05
PATIENCE = 300.0  # seconds for a process to start and to be in step, on a busy machine


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

    def round(self) -> int | None:
        """The last round finished; None if it does not play yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._admin}/status", timeout=10) as answer:
                status = json.load(answer)
        except OSError:
            if self._process is not None and self._process.poll() is not None:
                log = (self._folder / f"{self.name}.log").read_text(encoding="utf-8")
                raise SystemExit(f"{self.name} ended:\n{log[-2000:]}") from None
            return None
        return None if status["phase"] == "waiting" else int(status["round"])


class Watch:
    """How long nodes stand still, and how long their rounds take."""

    def __init__(self, daemons: list[Daemon]) -> None:
        self._daemons = daemons
        self._last = dict.fromkeys((daemon.name for daemon in daemons), (-1, time.monotonic()))
        self.longest = 0.0  # seconds without a new round

    def look(self) -> list[int]:
        """The rounds of all that play."""
        rounds = []
        for daemon in self._daemons:
            round, now = daemon.round(), time.monotonic()
            last, since = self._last[daemon.name]
            if round is not None:
                rounds.append(round)
            if round is not None and round > last:
                self._last[daemon.name] = round, now
            else:
                self.longest = max(self.longest, now - since)
        return rounds


def round_seconds(daemon: Daemon, rounds: int = 10) -> float:
    started, first = time.monotonic(), daemon.round() or 0
    while (daemon.round() or 0) < first + rounds:
        time.sleep(POLL_SECONDS)
    return (time.monotonic() - started) / rounds


def once(victim: Daemon, others: list[Daemon], moment: float, away: float, deadline: float) -> tuple[bool, str]:
    """Kill the victim and start it again. Returns whether all was as wanted, and what was measured."""
    usual = round_seconds(others[0])
    time.sleep(moment)
    watch = Watch(others)
    watch.look()
    victim.kill()
    started = time.monotonic()
    while time.monotonic() < started + away:
        watch.look()
        time.sleep(POLL_SECONDS)
    victim.start("--resume")
    began: float | None = None
    while time.monotonic() < started + PATIENCE:
        rounds, own, now = watch.look(), victim.round(), time.monotonic()
        began = now if began is None and own is not None else began
        if own is not None and rounds and began is not None and own >= statistics.median_low(rounds) - 1:
            good = watch.longest <= deadline and now - began <= deadline + 2 * usual
            what = f"others stood still {watch.longest:5.2f} s at most, in step {now - began:5.2f} s after it began"
            return good, f"{what} (rounds of {usual * 1e3:.0f} ms)"
        time.sleep(POLL_SECONDS)
    return False, f"not in step; others stood still {watch.longest:.2f} s at most"


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
        while any(daemon.round() is None for daemon in daemons):
            time.sleep(POLL_SECONDS)
        for number in range(1, arguments.times + 1):
            victim = generator.choice(daemons)
            others = [daemon for daemon in daemons if daemon is not victim]
            good, said = once(victim, others, generator.uniform(0, 1), generator.uniform(0, 2), arguments.deadline)
            failed += not good
            print(f"{number:3} {victim.name}: {said}{'' if good else '   NOT AS WANTED'}", flush=True)
    print(f"{arguments.times - failed} of {arguments.times}: as wanted")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
