"""kill -9 of any node at any moment: the others must finish the run.

Launches a federation many times, in turn on each of some graphs, and kills a random node at a random moment: from
before it has imported anything to after its last round. Prints for each launch how far the node was, whether the others
finished, and how long they took. A launch in which no node is killed comes first, for comparison.

    python scripts/kill_at_any_moment.py [--times 24] [--nodes 4] [--rounds 1000] [--seed 0]
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRAPHS = (
    ["--topology", "mesh"],
    ["--topology", "ring"],
    ["--topology", "ring", "--hops", "all"],
    ["--topology", "ring", "--merge-over", "ring"],
    ["--topology", "matchings"],
)


def begin(options: list[str], folder: Path) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "p2p_tally", "launch", "--json", f"--out={folder}", *options]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def pid_of(folder: Path, victim: str) -> int | None:
    """The process id of a daemon; None if it has not started or has ended."""
    try:
        return int((folder / f"{victim}.pid").read_text())
    except (FileNotFoundError, ValueError):
        return None


def how_far(folder: Path, victim: str) -> str:
    """The last line in a daemon's log."""
    text = (folder / f"{victim}.log").read_text(encoding="utf-8")
    return text.strip().splitlines()[-1] if text.strip() else "nothing said yet"


def try_once(options: list[str], victim: str, moment: float, patience: float) -> tuple[bool, str]:
    """Launch, and kill the victim `moment` seconds after its start. Returns whether the others finished, and its last
    log line."""
    rank = int(victim.removeprefix("node-"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        process = begin(options, folder)
        try:
            while pid_of(folder, victim) is None and process.poll() is None:
                time.sleep(0.01)
            time.sleep(moment)
            pid = pid_of(folder, victim)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
            seen = how_far(folder, victim)
            stdout, stderr = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            waiting = [f"  {path.name}: {how_far(folder, path.stem)}" for path in sorted(folder.glob("node-*.log"))]
            return False, "\n".join([seen, *waiting])
        finally:
            process.kill()
            process.wait()
        if process.returncode == 0:
            return "null" not in stdout, "it had finished"
        if process.returncode == 2:
            raise SystemExit(stderr)
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        others = [accuracy for place, accuracy in enumerate(summary["accuracy"]) if place != rank]
        finished = process.returncode == 1 and f"{victim} did not finish, the others did" in stderr
        return finished and None not in others, seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=24)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    generator = random.Random(arguments.seed)
    common = ["--nodes", str(arguments.nodes), "--rounds", str(arguments.rounds), "--eval-every", "20"]
    common += ["--warmup", "4", "--merge-every", "20"]
    with tempfile.TemporaryDirectory() as temporary:
        started = time.monotonic()
        stdout, stderr = begin(common, Path(temporary) / "run").communicate()
        undisturbed = time.monotonic() - started
        if not stdout:
            raise SystemExit(stderr)
    print(f"undisturbed: {undisturbed:.1f} s", flush=True)
    failed = 0
    for number in range(arguments.times):
        graph = GRAPHS[number % len(GRAPHS)]
        victim, moment = f"node-{generator.randrange(arguments.nodes)}", generator.uniform(0, undisturbed)
        started = time.monotonic()
        finished, seen = try_once([*common, *graph], victim, moment, 600)
        seconds = time.monotonic() - started
        failed += not finished
        verdict = "the others finished" if finished else "THE OTHERS DID NOT FINISH"
        print(f"{' '.join(graph[1:]):24} {victim} at {moment:5.1f} s: {verdict}, {seconds:5.1f} s; {seen}", flush=True)
    print(f"{arguments.times - failed} of {arguments.times}: the others finished")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
