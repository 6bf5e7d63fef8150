"""How long a launch takes from its command to the end of its first round, and how much memory each daemon adds.

All links are up before the first round. The memory is the proportional set size (PSS) of a daemon on digits: what it
shares with others counts in parts. Both ways of starting daemons take turns: forked from one process that has loaded
everything, and as processes that load it each.

    python scripts/bench/start.py [--nodes 8] [--topology mesh] [--rounds 50] [--turns 3] [--only forked]

Run it on a quiet machine. Processor seconds, of all processes of a launch from start to end, hardly depend on what else
the machine does.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

WANTED_SECONDS, WANTED_MEGABYTES = 3.0, 60.0

LAUNCH = "from p2p_tally.cli import main; main()"
COMMANDS = {
    "forked": LAUNCH,
    "separate": f"import p2p_tally.runner.launch.daemons as daemons; daemons.can_fork = lambda: False; {LAUNCH}",
}


class Turn(NamedTuple):
    begun: float  # seconds until the first round was complete
    used: float  # processor seconds
    memory: float  # MB of each daemon
    code: int


def pss(process: str) -> float:
    """In millions of bytes."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("Pss:"))


def turn(kind: str, nodes: int, topology: str, rounds: int) -> Turn:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        options = [f"--nodes={nodes}", f"--topology={topology}", f"--rounds={rounds}", "--device=cpu", f"--out={out}"]
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", COMMANDS[kind], "launch", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        lines = out / "rounds.jsonl"
        while process.poll() is None and not (lines.exists() and lines.stat().st_size):
            time.sleep(0.01)
        begun = time.perf_counter() - started
        memory = [pss(path.read_text(encoding="utf-8").strip()) for path in out.glob("*.pid")]
        _, status, usage = os.wait4(process.pid, 0)
        return Turn(
            begun,
            usage.ru_utime + usage.ru_stime,
            statistics.fmean(memory or [float("nan")]),
            os.waitstatus_to_exitcode(status),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--topology", default="mesh")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", choices=list(COMMANDS))
    arguments = parser.parse_args()
    kinds = [arguments.only] if arguments.only else list(COMMANDS)
    turns: dict[str, list[Turn]] = {kind: [] for kind in kinds}
    for number in range(arguments.turns):
        for kind in kinds:
            found = turn(kind, arguments.nodes, arguments.topology, arguments.rounds)
            turns[kind].append(found)
            print(
                f"turn {number + 1}, {kind}: first round after {found.begun:.2f} s, {found.used:.1f} processor s, "
                f"{found.memory:.0f} MB a daemon, exit code {found.code}",
                flush=True,
            )

    def median(kind: str, column: int) -> float:
        return statistics.median(found[column] for found in turns[kind])

    print(
        f"{arguments.nodes} daemons, {arguments.topology}: first round after {median(kinds[0], 0):.2f} s (with 8 "
        f"linked within {WANTED_SECONDS:g} wanted), {median(kinds[0], 2):.0f} MB each (under "
        f"{WANTED_MEGABYTES:g} wanted)"
    )
    if len(kinds) > 1:
        ratios = [median("forked", column) / median("separate", column) for column in range(3)]
        print(f"forked / separate: time {ratios[0]:.2f}, processor time {ratios[1]:.2f}, memory {ratios[2]:.2f}")


if __name__ == "__main__":
    main()
