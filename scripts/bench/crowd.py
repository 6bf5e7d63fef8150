"""Many daemons on one machine: do they finish, how long does it take, and how much memory does each use?

python scripts/bench/crowd.py [--nodes 32] [--rounds 20] [--topology ring]
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from p2p_tally.config import Federation, ServiceSettings
from p2p_tally.runner.launch.launcher import launch


def resident_megabytes(folder: Path) -> list[float]:
    """Memory of every running daemon, in millions of bytes."""
    sizes = []
    for path in folder.glob("*.pid"):
        status = Path(f"/proc/{path.read_text().strip()}/status")
        if status.exists():
            found = [line for line in status.read_text().splitlines() if line.startswith("VmRSS")]
            sizes += [int(line.split()[1]) * 1024 / 1e6 for line in found]
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--topology", default="ring")
    arguments = parser.parse_args()
    federation = Federation(
        nodes=arguments.nodes, rounds=arguments.rounds, topology=arguments.topology, merge_every=7, eval_every=3
    )
    sizes: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        started = time.perf_counter()
        run = launch(
            federation,
            ServiceSettings(out=out, device="cpu"),
            lambda line: sizes.extend(resident_megabytes(out)) if line.round > 10 else None,
        )
        seconds = time.perf_counter() - started
    print(
        f"{arguments.nodes} daemons, {arguments.topology}, {run.lines[-1].round} rounds: {seconds:.0f} s in all; "
        f"{len(run.parameters_sha256)} finished; resident memory median {statistics.median(sizes):.0f} MB, "
        f"largest {max(sizes):.0f} MB (under 300 wanted)"
    )


if __name__ == "__main__":
    main()
